"""Records of steps and certificates, converted to samples."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.cli import group
from mbd.formats.layout import object_name
from mbd.formats.leakage import AttackRecord, Interval, LeakageRecord
from mbd.monitoring import metrics, record_samples
from mbd.monitoring.samples import Sample, Samples
from mbd.records import now
from tests.monitoring.golden_store import GoldenStore, golden_leakage
from tests.monitoring.page import ExporterPage


def leakage() -> LeakageRecord:
    return golden_leakage("surgery")


def attack(name: str, low: float, **changes: Any) -> AttackRecord:
    interval = Interval(value=low + 0.1, low=low, high=low + 0.2)
    record = AttackRecord(
        modality="audio",
        id=f"{name}.accuracy",
        chance=0.5,
        before=None,
        after=interval,
        reference=interval,
        difference=interval,
        tolerance=0.03,
        detectable=0.2,
        blind=False,
        decision="passed",
        reason="",
    )
    return record.model_copy(update=changes)


def page_of(made: Iterable[Sample]) -> ExporterPage:
    samples = Samples()
    samples.update(made)
    return ExporterPage(samples.text())


def page_of_step(folder: Path, step: str, metrics: Any = None) -> ExporterPage:
    """Return what the output folder of a step gives."""
    record = {"step": step, "duration_seconds": 1.5, "phases_seconds": {"cut": 0.25}}
    (folder / "step.json").write_text(json.dumps(record))
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return page_of(record_samples.read_output(folder, "m")[1])


def test_each_attack_is_reported_by_its_first_measure_on_each_model() -> None:
    page = page_of(record_samples.leakage_samples(leakage(), "sentiment"))
    output = page[metrics.LEAKAGE]
    first = {one.attack: one for one in reversed(leakage().attacks) if one.variant == "as released"}
    assert {name for _, _, name, _ in output} == set(first)
    for (model, modality, name, role), value in output.items():
        assert (model, modality) == ("sentiment", "audio")
        assert value == getattr(first[name], role).value
    assert {role for *_, role in output} == {"before", "after", "reference"}


def test_only_attacks_on_the_requested_modality_are_reported() -> None:
    assert not page_of(record_samples.leakage_samples(leakage(), "sentiment", "visual"))[metrics.LEAKAGE]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1, max_size=6))
def test_the_margin_is_negative_exactly_when_the_gate_is_closed(lows: list[tuple[float, float]]) -> None:
    attacks = [
        attack("whitebox", low, after=Interval(value=1, low=reached, high=1), variant=("as released", "int8")[i % 2])
        for i, (low, reached) in enumerate(lows)
    ]
    record = leakage().model_copy(update={"attacks": tuple(attacks)})
    (margin,) = page_of(record_samples.leakage_samples(record, "m"))[metrics.GATE_ROOM].values()
    assert (margin < 0) == any(one.beyond[0] > 0.03 for one in attacks)


def test_an_informational_attack_has_no_margin_to_the_gate() -> None:
    record = leakage().model_copy(update={"attacks": (attack("diff", 0.9, decision="informational"),)})
    page = page_of(record_samples.leakage_samples(record, "m"))
    assert page[metrics.LEAKAGE]
    assert not page[metrics.GATE_ROOM]


def test_utility_is_reported_as_ratios_by_regime() -> None:
    output = page_of(record_samples.utility_samples(leakage(), "m"))[metrics.UTILITY]
    for one in leakage().utility:
        assert output["m", one.metric, one.regime, "after"] == pytest.approx(
            one.after.value / (1 if one.metric == "corr" else 100)
        )
    assert all(-1 <= value <= 1 for value in output.values())


def test_an_evaluation_reports_its_first_model_under_every_regime(tmp_path: Path) -> None:
    def result(method: str, regime: str, corrupted: bool, **means: float) -> dict[str, Any]:
        means_only = {name: {"mean": mean, "deviation": None} for name, mean in means.items()}
        return {"method": method, "regime": regime, "corrupted": corrupted, "metrics": means_only}

    evaluation = {
        "model": "deleted",
        "results": [
            result("deleted", "full", False, acc2=80.0, corr=0.7, mae=0.9),
            result("deleted", "η=0.1", True, acc2=75.0),
            result("ridge by pattern", "full", False, acc2=70.0),
        ],
    }
    page = page_of_step(tmp_path, "evaluate", evaluation)
    assert page[metrics.EVALUATION] == {
        ("m", "acc2", "full", "false"): 0.8,
        ("m", "corr", "full", "false"): 0.7,
        ("m", "acc2", "η=0.1", "true"): 0.75,
    }
    assert page[metrics.EVALUATION_ERROR] == {("m", "full", "false"): 0.9}


def test_a_step_reports_its_duration_and_phases(tmp_path: Path) -> None:
    page = page_of_step(tmp_path, "train")
    assert page[metrics.STEP_DURATION] == {("train", "m"): 1.5}
    assert page[metrics.STEP_PHASE] == {("train", "m", "cut"): 0.25}


def test_a_purge_scan_reports_every_place_with_zero_for_clean_ones() -> None:
    scan = {"searched": ["cache", "bucket", "bucket"], "resurrected": ["bucket"] * 3, "blind": ["cache"]}
    page = page_of(record_samples.purge_scan_samples(now(), tombstones=5, **scan))
    assert page[metrics.RESURRECTED] == {("cache",): 0, ("bucket",): 3}
    assert page[metrics.BLIND] == {("cache",): 1, ("bucket",): 0}
    assert page[metrics.TOMBSTONES] == {(): 5}


def test_mbd_purge_scan_delivers_its_findings_as_metrics(
    lifecycle_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lifecycle_store.store.create(object_name("a" * 64), b"something else")
    settings = ["--set=monitoring.mode=textfile", f"--set=monitoring.textfile={tmp_path}/metrics"]
    settings.append(f"--set=certificate.trust={lifecycle_store.trust_file}")
    CliRunner().invoke(group, ["purge", "scan", "--store", lifecycle_store.url, *settings])
    assert [file.name for file in (tmp_path / "metrics").iterdir()] == ["mbd-purge-scan-sentiment.prom"]
    page = ExporterPage((tmp_path / "metrics" / "mbd-purge-scan-sentiment.prom").read_text())
    assert page[metrics.RESURRECTED]
    assert set(page[metrics.RESURRECTED].values()) == {0}
    assert page[metrics.PURGE_SCAN]
