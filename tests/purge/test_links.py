"""Copies that are links, as the cache types of DVC create them in a workspace."""

import os
import shutil
from pathlib import Path

import pytest

from mbd.files import sha256_file
from mbd.formats.purge import Target
from mbd.purge.contents import Targets
from mbd.purge.inventory import PlaceInventory, remove_all, take_inventory
from mbd.purge.places import Folder, Place, RunCache

OLD, OTHER = b"old weights " * 100, b"new weights " * 100
MD5 = "0123456789abcdef0123456789abcdef"


class LinkedMachine:
    """A workspace with a cache that holds the old file and another one, read-only as DVC leaves them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work, self.cache = folder, folder / "work", folder / "cache"
        self.cached = self.cache / "files" / "md5" / MD5[:2] / MD5[2:]
        self.other = self.cached.with_name("f" * 30)
        for path, content in ((self.cached, OLD), (self.other, OTHER)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o444)
        self.work.mkdir()
        self.targets = Targets([Target(sha256=sha256_file(self.cached), what="weights", md5=MD5, size=len(OLD))])

    @property
    def places(self) -> list[Place]:
        roots = frozenset({self.work.resolve(), self.cache.resolve()})
        return [Folder("workspace", self.work, roots), Folder("DVC cache", self.cache, roots, by_name=True)]

    def purge(self) -> list[PlaceInventory]:
        return remove_all(self.places, self.targets)

    def left(self) -> int:
        return sum(finding.found for finding in take_inventory(self.places, self.targets))


@pytest.fixture
def machine(tmp_path: Path) -> LinkedMachine:
    return LinkedMachine(tmp_path)


def obstacles(findings: list[PlaceInventory]) -> list[str]:
    return [obstacle.reason for finding in findings for obstacle in finding.obstacles]


@pytest.mark.parametrize("link", [shutil.copyfile, os.link, os.symlink], ids=["copy", "hard link", "symbolic link"])
def test_each_kind_of_link_is_removed_with_its_target(machine: LinkedMachine, link: object) -> None:
    assert callable(link)
    link(machine.cached, machine.work / "model.safetensors")
    link(machine.other, machine.work / "other.safetensors")
    findings = machine.purge()
    assert [finding.found for finding in findings] == [1, 1]
    assert obstacles(findings) == []
    assert not machine.cached.exists()
    assert not os.path.lexists(machine.work / "model.safetensors")
    assert (machine.work / "other.safetensors").read_bytes() == machine.other.read_bytes() == OTHER
    assert machine.left() == 0


def test_a_dangling_link_to_a_purged_file_is_removed(machine: LinkedMachine) -> None:
    (machine.work / "model.safetensors").symlink_to(machine.cached)
    machine.cached.unlink()
    assert [finding.found for finding in machine.purge()] == [1, 0]
    assert not os.path.lexists(machine.work / "model.safetensors")


def test_a_link_out_of_all_places_is_removed_and_the_copy_that_it_led_to_is_reported(machine: LinkedMachine) -> None:
    elsewhere = machine.folder / "disk" / "old.bin"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(OLD)
    (machine.work / "model.safetensors").symlink_to(elsewhere)
    findings = machine.purge()
    assert [finding.found for finding in findings] == [1, 1]
    assert obstacles(findings) == ["a link led to a copy outside all places"]
    assert not os.path.lexists(machine.work / "model.safetensors")
    assert elsewhere.read_bytes() == OLD


def test_a_folder_outside_all_places_is_not_searched_through_a_link_and_reported(machine: LinkedMachine) -> None:
    disk = machine.folder / "disk"
    disk.mkdir()
    (disk / "model.safetensors").write_bytes(OLD)
    (machine.work / "build").symlink_to(disk)
    findings = machine.purge()
    assert [finding.found for finding in findings] == [0, 1]
    assert obstacles(findings) == ["a link leads to a folder outside all places"]
    assert (disk / "model.safetensors").read_bytes() == OLD


def test_linked_folders_within_the_places_are_searched_once_even_in_a_cycle(machine: LinkedMachine) -> None:
    disk = machine.work / "disk"
    disk.mkdir()
    (disk / "model.safetensors").write_bytes(OLD)
    (disk / "round").symlink_to(machine.work)
    (machine.work / "build").symlink_to(disk)
    findings = machine.purge()
    assert [finding.found for finding in findings] == [1, 1]
    assert obstacles(findings) == []
    assert not (disk / "model.safetensors").exists()


def test_hard_links_outside_all_places_are_counted_and_reported(machine: LinkedMachine) -> None:
    outside = machine.folder / "outside.bin"
    os.link(machine.cached, outside)
    os.link(machine.cached, machine.work / "model.safetensors")
    findings = machine.purge()
    assert obstacles(findings) == ["hard links to a removed file exist outside all places"]
    assert "1 more links" in findings[0].obstacles[0].detail
    assert outside.read_bytes() == OLD


def test_run_cache_entries_of_a_purged_output_are_removed_and_others_kept(tmp_path: Path) -> None:
    text = "cmd: train\nouts:\n- path: model.safetensors\n  hash: md5\n  md5: {}\n"
    entries = {name: tmp_path / "runs" / name[:2] / name / "value" for name in ("aaaa", "bbbb", "cccc")}
    for path in entries.values():
        path.parent.mkdir(parents=True)
    entries["aaaa"].write_text(text.format(MD5))
    entries["bbbb"].write_text(text.format("f" * 32) + f"deps:\n- path: x\n  md5: {MD5}\n")
    entries["cccc"].write_bytes(b"\xff\xfe no YAML")
    targets = Targets([Target(sha256="a" * 64, what="weights", md5=MD5, size=10)])
    (finding,) = remove_all([RunCache("DVC run cache", tmp_path / "runs")], targets)
    assert [copy.name for copy in finding.copies] == [str(entries["aaaa"])]
    assert [name for name, path in entries.items() if path.exists()] == ["bbbb", "cccc"]
