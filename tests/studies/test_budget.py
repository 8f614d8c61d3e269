"""Budgets of several releases, by theory and by sampling."""

from pathlib import Path

import pytest

from mbd.privacy.gaussian import classical_sigma, delta_of, epsilon_by_paper
from studies import budget, printed
from studies.layout import Layout
from studies.montecarlo import Composed
from studies.outcome import Finding
from studies.plan import StudyBudget, StudyPlan
from tests.studies.cells import small_plan
from tests.studies.deletions import SETTINGS, about, bytes_of

DELTA = 1e-3


@pytest.fixture(scope="module")
def plan() -> StudyPlan:
    few = StudyBudget(samples=100_000, deletions=3, epsilons=(0.5, 2.0))
    settings = small_plan().settings | SETTINGS
    return small_plan().model_copy(update={"budget": few, "settings": settings})


@pytest.fixture(scope="module")
def composed(plan: StudyPlan) -> dict[float, Composed]:
    return {epsilon: budget.compose(epsilon, DELTA, plan) for epsilon in plan.budget.epsilons}


def test_budgets_add_up_and_sampling_agrees_with_the_exact_formula(composed: dict[float, Composed]) -> None:
    for found in composed.values():
        assert found.rho == pytest.approx([found.rho[0] * k for k in (1, 2, 3)])
        assert found.paper == pytest.approx([epsilon_by_paper(rho, DELTA) for rho in found.rho])
        assert found.sampled == pytest.approx(found.gaussian, rel=0.1)


def test_the_study_is_the_same_twice(plan: StudyPlan, tmp_path: Path) -> None:
    layout = Layout(plan, tmp_path)
    one, two = (bytes_of(budget.study(layout), tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert one["budget.png"].startswith(b"\x89PNG")
    assert len(budget.study(layout).tables[0].rows) == 6


def test_every_epsilon_of_plan_and_paper_is_looked_at(plan: StudyPlan) -> None:
    more = plan.model_copy(update={"deletions": ("surgery", "printed-1")})
    assert budget.asked(more) == [0.5, 1.0, 2.0, 4.0]


def findings(composed: dict[float, Composed]) -> list[Finding]:
    return budget.findings(composed, {epsilon: budget.achieved(epsilon, DELTA) for epsilon in composed}, DELTA)


def test_the_conversion_is_valid_and_loose(composed: dict[float, Composed]) -> None:
    found = findings(composed)
    assert about(found, "valid conversion").verdict == "holds"
    assert about(found, "tighter").verdict == "holds"
    assert about(found, "from below").verdict == "holds"


def test_a_conversion_below_the_exact_epsilon_would_be_found_out() -> None:
    three = (0.1, 0.2, 0.3)
    wrong = Composed(
        rho=three,
        paper=(1.0, 2.1, 3.2),
        rdp=three,
        gaussian=(1.5, 2.0, 3.0),
        sampled=three,
        sampled_quantile=(2.0, 3.0, 4.0),
    )
    found = findings({1.0: wrong})
    for words in ("valid conversion", "tighter", "from below"):
        assert about(found, words).verdict == "does not hold"
    assert "in 1 of 3 cases" in about(found, "valid conversion").reason


def test_the_papers_sigma_breaks_where_it_is_said_to() -> None:
    limit = budget.breaks_at(DELTA)
    assert limit
    for epsilon, enough in ((0.99 * limit, True), (1.01 * limit, False)):
        assert (delta_of(epsilon, classical_sigma(epsilon, DELTA, 1.0), 1.0) <= DELTA) is enough


def test_a_sigma_that_never_breaks_would_be_found_to_hold(
    composed: dict[float, Composed], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert about(findings(composed), "for any ε").verdict == "does not hold"
    monkeypatch.setattr(budget, "achieved", lambda *_: 0.0)
    assert budget.breaks_at(DELTA) is None
    assert about(findings(composed), "for any ε").verdict == "holds"


def test_the_printed_epsilons_cannot_differ(composed: dict[float, Composed], monkeypatch: pytest.MonkeyPatch) -> None:
    assert about(findings(composed), "sensitivity scan").verdict == "does not hold"
    monkeypatch.setattr(printed, "SENSITIVITY", [row._replace(epsilon=0.5) for row in printed.SENSITIVITY])
    assert about(findings(composed), "sensitivity scan").verdict == "holds"
