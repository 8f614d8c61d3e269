"""True increments beside both proxies."""

from pathlib import Path

import numpy as np
import pytest

from mbd.params import load_params
from mbd.params.deletion import SurgerySettings
from studies import increments
from studies.calibrated import calibrated
from studies.increments import ALL, CHOSEN, PROXIES, as_printed
from studies.layout import Layout
from studies.leave_one_out import PARAMETERS, spearman


def test_a_cell_holds_both_samples_and_their_facts(revoked: Layout) -> None:
    found = increments.read(revoked.increments("mosi") / "seed-0")
    for sample in (CHOSEN, ALL):
        assert found.facts[sample]["parameters"] == 40 == len(found.values[sample]["increment"])
        for name in PROXIES:
            values = found.values[sample]
            assert spearman(values[name], values["increment"]) == pytest.approx(found.facts[sample][name]["spearman"])
    assert found.facts[CHOSEN]["sampled_from"] == "edited parameters"


def test_algorithm_1_chooses_in_the_generator_only(revoked: Layout) -> None:
    lines = (revoked.increments("mosi") / "seed-0" / "increments.csv").read_text().splitlines()
    assert lines[0] == "sample,part,tensor,swiftprune,gauss_newton,increment"
    parts = {tuple(line.split(",")[:2]) for line in lines[1:]}
    assert {part for sample, part in parts if sample == CHOSEN} == {"G_audio"}
    assert {part for sample, part in parts if sample == ALL} >= {"G_audio", "fusion F"}


def test_it_chooses_the_least_important_of_all_that_is_salient() -> None:
    settings = as_printed(SurgerySettings(order="saliency", threshold="absolute", budget=0.02, cut=True))
    assert (settings.order, settings.threshold, settings.cut) == ("importance", "quantile", False)
    assert (settings.saliency_quantile, settings.importance_quantile, settings.budget) == (0.0, 1.0, 0.02)


def test_measured_again_it_is_the_same_to_the_byte(revoked: Layout, tmp_path: Path) -> None:
    model = calibrated(revoked.models("mosi", "joint") / "seed-0", revoked.features("mosi"))
    samples = increments.sampled(model, "audio", load_params(), 40)
    for _ in range(2):
        increments.write(samples, ("text", "audio", "visual"), tmp_path / "out")
    before = revoked.increments("mosi") / "seed-0"
    for file in before.iterdir():
        assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()


def test_the_command_measures_one_model(revoked: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = Layout(revoked.plan, tmp_path)
    for name in ("models", "features"):
        (tmp_path / name).symlink_to(revoked.root / name)
    monkeypatch.setattr(increments, "read_plan", lambda: revoked.plan)
    monkeypatch.setattr(Layout, "of", lambda _: other)
    increments.main("mosi", "0")
    found = increments.read(other.increments("mosi") / "seed-0")
    assert np.isfinite(found.values[ALL]["increment"]).sum() == PARAMETERS
