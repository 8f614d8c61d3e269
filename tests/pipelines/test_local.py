"""Pipelines on this machine, each step a process: the same bytes as on the command line, and no false success."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mbd.cli import group
from mbd.files import read_json
from mbd.shredding.keys import KeyDestroyedError
from pipelines.local import StepFailedError
from tests.digests import path_digest
from tests.pipelines.small import as_options, only_run
from tests.shredding.build import files_with, windows

MODELS = {"train": "model", "reference": "reference", "delete": "deleted"}
"""step → its artifact"""


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
        done = run(command, *placed, "--out", str(folder / name))
        assert done.exit_code == 0, (name, done.output, done.exception)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command line makes of the same parameters."""
    folder = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        by_command_line(folder)
    return folder


@pytest.mark.long
def test_a_whole_deletion_has_the_bytes_of_the_command_line_and_a_certificate_that_verifies(
    plain: Path, tmp_path: Path
) -> None:
    done = run("pipeline", "run", "delete", "--root", str(tmp_path / "kfp"))
    assert done.exit_code == 0, (done.output[-3000:], done.exception)
    outputs = only_run(tmp_path / "kfp")
    for step, artifact in {**MODELS, "attack": "leakage"}.items():
        assert path_digest(outputs / step / artifact) == path_digest(plain / step), step
    *_, model, audit, published, store, following = done.output.splitlines()
    assert store.split() == ["store:", "file://build/store"]
    assert following.startswith(f"next: mbd verify {outputs / 'publish' / 'published'} --model ")
    assert model.split() == ["model:", str(outputs / "delete" / "deleted")]
    assert audit.split() == ["audit:", str(outputs / "attack" / "leakage")]
    assert published.split() == ["certificate:", str(outputs / "publish" / "published")]
    assert "reaudit_days" not in done.output  # parameters at their defaults are not repeated for every task
    certificate = read_json(outputs / "publish" / "published" / "receipt.json")["certificate"]
    verified = run("verify", f"file://build/store/certificates/{certificate}", "--trust", "build/keys/trust.json")
    assert verified.exit_code == 0, verified.output
    assert "VERIFIED" in verified.output
    assert [file.name for file in (outputs / "purge" / "proof").iterdir()] == ["report.md"]  # it was not requested
    assert not [path for path in (tmp_path / "kfp").iterdir() if path != outputs]  # no feature data is left


@pytest.mark.long
def test_with_shredding_no_artifact_is_plain_and_none_can_be_read_when_the_key_is_gone(
    plain: Path, tmp_path: Path
) -> None:
    root, settings = tmp_path / "kfp", ("shredding.enabled=true", f"shredding.temporary={tmp_path}/temporary")
    assert run("shred", "keys").exit_code == 0
    done = run("pipeline", "run", "delete", "--root", str(root), settings=settings)
    assert done.exit_code == 0, (done.output[-3000:], done.exception)
    outputs = only_run(root)
    for step, artifact in MODELS.items():
        assert not list((outputs / step).rglob("*.safetensors")), step
        opened = run("shred", "decrypt", str(outputs / step / artifact), "--out", f"opened/{step}")
        assert opened.exit_code == 0, opened.output
        assert path_digest(Path("opened", step)) == path_digest(plain / step), step
    assert path_digest(outputs / "attack" / "leakage") == path_digest(plain / "attack")
    shutil.rmtree("opened")

    kept = [(plain / step / "model.safetensors").read_bytes() for step in ("delete", "reference")]
    old = {piece for piece in windows(plain / "train" / "model.safetensors") if not any(piece in k for k in kept)}
    audio = {piece for file in (plain / "features").rglob("audio.safetensors") for piece in windows(file)}
    assert len(old) > 20 and len(audio) > 20
    assert [*files_with(tmp_path, old | audio), *files_with(Path(), old | audio)] == []
    assert not [path for path in root.iterdir() if path != outputs]

    destroyed = run("shred", "destroy", "--modality", "audio", "--reason", "request 17", "--yes")
    assert destroyed.output.count("DESTROYED") == 2, destroyed.output  # of features and of models
    gone = run("shred", "decrypt", str(outputs / "train" / "model"), "--out", "opened/train")
    assert isinstance(gone.exception, KeyDestroyedError)
    assert run("shred", "decrypt", str(outputs / "delete" / "deleted"), "--out", "opened/delete").exit_code == 0
    again = run("pipeline", "run", "delete", "--root", str(tmp_path / "again"), settings=settings)
    assert isinstance(again.exception, StepFailedError)
    assert "the key of audio (features of synthetic-mosi) was destroyed" in again.output
    named = r"file: \S+/audio\.safetensors\s+key: key\s+value: [0-9a-f]{64}\s+hint: leave the revoked modality out"
    assert re.search(named, again.output), again.output
    assert list(files_with(tmp_path, old | audio)) == []


NETWORKS = (
    "model.backbone=lattice",
    "model.lattice.member=mbd.model.examples.late_fusion:LateFusion",
    "model.lattice.options={hidden: 4}",
    "model.lattice.folds=2",
    "training.epochs=1",
)


@pytest.mark.long
def test_tasks_side_by_side_train_the_networks_of_a_lattice_with_the_bytes_of_one_training(
    plain: Path, tmp_path: Path
) -> None:
    given = ("--root", str(tmp_path / "kfp"), "--modality", "audio", "--argument", "seeds=[0]")
    done = run("pipeline", "run", "train", *given, settings=(*NETWORKS, "platform.training_tasks=2"))
    assert done.exit_code == 0, (done.output[-3000:], done.exception)
    (seed,) = only_run(tmp_path / "kfp").glob("for-loop-*")
    parts = list(seed.glob("for-loop-*/train-part/part"))
    assert {len(read_json(part / "model.json")["tensors"]) > 0 for part in parts} == {True}
    assert len(parts) == 2
    for name, without in {"model": (), "reference": ("--without", "audio")}.items():
        out = ("--features", str(plain / "features"), "--out", str(tmp_path / name))
        assert run("train", *out, *without, settings=NETWORKS).exit_code == 0
        (made,) = seed.glob(f"*/{name}")
        assert path_digest(made) == path_digest(tmp_path / name), name


def test_a_step_that_fails_fails_the_run_with_its_reason(tmp_path: Path) -> None:
    left = tmp_path / "kfp" / ".features-4194305-killed"  # no process has a number that high
    left.mkdir(parents=True)
    settings = ("features.source.kind=npz", "features.source.path=none.npz")
    done = run("pipeline", "run", "delete", "--root", str(tmp_path / "kfp"), settings=settings)
    assert isinstance(done.exception, StepFailedError)
    assert done.exception.exit_code == 1
    assert "features" in done.exception.problem
    assert "none.npz" in done.output
    assert "delete: failed (Kubeflow: FAILED" in done.output  # whatever happened, `notify` runs
    assert not left.exists()
