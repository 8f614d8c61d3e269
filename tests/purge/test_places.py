"""The places that are searched, given parameters and the configuration of DVC."""

from collections.abc import Iterator
from pathlib import Path

from mbd.errors import DataError
from mbd.formats.purge import Copy, Target
from mbd.params import load_params
from mbd.purge.contents import ReportObstacle, Targets
from mbd.purge.inventory import remove_all, take_inventory
from mbd.purge.places import Folder, WholeFolder
from mbd.purge.workspace import workspace
from tests.features.dvc_repository import configure_dvc


def places(root: Path, *settings: str, modalities: tuple[str, ...] = ()) -> dict[tuple[str, str], object]:
    found = workspace(load_params(None, settings), f"file://{root}/store", root=root, modalities=modalities).places
    return {(place.kind, place.where): place for place in found}


def test_dvc_repositories_in_subfolders_are_searched(tmp_path: Path) -> None:
    configure_dvc(tmp_path / "work" / "team-a", backup="../../../remote-a")
    configure_dvc(tmp_path / "work" / "team-b", cloud="s3://bucket/data", copy="gs://bucket/data")
    configure_dvc(tmp_path / "work" / "team-b" / ".dvc" / "tmp" / "exps" / "abc")
    found = places(tmp_path / "work")
    caches = {where for kind, where in found if kind == "DVC cache"}
    assert caches == {str(tmp_path / "work" / team / ".dvc" / "cache") for team in ("team-a", "team-b")}
    remotes = {where for kind, where in found if kind == "DVC remote"}
    assert remotes == {str(tmp_path / "remote-a"), "s3://bucket/data", "gs://bucket/data"}


def test_no_file_is_searched_in_two_places(tmp_path: Path) -> None:
    configure_dvc(tmp_path / "work", inside="../remote")
    named = tmp_path / "work" / "registry"
    found = places(tmp_path / "work", f"purge.folders=['{named}']")
    folders = [place for place in found.values() if isinstance(place, Folder)]
    for place in folders:
        place.root.mkdir(parents=True, exist_ok=True)
        (place.root / "old.bin").write_bytes(b"old")
    targets = Targets(
        [Target(sha256="cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4", what="weights", size=3)]
    )
    findings = take_inventory(folders, targets)
    assert [finding.found for finding in findings] == [1] * len(folders)
    assert {"workspace", "DVC cache", "DVC remote", "store", "named in purge.folders"} <= {f.kind for f in folders}


def test_an_unknown_pipeline_root_of_kubeflow_is_an_obstacle(tmp_path: Path) -> None:
    kind = "Kubeflow pipeline root"
    assert not [place for place in places(tmp_path) if place[0] == kind]
    assert (kind, "s3://mlpipeline/v2") in places(tmp_path, "platform.pipeline_root=minio://mlpipeline/v2")
    host = "platform.kubeflow_host=https://kubeflow.example"
    (unknown,) = [place for (name, _), place in places(tmp_path, host).items() if name == kind]
    output: list[str] = []
    assert not list(unknown.find(Targets(), lambda obstacle: output.append(obstacle.hint)))  # type: ignore[attr-defined]
    assert output == ["set platform.pipeline_root"]


def test_all_cached_vectors_of_a_modality_are_removed_and_others_kept(tmp_path: Path) -> None:
    cache = tmp_path / "build" / "cache" / "media"
    for modality in ("audio", "visual"):
        (cache / modality / "ab").mkdir(parents=True)
        (cache / modality / "ab" / "cd.vector").write_bytes(modality.encode())
    found = places(tmp_path, modalities=("audio",))
    vectors = found[("cached vectors", str(cache / "audio"))]
    copies = list(vectors.find(Targets(), lambda _: None))  # type: ignore[attr-defined]
    assert vectors.remove(copies) == {}  # type: ignore[attr-defined]
    assert [path.name for path in cache.rglob("*.vector")] == ["cd.vector"]
    assert (cache / "visual" / "ab" / "cd.vector").exists()


class BreaksOff(WholeFolder):
    """A folder whose search fails after its last file."""

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        yield from super().find(targets, report_obstacle)
        raise DataError("the list is damaged: at its end")


def test_what_was_met_before_a_search_fails_is_removed_and_the_rest_an_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    folder.mkdir()
    (folder / "a.vector").write_bytes(b"1")
    (result,) = remove_all([BreaksOff("cached vectors", folder)], Targets())
    assert (result.found, result.stayed, list(folder.iterdir())) == (1, 0, [])
    (obstacle,) = result.obstacles
    assert (obstacle.reason, obstacle.blocking) == ("it could not be searched: the list is damaged", True)
