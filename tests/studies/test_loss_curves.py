"""The study of losses over epochs."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from mbd.tensors import Array
from studies.layout import Layout
from studies.loss_curves import deviation_over_seeds, study
from tests.studies.cells import finding, verdict, written

EPOCHS = np.arange(12)
FALLING = 2 * 0.8**EPOCHS + 0.1
BUMPY = FALLING + np.where(EPOCHS % 4 > 1, 1.5, 0)


def with_histories(layout: Layout, folder: Path, task: Array, spreads: dict[str, float]) -> Layout:
    """Write trainings whose task loss is `task` and whose losses differ between seeds by these shares."""
    terms = ("task", "reconstruction", "property", "contrastive")
    for place, seed in enumerate(layout.plan.seeds):
        cell = folder / layout.plan.name / "models" / "mosi" / "joint" / f"seed-{seed}"
        cell.mkdir(parents=True)
        columns = [(task if term == "task" else FALLING) * (1 + place * spreads.get(term, 0.01)) for term in terms]
        lines = [f"{epoch},{','.join(f'{column[epoch]:.6f}' for column in columns)}" for epoch in EPOCHS]
        (cell / "history.csv").write_text("\n".join(["epoch," + ",".join(terms), *lines]) + "\n")
    return Layout(layout.plan, folder / layout.plan.name)


def test_the_same_cells_give_the_same_bytes(sentiment: Layout, tmp_path: Path) -> None:
    first, second = (written(study(sentiment), tmp_path / name) for name in "ab")
    assert first == second


def test_a_loss_that_jumps_is_not_stable(sentiment: Layout, tmp_path: Path) -> None:
    steady = study(with_histories(sentiment, tmp_path / "a", FALLING, {}))
    assert verdict(steady, "stable manner") == "holds"
    jumping = study(with_histories(sentiment, tmp_path / "b", BUMPY, {}))
    assert verdict(jumping, "stable manner") == "does not hold"
    assert "Not steady by that measure: L_task." in finding(jumping, "stable manner").reason
    rising = study(with_histories(sentiment, tmp_path / "c", FALLING[::-1], {}))
    assert verdict(rising, "stable manner") == "does not hold"


@pytest.mark.parametrize(("share", "expected"), [(0.001, "holds"), (0.2, "does not hold")])
def test_variance_is_that_over_seeds(share: float, expected: str, sentiment: Layout, tmp_path: Path) -> None:
    found = study(with_histories(sentiment, tmp_path, FALLING, {"property": share}))
    assert verdict(found, "low variance") == expected
    deviation = 100 * share / (1 + share)
    assert f"L_pe {deviation:.1f} %" in finding(found, "low variance").reason


def test_the_table_has_first_and_last_epoch(sentiment: Layout, tmp_path: Path) -> None:
    rows = study(with_histories(sentiment, tmp_path, FALLING, {})).tables[0].rows
    task = {str(row[0]): row for row in rows}["L_task"]
    assert task[1].mean == pytest.approx(FALLING[0] * 1.01, abs=1e-5)  # type: ignore[union-attr]
    assert task[2].mean == pytest.approx(FALLING[-1] * 1.01, abs=1e-5)  # type: ignore[union-attr]
    assert task[4].mean == pytest.approx(-1)  # type: ignore[union-attr]


def test_one_seed_has_no_variance(talks: Layout) -> None:
    found = study(talks)
    assert verdict(found, "low variance") == "not comparable"
    assert all(row[-1] is None for row in found.tables[0].rows)


def test_seeds_that_ended_at_different_epochs(sentiment: Layout, tmp_path: Path) -> None:
    layout = with_histories(sentiment, tmp_path, FALLING, {})
    file = next(iter(layout.by_seed(layout.models("mosi", "joint")).values())) / "history.csv"
    shutil.copy(file, tmp_path / "kept.csv")
    file.write_text("\n".join(file.read_text().splitlines()[:8]) + "\n")
    assert verdict(study(layout), "stable manner") == "holds"
    histories = [{"task": FALLING[:7]}, {"task": FALLING}]
    assert deviation_over_seeds(histories, "task") == pytest.approx(0)
