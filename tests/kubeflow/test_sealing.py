"""Crypto-shredding between Kubeflow steps: the same results, nothing plain in artifacts, nothing readable after it."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mbd.errors import ExitCode
from mbd.files import read_json
from mbd.formats.statement import DeletionStatement
from mbd.kubeflow import tasks
from mbd.params import load_params
from mbd.params.operations import ShreddingSettings
from mbd.shredding.keys import KeyDestroyedError, Keyring
from mbd.shredding.vault import opened
from mbd.verifier.bundle import Bundle
from tests.digests import path_digest
from tests.kubeflow.workspace import ArtifactWorkspace, PlainArtifact, as_settings, sealing
from tests.log.build import become_another_machine
from tests.shredding.build import files_with, windows

pytestmark = pytest.mark.slow
MODELS = ("model", "reference", "deleted")


def whole_deletion(folder: Path, *settings: str) -> ArtifactWorkspace:
    # deletion.json repeats the path of the ledgers
    workspace = ArtifactWorkspace(folder, settings=("deletion.ledgers=ledgers", *settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        workspace.prepare()
        workspace.delete()
        workspace.certify()
        workspace.publish()
    return workspace


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ArtifactWorkspace:
    return whole_deletion(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ArtifactWorkspace:
    folder = tmp_path_factory.mktemp("sealed")
    return whole_deletion(folder, *as_settings(sealing(folder)))


@pytest.fixture
def sealed(made: ArtifactWorkspace, tmp_path: Path) -> ArtifactWorkspace:
    """A copy of the deletion, with keys of its own to destroy."""
    for name in ("data-keys", "keys", "store", "private", *made.artifacts):
        if (made.folder / name).is_dir():
            shutil.copytree(made.folder / name, tmp_path / name)
        elif (made.folder / name).exists():
            shutil.copy(made.folder / name, tmp_path / name)
    values = sealing(tmp_path).model_copy(update={"wrapper": f"file:{made.folder}/wrapper"})
    copies = {name: PlainArtifact(str(tmp_path / name), dict(one.metadata)) for name, one in made.artifacts.items()}
    return ArtifactWorkspace(tmp_path, copies, as_settings(values))


def settings_of(workspace: ArtifactWorkspace) -> ShreddingSettings:
    return load_params(None, list(workspace.settings)).shredding


def destroy(workspace: ArtifactWorkspace, modality: str = "audio") -> None:
    Keyring.of(settings_of(workspace)).destroy("synthetic-mosi", (modality,), ("features", "models"), "request 17")


def failing(run: Callable[[], object], capfd: pytest.CaptureFixture[str]) -> tuple[ExitCode, str]:
    capfd.readouterr()
    with pytest.raises(SystemExit) as caught:
        run()
    return ExitCode(int(str(caught.value.code))), capfd.readouterr().err


def nothing_plain_is_left(workspace: ArtifactWorkspace) -> bool:
    return not any(path.is_file() for path in (workspace.folder / "temporary").rglob("*"))


def test_the_results_are_those_without_encryption(plain: ArtifactWorkspace, made: ArtifactWorkspace) -> None:
    for name in MODELS:
        assert not list(made.artifact(name).folder.rglob("*.safetensors")), name
        with opened(made.artifact(name).folder, settings_of(made)) as folder:
            assert path_digest(folder) == path_digest(plain.artifact(name).folder), name
    for name in ("evaluation", "leakage"):
        assert path_digest(made.artifact(name).folder) == path_digest(plain.artifact(name).folder), name
    statements = [Bundle(workspace.artifact("published").folder).statement for workspace in (plain, made)]
    kept = [{name: one.digests[name] for name in ("model.safetensors", "leakage.json")} for one in statements]
    assert kept[0] == kept[1]
    assert all(isinstance(one, DeletionStatement) for one in statements)
    assert made.artifact("model").metadata == plain.artifact("model").metadata
    assert nothing_plain_is_left(made)


def test_nothing_of_the_old_weights_is_in_any_file(plain: ArtifactWorkspace, made: ArtifactWorkspace) -> None:
    old = windows(plain.artifact("model").folder / "model.safetensors")
    others = [plain.artifact(name).folder / "model.safetensors" for name in ("deleted", "reference")]
    old = {piece for piece in old if not any(piece in other.read_bytes() for other in others)}
    assert len(old) > 20
    assert list(files_with(plain.folder, old)) == [plain.artifact("model").folder / "model.safetensors"]
    assert list(files_with(made.folder, old)) == []


def test_the_error_names_the_file_the_key_and_a_hint(
    sealed: ArtifactWorkspace, capfd: pytest.CaptureFixture[str]
) -> None:
    destroy(sealed)
    data, reference, model = (sealed.artifact(name) for name in ("data", "reference", "model"))
    out = PlainArtifact(str(sealed.folder / "again"))
    code, output = failing(lambda: tasks.delete(sealed.params(), data, model, reference, ["audio"], [], out), capfd)
    assert code == ExitCode.BAD_DATA
    assert "the key of audio (models of synthetic-mosi) was destroyed" in output
    assert "request 17" in output
    assert f"file: {model.folder}/model.safetensors.mbdx" in output
    assert re.search(r"value: [0-9a-f]{64}\n", output)
    assert "hint: it cannot be decrypted any more" in output
    assert not out.folder.exists()
    assert nothing_plain_is_left(sealed)


def test_what_never_knew_the_modality_is_still_worked_with(sealed: ArtifactWorkspace) -> None:
    destroy(sealed)
    shutil.rmtree(sealed.folder / "store")
    become_another_machine(sealed.folder / "cache")  # which does not miss the log in it
    sealed.publish()  # the deleted model
    with opened(sealed.artifact("reference").folder, settings_of(sealed)) as folder:
        assert (folder / "model.safetensors").is_file()


def test_the_modality_does_not_come_back_by_training_again(
    sealed: ArtifactWorkspace, capfd: pytest.CaptureFixture[str]
) -> None:
    destroy(sealed)
    out, metrics = PlainArtifact(str(sealed.folder / "again")), PlainArtifact(str(sealed.folder / "again-metrics"))

    def train(*without: str) -> None:
        tasks.train(sealed.params(), sealed.artifact("data"), out, metrics, without=without)

    code, output = failing(train, capfd)
    assert (code, "the key of audio" in output, "shredding.lineage" in output) == (ExitCode.BAD_DATA, True, True)
    assert not out.folder.exists()
    train("audio")
    assert (out.folder / "model.safetensors.mbdx").is_file()


def test_a_step_that_fails_leaves_neither_plaintext_nor_an_artifact(
    sealed: ArtifactWorkspace, capfd: pytest.CaptureFixture[str]
) -> None:
    data, reference, model = (sealed.artifact(name) for name in ("data", "reference", "model"))
    out = PlainArtifact(str(sealed.folder / "again"))
    code, _ = failing(lambda: tasks.delete(sealed.params(), data, model, reference, ["smell"], [], out), capfd)
    assert code != ExitCode.DONE
    assert not out.folder.exists()
    assert nothing_plain_is_left(sealed)


def test_an_encrypted_artifact_of_another_model_is_refused(
    sealed: ArtifactWorkspace, capfd: pytest.CaptureFixture[str]
) -> None:
    name, other = "model.safetensors.mbdx", PlainArtifact(str(sealed.folder / "other"))
    metrics, model = PlainArtifact(str(sealed.folder / "other-metrics")), sealed.artifact("model")
    tasks.train(sealed.params("training.seed=5"), sealed.artifact("data"), other, metrics)
    shutil.copy(other.folder / name, model.folder / name)  # of the same lineage, so the same keys open it
    evaluation, page = PlainArtifact(str(sealed.folder / "again")), PlainArtifact(str(sealed.folder / "page"))
    code, output = failing(
        lambda: tasks.evaluate(sealed.params(), sealed.artifact("data"), model, evaluation, metrics, page), capfd
    )
    assert (code, "not what the step wrote" in output) == (ExitCode.BAD_DATA, True)


def test_without_the_parameters_of_shredding_an_encrypted_artifact_is_refused(
    sealed: ArtifactWorkspace, capfd: pytest.CaptureFixture[str]
) -> None:
    workspace = ArtifactWorkspace(sealed.folder, sealed.artifacts)
    code, output = failing(workspace.publish, capfd)
    assert (code, "set shredding.enabled=true" in output) == (ExitCode.USAGE, True)


def test_a_purge_is_complete_when_the_keys_of_the_old_models_are_gone(
    sealed: ArtifactWorkspace, capfd: pytest.CaptureFixture[str]
) -> None:
    proof, given = sealed.artifact("proof"), (sealed.artifact("published"), sealed.artifact("deleted"))
    tasks.purge(sealed.params(), *given, proof)
    code, _ = failing(lambda: tasks.require_purged(proof), capfd)
    assert code == ExitCode.FAILURE
    assert read_json(proof.folder / "purge.json")["erasure"]["claim"] == "partial"
    tasks.purge(sealed.params("purge.keys=true"), *given, proof)
    assert proof.metadata["claim"] == "complete"
    tasks.require_purged(proof)
    with pytest.raises(KeyDestroyedError), opened(sealed.artifact("model").folder, settings_of(sealed)):
        pass
    assert nothing_plain_is_left(sealed)
