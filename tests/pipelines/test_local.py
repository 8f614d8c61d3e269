"""Pipelines on this machine, each step a process: the same bytes as on the command line, and no false success."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mbd.cli import group
from mbd.files import path_digest, read_json
from pipelines.local import StepFailedError
from tests.pipelines.small import as_options, only_run

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _clone(_empty_working_folder: Path) -> None:
    """Let the working folder be the top of a clone, as far as `mbd pipeline` needs one."""
    for name in ("pipelines", "components"):
        Path(name).symlink_to(REPOSITORY / name)


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


def test_a_whole_deletion_has_the_bytes_of_the_command_line_and_a_certificate_that_verifies(tmp_path: Path) -> None:
    done = run("pipeline", "run", "delete", "--root", str(tmp_path / "kfp"))
    assert done.exit_code == 0, (done.output[-3000:], done.exception)
    outputs = only_run(tmp_path / "kfp")
    by_command_line(tmp_path / "plain")
    for step, artifact in {
        "train": "model",
        "reference": "reference",
        "delete": "deleted",
        "attack": "leakage",
    }.items():
        assert path_digest(outputs / step / artifact) == path_digest(tmp_path / "plain" / step), step
    certificate = read_json(outputs / "publish" / "published" / "receipt.json")["certificate"]
    verified = run("verify", f"file://build/store/certificates/{certificate}")
    assert verified.exit_code == 0, verified.output
    assert "VERIFIED" in verified.output
    assert not (outputs / "purge").exists()  # nobody asked for it
    assert not [path for path in (tmp_path / "kfp").iterdir() if path != outputs]  # no feature data is left


def test_a_step_that_fails_fails_the_run_with_its_reason(tmp_path: Path) -> None:
    left = tmp_path / "kfp" / ".features-4194305-killed"  # no process has a number that high
    left.mkdir(parents=True)
    settings = ("features.source.kind=npz", "features.source.path=none.npz")
    done = run("pipeline", "run", "delete", "--root", str(tmp_path / "kfp"), settings=settings)
    assert isinstance(done.exception, StepFailedError)
    assert done.exception.exit_code == 1
    assert "features" in done.exception.problem
    assert "none.npz" in done.output
    assert "delete: FAILED" in done.output  # whatever happened, `notify` runs
    assert not left.exists()
