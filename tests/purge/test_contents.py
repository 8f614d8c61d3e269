"""What a purge recognises inside of files: archives within bounds, and tensors in other formats."""

import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from mbd.files import sha256_file
from mbd.formats.purge import Obstacle, Target
from mbd.purge.contents import DEPTH, Targets, held_in, tensor_digests
from mbd.purge.inventory import PlaceInventory, remove_all
from mbd.purge.places import Folder
from mbd.tensors import open_tensors, save_tensors
from tests.purge.workspace import PurgeWorkspace


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The old weights, in a folder that is not searched."""
    random = np.random.default_rng(0)
    tensors = {name: random.standard_normal((8, 40), np.float32) for name in ("audio", "text", "head")}
    (tmp_path / "elsewhere").mkdir()
    save_tensors(tmp_path / "elsewhere" / "old.safetensors", tensors | {"step": np.arange(100)})
    return tmp_path / "elsewhere" / "old.safetensors"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def targets(old: Path, *released: Path) -> Targets:
    target = Target(
        sha256=sha256_file(old), what="weights", size=old.stat().st_size, tensors=tensor_digests(old), md5="0" * 32
    )
    return Targets([target], map(sha256_file, released))


def purge(place: Path, sought: Targets, *, archives: bool = False) -> PlaceInventory:
    (done,) = remove_all([Folder("workspace", place, frozenset({place.resolve()}))], sought, archives=archives)
    return done


def _tar(old: Path, to: Path) -> None:
    with tarfile.open(to, "w") as tar:
        tar.add(old, "models/old.safetensors")


def _tar_without_a_mark(old: Path, to: Path) -> None:
    """Write a tar file of the form before POSIX: its head has no magic number."""
    _tar(old, to)
    content = bytearray(to.read_bytes())
    content[148:156], content[257:512] = b" " * 8, bytes(255)
    content[148:155] = b"%06o\0" % sum(content[:512])
    to.write_bytes(content)


def _tar_in_zip(old: Path, to: Path) -> None:
    with tarfile.open(to.with_suffix(".tgz"), "w:gz") as tar:
        tar.add(old, "old.safetensors")
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(to.with_suffix(".tgz"), "backup.tar.gz")
    to.with_suffix(".tgz").unlink()


def _npz_in_tar(old: Path, to: Path) -> None:
    np.savez_compressed(to.with_suffix(".npz"), **open_tensors(old))  # type: ignore[arg-type]
    with tarfile.open(to, "w:xz") as tar:
        tar.add(to.with_suffix(".npz"), "old.npz")
    to.with_suffix(".npz").unlink()


def _zip_behind_a_program(old: Path, to: Path) -> None:
    to.write_bytes(b"#!/bin/sh\nexec unpack $0\n")
    with zipfile.ZipFile(to, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.write(old, "old.safetensors")


@pytest.mark.parametrize(
    "pack",
    [_tar, _tar_without_a_mark, _tar_in_zip, _npz_in_tar, _zip_behind_a_program],
    ids=["tar", "old tar", "tar.gz in zip", "npz in tar.xz", "zip that unpacks itself"],
)
def test_an_archive_with_an_old_file_is_reported_and_removed_only_if_allowed(
    old: Path, place: Path, pack: Callable[[Path, Path], None]
) -> None:
    pack(old, place / "backup")
    done = purge(place, targets(old))
    assert (done.found, done.stayed) == (1, 1)
    assert done.obstacles[0].reason == "a file holds what was purged among other things"
    assert (place / "backup").exists()
    assert purge(place, targets(old), archives=True).stayed == 0
    assert not (place / "backup").exists()


def _gzip(old: Path, to: Path) -> None:
    to.write_bytes(gzip.compress(old.read_bytes()))


def _lzma(old: Path, to: Path) -> None:
    to.write_bytes(lzma.compress(old.read_bytes(), format=lzma.FORMAT_ALONE))


def _npz(old: Path, to: Path) -> None:
    with to.open("wb") as stream:
        tensors = {f"renamed/{name}": tensor for name, tensor in open_tensors(old).items()}
        np.savez(stream, **tensors)  # type: ignore[arg-type]


def _torch(dtype: torch.dtype) -> Callable[[Path, Path], None]:
    def save(old: Path, to: Path) -> None:
        tensors = {name: torch.tensor(np.array(tensor)).to(dtype) for name, tensor in open_tensors(old).items()}
        torch.save({"state": tensors, "epoch": 3}, to)

    return save


def _renamed(old: Path, to: Path) -> None:
    save_tensors(to, {f"model.{name}": np.array(tensor) for name, tensor in open_tensors(old).items()})


@pytest.mark.parametrize(
    "save",
    [_gzip, _lzma, _npz, _renamed, *map(_torch, (torch.float32, torch.float16, torch.bfloat16, torch.float64))],
    ids=["gzip", "lzma", "npz", "renamed tensors", "pt", "pt in float16", "pt in bfloat16", "pt in float64"],
)
def test_old_weights_in_another_format_are_a_copy_and_removed(
    old: Path, place: Path, save: Callable[[Path, Path], None]
) -> None:
    save(old, place / "export")
    np.save(place / "other.npy", np.random.default_rng(1).standard_normal((8, 40)))
    done = purge(place, targets(old))
    assert (done.found, done.stayed, done.obstacles) == (1, 0, [])
    assert [path.name for path in place.iterdir()] == ["other.npy"]


def test_a_file_with_one_old_tensor_is_reported_and_kept(old: Path, place: Path) -> None:
    np.save(place / "encoder.npy", open_tensors(old)["audio"])
    done = purge(place, targets(old))
    assert [obstacle.detail for obstacle in done.obstacles] == [f"{place / 'encoder.npy'}: 1 tensors"]
    assert (place / "encoder.npy").exists()


def test_a_current_release_is_kept_even_if_it_has_the_same_tensors(old: Path, place: Path) -> None:
    _renamed(old, place / "released.safetensors")
    sought = targets(old, place / "released.safetensors")
    with tarfile.open(place / "backup.tar", "w") as tar:
        tar.add(place / "released.safetensors", "model.safetensors")
    done = purge(place, sought)
    assert (done.found, done.obstacles) == (0, [])


def _obstacle(content: bytes, sought: Targets, largest: int = 1 << 20) -> Obstacle | None:
    obstacles: list[Obstacle] = []
    held_in(io.BytesIO(content), "x", sought, obstacles.append, largest=largest)
    return next(iter(obstacles), None)


def _zipped(content: bytes, name: str = "member") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def _tar_of(content: bytes) -> bytes:
    stream, member = io.BytesIO(), tarfile.TarInfo("member")
    member.size = len(content)
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def test_what_cannot_be_opened_within_bounds_is_an_obstacle(old: Path) -> None:
    sought = targets(old)
    nested = b"x"
    for _ in range(DEPTH + 2):
        nested = _zipped(nested)
    encrypted = bytearray(_zipped(b"secret"))
    for magic, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        encrypted[encrypted.index(magic) + at] |= 1
    cases = {
        "inflated": gzip.compress(bytes(1 << 22)),
        "passed over": gzip.compress(_tar_of(bytes(1 << 22))),
        "deep": nested,
        "encrypted": bytes(encrypted),
        "damaged": gzip.compress(os.urandom(5000))[:-3000],
        "7z": b"7z\xbc\xaf\x27\x1c" + bytes(100),
    }
    obstacles = {name: _obstacle(content, sought) for name, content in cases.items()}
    assert {name: obstacle and obstacle.blocking for name, obstacle in obstacles.items()} == dict.fromkeys(cases, True)
    assert _obstacle(_zipped(b"nothing old"), sought) is None


def test_a_file_of_a_format_that_is_not_opened_is_listed_and_no_obstacle_to_the_claim(old: Path) -> None:
    listed = _obstacle(b"\x89HDF\r\n\x1a\n" + bytes(100), targets(old))
    assert listed
    assert not listed.blocking
    assert "HDF5" in listed.detail


def test_a_purge_with_an_archive_and_a_resaved_copy_is_not_complete_until_both_are_gone(
    purge_workspace: PurgeWorkspace,
) -> None:
    old = purge_workspace.work / "build" / "model" / "model.safetensors"
    _tar(old, purge_workspace.work / "backup.tar")
    _npz(old, purge_workspace.work / "export.npz")
    done = purge_workspace.purge()
    assert done.record.erasure.claim == "partial"
    assert not (purge_workspace.work / "export.npz").exists()
    assert (purge_workspace.work / "backup.tar").exists()
    again = purge_workspace.purge("purge.archives=true")
    assert again.record.erasure.claim == "complete"
    assert not (purge_workspace.work / "backup.tar").exists()
