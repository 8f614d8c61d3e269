"""Encrypted feature data in Kubeflow steps: opened for the step only, and not at all when the key is gone."""

import shutil
from pathlib import Path

import pytest

from mbd.features.contract import FeatureSet
from mbd.kubeflow import tasks
from mbd.kubeflow.data import SHARED_FOLDER, feature_set
from mbd.shredding.keys import KeyDestroyedError, Keyring
from mbd.shredding.vault import encrypt_folder
from tests.digests import path_digest
from tests.features.build import synthetic_set
from tests.features.dvc_repository import SampleRepository, isolated
from tests.kubeflow.workspace import ArtifactWorkspace, as_settings, sealing
from tests.refusals import refused, refused_as_encrypted
from tests.shredding.build import files_with, windows

TENSORS = {"_rows", "text", "audio", "visual"}


def read_all(folder: Path, *without: str) -> None:
    data = FeatureSet.open(folder, without=without)
    for split in data.manifest.splits:
        data.split(split).load()


def nothing_plain_is_left(folder: Path) -> bool:
    return not any(path.is_file() for path in (folder / "temporary").rglob("*"))


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactWorkspace:
    return ArtifactWorkspace(tmp_path, settings=as_settings(sealing(tmp_path)))


def test_what_steps_on_one_machine_share_is_encrypted_by_modality(
    artifacts: ArtifactWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path / "shared"))
    params, data = artifacts.values(), artifacts.artifact("data")
    tasks.features(artifacts.text(), artifacts.artifact("resolved"), data, artifacts.artifact("metrics"))
    (shared,) = (tmp_path / "shared").iterdir()
    assert {path.name for path in shared.glob("splits/*/*")} == {f"{part}.safetensors.mbdx" for part in TENSORS}
    with feature_set(data.folder, params) as folder:
        audio = {piece for file in folder.rglob("audio.safetensors") for piece in windows(file)}
        assert list(files_with(tmp_path, audio))
    assert len(audio) > 20
    assert list(files_with(tmp_path, audio)) == []

    Keyring.of(params.shredding).destroy("synthetic-mosi", ("audio",), ("features",), "request 17")
    with feature_set(data.folder, params) as folder:
        read_all(folder, "audio")
    with refused(KeyDestroyedError) as caught, feature_set(data.folder, params) as folder:
        read_all(folder)
    assert str(caught.value.file).startswith(str(shared / "splits"))
    assert str(caught.value.file).endswith("/audio.safetensors.mbdx")
    assert nothing_plain_is_left(tmp_path)


@pytest.fixture
def repository(
    artifacts: ArtifactWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: Path
) -> SampleRepository:
    """A DVC repository whose remote and history hold encrypted feature files only."""
    found = isolated(tmp_path / "machine", quick)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    repository = SampleRepository.make(tmp_path / "repository", found, str(tmp_path / "remote"))
    synthetic_set(tmp_path / "made")
    keyring = Keyring.of(artifacts.values().shredding)
    encrypt_folder(tmp_path / "made", repository.folder / "build" / "features", keyring)
    repository.dvc("add", "--quiet", "build/features")
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message", "encrypted")
    repository.dvc("push", "--quiet")
    return repository


def test_an_encrypted_revision_is_opened_for_the_step_only(
    artifacts: ArtifactWorkspace, repository: SampleRepository, tmp_path: Path
) -> None:
    revision = f"platform.features.repository={repository.folder}"
    params, data = artifacts.values(revision), artifacts.artifact("data")
    tasks.features(artifacts.text(revision), artifacts.artifact("resolved"), data, artifacts.artifact("metrics"))
    with feature_set(data.folder, params) as folder:
        assert folder.is_relative_to(tmp_path / "temporary")
        assert path_digest(folder) == path_digest(tmp_path / "made")
    audio = {piece for file in (tmp_path / "made").rglob("audio.safetensors") for piece in windows(file)}
    shutil.rmtree(tmp_path / "made")
    assert audio
    assert list(files_with(tmp_path, audio)) == []
    off = artifacts.values(revision, "shredding.enabled=false")
    with refused_as_encrypted(), feature_set(data.folder, off):
        pass

    lineage = FeatureSet.open(repository.folder / "build" / "features").manifest.name
    Keyring.of(params.shredding).destroy(lineage, ("audio",), ("features",), "request 17")
    with feature_set(data.folder, params) as folder:
        read_all(folder, "audio")
    with refused(KeyDestroyedError) as caught, feature_set(data.folder, params) as folder:
        read_all(folder)
    assert str(caught.value.file).startswith("build/features/splits/")
    tasks.features(
        artifacts.text(revision),
        *(artifacts.artifact("resolved"), artifacts.artifact("again"), artifacts.artifact("metrics")),
    )
    assert artifacts.artifact("again").folder.read_bytes() == data.folder.read_bytes()
    assert nothing_plain_is_left(tmp_path)
