"""The report of a certificate says what the certificate says, in plain words."""

from pathlib import Path

import pytest

from mbd.formats.predicate import Predicate
from mbd.formats.statement import WEIGHTS
from mbd.report.certificate import certificate_report
from tests.certificate.build import KINDS, ModelWorkspace, make_home


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    return make_home(tmp_path_factory.mktemp("home"))


def report(model_workspace: ModelWorkspace, folder: Path, kind: str) -> tuple[str, Predicate]:
    statement = model_workspace.certify(kind, folder / "bundle").statement
    return certificate_report(statement.predicate, statement.digests[WEIGHTS]), statement.predicate


@pytest.mark.parametrize(
    ("kind", "says", "does_not_say"),
    [
        ("surgery", ("Empirical: nothing is proven", "No tensor of the model exists for audio alone"), ("ε = 1",)),
        ("certified", ("**Certified.**", "ε = 1, δ = 1e-05", "The privacy budget", "its key is destroyed"), ()),
        ("exact", ("**Exact.**", "No tensor that is left has seen audio", "--reproduce"), ("privacy budget",)),
        ("subjects", ("the recordings of 1 subject in audio", "No attack"), ("exists for audio alone",)),
    ],
)
def test_each_kind_is_told_for_what_it_is(
    model_workspace: ModelWorkspace, tmp_path: Path, kind: str, says: tuple[str, ...], does_not_say: tuple[str, ...]
) -> None:
    text, predicate = report(model_workspace, tmp_path, kind)
    assert all(part in text for part in says)
    assert not any(part in text for part in does_not_say)
    assert all(sentence in text for sentence in (*predicate.guarantee.assumptions, *predicate.disclosures))
    assert text == (tmp_path / "bundle" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"subjects"}))
def test_every_attack_stands_beside_the_reference(model_workspace: ModelWorkspace, tmp_path: Path, kind: str) -> None:
    text, predicate = report(model_workspace, tmp_path, kind)
    leakage = predicate.evidence.leakage
    assert leakage is not None
    for attack in leakage.attacks:
        assert attack.after is not None
        assert attack.reference is not None
        line = next(line for line in text.splitlines() if line.startswith(f"| {attack.attack} on {attack.modality}"))
        assert f"{attack.after.value:.3f} [" in line
        assert f"{attack.reference.value:.3f} [" in line
        assert line.endswith(f"| {attack.decision} |")
