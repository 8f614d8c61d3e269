"""Pipelines on this machine, each step a process: the same bytes as on the command line, and no false success."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mbd.cli import group
from mbd.files import read_json, sha256_file
from mbd.shredding.keys import KeyDestroyedError
from pipelines.local import LOG, StepFailedError, TaskOutput
from tests.digests import path_digest
from tests.pipelines.small import as_options, only_run
from tests.quick_mbd import quick_tasks
from tests.shredding.build import files_with, windows

NETWORKS = (
    "model.backbone=lattice",
    "model.lattice.member=mbd.model.examples.late_fusion:LateFusion",
    "model.lattice.options={hidden: 4}",
    "model.lattice.folds=2",
    "training.epochs=1",
    "requests.revocable=[audio]",
    "deletion.method=exact",
)
MODELS = {"fetch": "model", "registered-reference": "reference", "delete": "deleted"}
"""task → its artifact"""
COMMANDS = {"fetch": "train", "registered-reference": "reference", "delete": "delete"}
"""task → what the command line calls the same model"""
FILES = ("model.safetensors", "model.json")


def run(*arguments: str, settings: tuple[str, ...] = ()) -> Result:
    return CliRunner().invoke(group, [*arguments, *as_options(*settings)])


def by_command_line(folder: Path) -> None:
    """Do what dvc.yaml does, up to the attacks."""
    steps: dict[str, list[str]] = {
        "features": [],
        "train": ["--features", "features"],
        "reference": ["--features", "features", "--without", "audio"],
        "delete": ["--features", "features", "--model", "train", "--reference", "reference", "--modality", "audio"],
        "attack": [
            *("--features", "features", "--before", "train", "--after", "delete", "--reference", "reference"),
            *("--modality", "audio"),
        ],
    }
    for name, given in steps.items():
        command = "train" if name == "reference" else name
        placed = [str(folder / part) if part in steps else part for part in given]
        done = run(command, *placed, "--out", str(folder / name), settings=NETWORKS)
        assert done.exit_code == 0, (name, done.output, done.exception)


@pytest.fixture(scope="module", autouse=True)
def _quick_tasks(quick: Path) -> Iterator[None]:
    with quick_tasks(quick):
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command line makes of the same parameters."""
    folder = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        by_command_line(folder)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the pipeline `train` has run."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        given = ("--root", str(folder / "train"))
        done = run("pipeline", "run", "train", *given, settings=NETWORKS)
        assert done.exit_code == 0, (done.output[-3000:], done.exception)
    return folder


