"""Figures: the same bytes for the same numbers, nothing of the day or the machine inside, and any shape of input."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.evaluation.regimes import evaluate_predictor, plan_evaluation
from mbd.evaluation.results import EvaluatedMethod, Results
from mbd.evaluation.ridge import ImputedRidge, PatternRidge
from mbd.params.learning import EvaluationSettings
from mbd.report.evaluation import read_history
from mbd.report.figures import (
    loss_curves,
    metric_by_pattern,
    metric_over_rates,
)
from tests.features.build import small_rows


def chunks(png: bytes) -> Iterator[bytes]:
    """Yield the names of a PNG's chunks."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    place = 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        yield png[place + 4 : place + 8]
        place += 12 + length


def rates() -> bytes:
    return metric_over_rates(results())


def patterns() -> bytes:
    return metric_by_pattern(results())


def results() -> Results:
    bench = plan_evaluation(small_rows("test", 30), "regression", EvaluationSettings(missing_rates=(0.2, 0.5)))
    runs = {str(k): evaluate_predictor(PatternRidge(small_rows("t" * k, 30), 0).predict, bench) for k in (1, 2)}
    mean = ImputedRidge.beside(PatternRidge(small_rows("train", 30), 0), with_mean=True)
    methods = (
        EvaluatedMethod("ours", runs),
        EvaluatedMethod("mean", {"": evaluate_predictor(mean.predict, bench)}, baseline=True),
    )
    return Results(bench, methods)


def losses() -> bytes:
    epochs = np.arange(4.0)
    return loss_curves([{"epoch": epochs[:n], "total": epochs[:n] + n, "task": epochs[:n] ** 2} for n in (3, 4)], "x")


@pytest.mark.parametrize("draw", [rates, patterns, losses])
def test_a_figure_is_the_same_twice_and_carries_no_date(draw: Callable[[], bytes]) -> None:
    png = draw()
    assert png == draw()
    assert set(chunks(png)) <= {b"IHDR", b"pHYs", b"IDAT", b"IEND"}
    width, height = struct.unpack(">II", png[16:24])
    assert min(width, height) > 300


def test_a_history_is_read_by_column(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    file.write_text("epoch,total,valid_mae\n0,2.5,\n1,1.5,0.7\n")
    history = read_history(file)
    assert history["total"].tolist() == [2.5, 1.5]
    assert np.isnan(history["valid_mae"][0])


@pytest.mark.parametrize("text", ["", "epoch,total\n", "total\n1\n", "epoch,total\n0,much\n"])
def test_a_damaged_history_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "history.csv").write_text(text)
    with pytest.raises(DataError, match="training history"):
        read_history(tmp_path / "history.csv")
