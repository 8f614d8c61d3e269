"""Certified deletions are compared with training again by folds of train rows, without test rows."""

from pathlib import Path

from click.testing import CliRunner

from studies import finetuning
from tests.features.build import synthetic_set

SMALL = ("model.joint.hidden=8", "model.joint.embedding=8", "model.joint.property_dim=8", "training.epochs=8")


def test_every_epsilon_and_number_of_epochs_has_a_line_beside_training_again(tmp_path: Path) -> None:
    folder = synthetic_set(tmp_path / "set")
    for file in (folder / "splits" / "test").iterdir():
        file.unlink()  # choices must not read it
    options = [word for setting in SMALL for word in ("--set", setting)]
    options += ["--epsilon", "1", "--epsilon", "8", "--epochs", "0", "--epochs", "8", "--folds", "2"]
    result = CliRunner().invoke(finetuning.main, [str(folder), *options], catch_exceptions=False)
    lines = [[cell.strip() for cell in line.split("|")] for line in result.output.splitlines() if line.startswith("|")]
    names = [f"ε = {epsilon}, {count} epochs" for epsilon in (1, 8) for count in (0, 8)]
    assert [line[1] for line in lines[2:]] == [finetuning.REFERENCE, *names]
    assert lines[0][-2] == "CPU time"
    assert lines[2][-2] == "1.00"
    none, all_of_them = (float(lines[row][-2]) for row in (3, 4))
    assert none < all_of_them
