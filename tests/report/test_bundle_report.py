"""`report.md` of a bundle has everything that its certificate states."""

from pathlib import Path

import pytest

from mbd.formats.files import WEIGHTS
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.formats.predicate import Predicate
from mbd.report.page.certificate import unsigned_page
from mbd.report.page.markdown import to_markdown
from mbd.report.page.words import measure_words
from tests.certificate.build import KINDS, ModelWorkspace, make_home


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    return make_home(tmp_path_factory.mktemp("home"))


def report(model_workspace: ModelWorkspace, folder: Path, kind: str) -> tuple[str, Predicate]:
    statement = model_workspace.certify(kind, folder / "bundle").statement
    leakage = leakage_in(folder / "bundle")
    return to_markdown(unsigned_page(statement.predicate, statement.digests[WEIGHTS], leakage)), statement.predicate


def leakage_in(bundle: Path) -> LeakageRecord | None:
    return LeakageRecord.read(bundle / LEAKAGE, "leakage record") if (bundle / LEAKAGE).exists() else None


@pytest.mark.parametrize(
    ("kind", "says", "does_not_say"),
    [
        ("surgery", ("Empirical: nothing is proven", "No tensor of the model belongs to audio alone"), ("ε = 1",)),
        ("certified", ("**Certified.**", "ε = 1, δ = 1e-05", "Privacy budget", "key: destroyed"), ()),
        ("exact", ("**Exact.**", "No remaining tensor saw audio", "--reproduce"), ("Privacy budget",)),
        ("subjects", ("audio of 1 person", "No attacks were run"), ("belongs to audio alone",)),
    ],
)
def test_the_report_states_the_kind_of_guarantee(
    model_workspace: ModelWorkspace, tmp_path: Path, kind: str, says: tuple[str, ...], does_not_say: tuple[str, ...]
) -> None:
    text, predicate = report(model_workspace, tmp_path, kind)
    assert all(part in text for part in says)
    assert not any(part in text for part in does_not_say)
    assert all(sentence in text for sentence in (*predicate.guarantee.assumptions, *predicate.disclosures))
    assert text == (tmp_path / "bundle" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"subjects"}))
def test_every_attack_is_shown_beside_the_reference(model_workspace: ModelWorkspace, tmp_path: Path, kind: str) -> None:
    text, _ = report(model_workspace, tmp_path, kind)
    leakage = leakage_in(tmp_path / "bundle")
    assert leakage is not None
    for attack in leakage.attacks:
        assert attack.after is not None
        assert attack.reference is not None
        words = measure_words(attack.id, attack.modality)
        line = next(line for line in text.splitlines() if line.startswith(f"| {words} |"))
        assert f"{attack.after.value:.3f} [" in line
        assert f"{attack.reference.value:.3f} [" in line
        assert line.endswith(f"| {attack.decision} |")
