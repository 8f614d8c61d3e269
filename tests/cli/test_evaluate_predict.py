"""`mbd evaluate` and `mbd predict` as a person runs them."""

from pathlib import Path

from tests.command import run_mbd
from tests.evaluation.models import as_revoked, tiny_model
from tests.features.build import synthetic_set


def test_evaluate_prints_headlines_and_predict_refuses_what_was_revoked(tmp_path: Path) -> None:
    data = synthetic_set(tmp_path / "data")
    model = as_revoked(tiny_model(data, tmp_path / "silent", without=("audio",)), tmp_path / "model", "audio")
    shared = ("--features", str(data), "--model", str(model))
    done = run_mbd("evaluate", *shared, "--out", str(tmp_path / "out"), "--set", "evaluation.figures=false")
    assert done.exit_code == 0, done.stderr
    assert "64 test rows, regression, on text, visual" in done.stdout
    assert "ridge by pattern" in done.stdout
    assert "note: Not shown to any method" in done.stdout
    done = run_mbd("predict", *shared, "--available", "text, visual", "--out", str(tmp_path / "p.csv"))
    assert done.exit_code == 0, done.stderr
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 65
    refused = run_mbd("predict", *shared, "--available", "text,audio", "--out", str(tmp_path / "q.csv"))
    assert refused.exit_code == 2
    assert "audio was revoked" in refused.stderr
    assert not (tmp_path / "q.csv").exists()
