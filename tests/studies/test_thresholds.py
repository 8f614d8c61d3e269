"""How many parameters pass the paper's thresholds."""

from pathlib import Path

import numpy as np
import pytest

from mbd.deletion.calibration import JointCalibration
from mbd.deletion.saliency import saliency
from mbd.params.deletion import SurgerySettings
from studies import thresholds
from studies.calibrated import calibrated, part_of
from studies.layout import Layout
from studies.thresholds import DIMENSION, ETAS, MEAN, ROW, SUM, Thresholds


@pytest.fixture(scope="module")
def model(revoked: Layout) -> JointCalibration:
    return calibrated(revoked.models("mosi", "joint") / "seed-0", revoked.features("mosi"))


@pytest.fixture(scope="module")
def found(revoked: Layout) -> Thresholds:
    return thresholds.read(revoked.thresholds() / "seed-0")


def test_counts_are_those_of_the_scaled_saliencies(model: JointCalibration, found: Thresholds) -> None:
    s = np.concatenate([values.ravel() for values in saliency(model, ("audio",)).values.values()])
    factors = {ROW: 1.0, DIMENSION: 1 / 6, MEAN: 1 / 64, SUM: 64.0}
    for row in found.passing:
        assert row.salient_enough == int((s * factors[row.scale] >= row.eta).sum())
    assert {(row.scale, row.eta) for row in found.passing} == {(scale, eta) for scale in factors for eta in ETAS}
    assert found.parameters == s.size
    assert found.limit == int(0.03 * s.size)


def test_only_the_generator_and_the_property_embedding_are_salient(found: Thresholds) -> None:
    salient = {part.name for part in found.parts if part.salient}
    assert salient == {"G_audio", "P^audio"}
    assert sum(part.share_of_saliency for part in found.parts) == pytest.approx(1)
    assert sum(part.parameters for part in found.parts) == found.parameters
    assert all(row.outside == 0 for row in found.passing)


def test_a_strict_importance_threshold_binds(model: JointCalibration, found: Thresholds) -> None:
    strict = thresholds.measure(model, "audio", SurgerySettings(importance_threshold=1e-6))
    assert strict.above_importance > found.above_importance
    assert sum(row.candidates for row in strict.passing) < sum(row.candidates for row in found.passing)


def test_a_cell_may_be_written_again(found: Thresholds, tmp_path: Path) -> None:
    for _ in range(2):
        thresholds.write(found, tmp_path / "out")
    assert thresholds.read(tmp_path / "out") == found


def test_the_command_reads_plan_and_parameters(
    revoked: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: Thresholds
) -> None:
    other = Layout(revoked.plan, tmp_path)
    for name in ("models", "features"):
        (tmp_path / name).symlink_to(revoked.root / name)
    monkeypatch.setattr(thresholds, "read_plan", lambda: revoked.plan)
    monkeypatch.setattr(Layout, "of", lambda _: other)
    thresholds.main("0")
    assert thresholds.read(other.thresholds() / "seed-0") == found


def test_parts_have_the_papers_names_whatever_the_modality_is_called() -> None:
    names = ("face", "face.left")
    assert part_of("modality.face.left.generator.out.bias", names) == "G_face.left"
    assert part_of("modality.face.property", names) == "P^face"
    assert part_of("modality.face.decomposition.out.weight", names) == "DE_face"
    assert (part_of("fusion.out.weight", names), part_of("head.bias", names)) == ("fusion F", "head C")