@pytest.fixture
def production(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Store and keys with the registered model, to delete from."""
    folder = tmp_path / "production"
    shutil.copytree(trained / "build", folder / "build")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
def test_training_registers_a_model_and_its_references_with_the_bytes_of_the_command_line(
    plain: Path, trained: Path, production: Path
) -> None:
    outputs = only_run(trained / "train")
    references = list(outputs.glob("for-loop-*/*/reference"))
    assert path_digest(outputs / "train" / "model") == path_digest(plain / "train")
    assert [path_digest(made) for made in references] == [path_digest(plain / "reference")]
    shown = json.loads(run("models", "show", "sentiment", "--trust", "build/keys/trust.json", "--json").output)
    registered = read_json(outputs / "register" / "registered")
    assert (shown["current"]["release"], registered["promoted"]) == (registered["registration"], True)
    assert shown["current"]["weights"] == sha256_file(plain / "train" / "model.safetensors")
    weights = {**dict.fromkeys(("text", "visual")), "audio": sha256_file(plain / "reference" / "model.safetensors")}
    assert shown["references"] == weights


@pytest.mark.slow
def test_a_deletion_starts_at_the_current_model_trains_nothing_and_ends_as_the_current_one(
    plain: Path, production: Path, tmp_path: Path
) -> None:
    done = run("pipeline", "run", "delete", "--root", str(tmp_path / "kfp"), settings=NETWORKS)
    assert done.exit_code == 0, (done.output[-3000:], done.exception)
    outputs = only_run(tmp_path / "kfp")
    assert "the registered reference without audio is used; nothing is trained" in done.output
    for task, artifact in MODELS.items():
        for file in FILES:
            assert sha256_file(outputs / task / artifact / file) == sha256_file(plain / COMMANDS[task] / file), task
    for task, artifact in {"delete": "deleted", "attack": "leakage"}.items():
        assert path_digest(outputs / task / artifact) == path_digest(plain / task), task
    *_, model, audit, published, store, following = done.output.splitlines()
    assert store.split() == ["store:", "file://build/store"]
    assert following.startswith(f"next: mbd verify {outputs / 'publish' / 'published'} --model ")
    assert model.split() == ["model:", str(outputs / "delete" / "deleted")]
    assert audit.split() == ["audit:", str(outputs / "attack" / "leakage")]
    assert published.split() == ["certificate:", str(outputs / "publish" / "published")]
    assert done.output.count("reaudit_days") == 0  # no task repeats the parameters
    certificate = read_json(outputs / "publish" / "published" / "receipt.json")["certificate"]
    verified = run("verify", f"file://build/store/certificates/{certificate}", "--trust", "build/keys/trust.json")
    assert verified.exit_code == 0, verified.output
    assert "VERIFIED" in verified.output
    shown = json.loads(run("models", "show", "sentiment", "--trust", "build/keys/trust.json", "--json").output)
    assert (shown["current"]["release"], shown["revoked"]) == (certificate, ["audio"])
    assert [file.name for file in (outputs / "purge" / "proof").iterdir()] == ["report.md"]  # it was not requested
    assert {*(tmp_path / "kfp").iterdir()} == {outputs, tmp_path / "kfp" / LOG}  # no feature data is left


@pytest.mark.slow
def test_with_shredding_no_artifact_is_plain_and_none_can_be_read_when_the_key_is_gone(
    plain: Path, production: Path, tmp_path: Path
) -> None:
    root, settings = tmp_path / "kfp", ("shredding.enabled=true", f"shredding.temporary={tmp_path}/temporary")
    assert run("shred", "keys").exit_code == 0
    done = run("pipeline", "run", "delete", "--root", str(root), settings=(*NETWORKS, *settings))
    assert done.exit_code == 0, (done.output[-3000:], done.exception)
    outputs = only_run(root)
    for task, artifact in MODELS.items():
        assert not list((outputs / task).rglob("*.safetensors")), task
        opened = run("shred", "decrypt", str(outputs / task / artifact), "--out", f"opened/{task}")
        assert opened.exit_code == 0, opened.output
        for file in FILES:
            assert sha256_file(Path("opened", task, file)) == sha256_file(plain / COMMANDS[task] / file), task
    assert path_digest(outputs / "attack" / "leakage") == path_digest(plain / "attack")
    shutil.rmtree("opened")

    kept = [(plain / step / "model.safetensors").read_bytes() for step in ("delete", "reference")]
    old = {piece for piece in windows(plain / "train" / "model.safetensors") if not any(piece in k for k in kept)}
    audio = {piece for file in (plain / "features").rglob("audio.safetensors") for piece in windows(file)}
    assert len(old) > 20 and len(audio) > 20
    registered = [f"build/store/objects/sha256/{sha256_file(plain / 'train' / 'model.safetensors')}"]
    assert [str(file.relative_to(production)) for file in files_with(tmp_path, old | audio)] == registered
    assert {*root.iterdir()} == {outputs, root / LOG}

    destroyed = run("shred", "destroy", "--modality", "audio", "--reason", "request 17", "--yes")
    assert destroyed.output.count("DESTROYED") == 2, destroyed.output  # of features and of models
    gone = run("shred", "decrypt", str(outputs / "fetch" / "model"), "--out", "opened/fetch")
    assert isinstance(gone.exception, KeyDestroyedError)
    assert run("shred", "decrypt", str(outputs / "delete" / "deleted"), "--out", "opened/delete").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_purge_in_the_pipeline_is_complete_and_names_what_the_metadata_store_still_names(
    plain: Path, production: Path, tmp_path: Path, *, encrypted: bool
) -> None:
    root, old = tmp_path / "kfp", plain / "train" / "model.safetensors"
    settings = [f"platform.pipeline_root=file://{root}", "platform.kubeflow_host=http://ml-pipeline:8888"]
    if encrypted:
        settings += ["shredding.enabled=true", "purge.keys=true", f"shredding.temporary={tmp_path}/temporary"]
        assert run("shred", "keys").exit_code == 0
    given = ("--root", str(root), "--argument", "purge_copies=true")
    done = run("pipeline", "run", "delete", *given, settings=(*NETWORKS, *settings))
    assert done.exit_code == 0, (done.output[-3000:], done.exception)
    outputs = only_run(root)
    record = read_json(outputs / "purge" / "proof" / "purge.json")
    assert (record["erasure"]["claim"], [each["gone"] for each in record["places"] if not each["gone"]]) == (
        "complete",
        [],
    )
    pieces = {piece for piece in windows(old) if piece not in (plain / "delete" / "model.safetensors").read_bytes()}
    assert not [*files_with(tmp_path, pieces)]
    named = "fetch/model/model.safetensors"
    assert (f"the metadata store of Kubeflow still names {root}" in done.output) == (not encrypted)
    assert (named in done.output) == (not encrypted)
    assert not (outputs / named).exists()


def test_there_is_nothing_to_delete_from_where_no_model_is_registered(tmp_path: Path) -> None:
    left = tmp_path / "kfp" / ".features-4194305-killed"  # no process has a number that high
    left.mkdir(parents=True)
    mounted = ("platform.trust_config=mbd-trust", "platform.state_claim=mbd-state")  # on a cluster, and not here
    done = run("pipeline", "run", "delete", "--root", str(tmp_path / "kfp"), settings=mounted)
    assert isinstance(done.exception, StepFailedError) and "\x1b" not in done.exception.problem
    assert done.exception.exit_code == 1
    assert "fetch" in done.exception.problem
    assert "the log has no release of this model yet" in done.output
    assert not left.exists()


KFP = """02:39:20.227 - INFO - Running pipeline: \x1b[95m'mbd-train'\x1b[0m
----------------------------------------
02:39:20.243 - INFO - Executing task \x1b[96m'features'\x1b[0m
02:39:20.243 - INFO - Streamed logs:

    [KFP Executor 2026-11-19 02:39:20,529 INFO]: Got executor_input:
    {
        "inputs": {"parameterValues": {}}
    }
    mosi: regression, text 12, audio 6

      split   rows
      train    400
    warning: 3 rows were left out
02:39:25.641 - INFO - Task \x1b[96m'features'\x1b[0m finished with status \x1b[92mSUCCESS\x1b[0m
02:39:25.642 - INFO - Task \x1b[96m'features'\x1b[0m outputs:
    Output: ['audio']
02:39:25.655 - INFO - Executing task \x1b[96m'train'\x1b[0m
    Traceback (most recent call last):

    mbd.errors.DataError: there is no such file
02:39:25.700 - ERROR - Task \x1b[96m'train'\x1b[0m finished with status \x1b[91mFAILURE\x1b[0m
02:39:25.800 - INFO - Executing task \x1b[96m'register'\x1b[0m
            [KFP Executor 2026-11-19 02:39:25,850 INFO]: Got executor_input:
            {
                "inputs": {}
            }
            error: there is no such model
02:39:25.900 - ERROR - Task \x1b[96m'register'\x1b[0m finished with status \x1b[91mFAILURE\x1b[0m
"""


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_people_see_tasks_headlines_warnings_and_failures_and_the_log_has_everything(size: int) -> None:
    log, shown = io.StringIO(), io.StringIO()
    output = TaskOutput(log, shown)
    for start in range(0, len(KFP), size):
        output.write(KFP[start : start + size])
    first, _, failed = shown.getvalue().partition("== train\n")
    assert first == "== features\nmosi: regression, text 12, audio 6\nwarning: 3 rows were left out\n"
    failed, _, beside = failed.partition("== register\n")
    assert failed.endswith("mbd.errors.DataError: there is no such file\n")
    assert beside == "error: there is no such model\n"
    assert len(log.getvalue().splitlines()) == len(KFP.splitlines()) and "\x1b" not in log.getvalue()
