"""The budget arithmetic is computed again: right numbers pass, and any number that is moved is noticed."""

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.certificate.verify.arithmetic import BudgetClaim, Spending, budget_check
from mbd.deletion.certified import accounting
from mbd.params import load_params
from mbd.privacy.gaussian import epsilon_by_gaussian


def certified(epsilon: float = 1.0, delta: float = 1e-5, radius: float = 1.0, spent: float = 0.0) -> BudgetClaim:
    """What the method `certified` states at this operating point."""
    pytest.importorskip("dp_accounting", reason="the extra `privacy` states what the bare install checks")
    wanted = [f"deletion.epsilon={epsilon!r}", f"deletion.delta={delta!r}", f"deletion.certified.radius={radius!r}"]
    facts = accounting(load_params(None, wanted).deletion)
    rho = facts["rho"]
    return BudgetClaim(
        kind="certified",
        epsilon=epsilon,
        delta=delta,
        sigma=facts["sigma"],
        sensitivity=2 * radius,
        radius=radius,
        rho=rho,
        spending=Spending(
            rho,
            spent,
            spent + rho,
            epsilon_by_gaussian(spent, delta),
            epsilon_by_gaussian(spent + rho, delta),
            delta,
            limit=1e6,
        ),
    )


@settings(deadline=None, max_examples=20)
@given(
    st.floats(0.1, 20),
    st.sampled_from([1e-3, 1e-5, 1e-8]),
    st.floats(0.01, 100),
    st.sampled_from([0.0, 0.1, 3.0]),
)
def test_what_the_method_states_is_right(epsilon: float, delta: float, radius: float, spent: float) -> None:
    check = budget_check(certified(epsilon, delta, radius, spent))
    assert check.outcome == "passed", check.reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0.9}, "gives δ ="),
        ({"delta": 9e-6}, "gives δ ="),
        ({"sigma": 5.0}, "gives δ ="),
        ({"sensitivity": 4.0}, "gives δ ="),
        ({"radius": 0.5}, "twice the clipping radius"),
        ({"radius": None}, "twice the clipping radius"),
        ({"rho": 0.01}, "ρ = Δ²/2σ²"),
        ({"sigma": None}, "needs ε, δ, σ, Δ and ρ"),
        ({"epsilon": float("inf")}, "positive and finite"),
        ({"delta": 1.0}, "positive and finite"),
        ({"spending": None}, "no charge is stated"),
    ],
)
def test_a_moved_number_is_noticed(change: dict[str, float | None], said: str) -> None:
    check = budget_check(replace(certified(), **change))  # type: ignore[arg-type]
    assert check.outcome == "failed"
    assert said in check.reason


@pytest.mark.parametrize("field", [f.name for f in fields(Spending) if f.name != "limit"])
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_moved_number_of_the_lineage_is_noticed(field: str, factor: float) -> None:
    claim = certified(spent=0.2)
    assert claim.spending is not None
    moved = replace(claim.spending, **{field: factor * getattr(claim.spending, field)})
    assert budget_check(replace(claim, spending=moved)).outcome == "failed"


def test_a_lineage_beyond_its_limit_is_noticed() -> None:
    claim = certified()
    assert claim.spending is not None
    check = budget_check(replace(claim, spending=replace(claim.spending, limit=0.5)))
    assert "more than its limit" in check.reason


def test_what_is_not_proven_states_no_epsilon() -> None:
    assert budget_check(BudgetClaim("empirical", None, None)).outcome == "passed"
    assert budget_check(BudgetClaim("empirical", 1.0, 1e-5)).outcome == "failed"
    assert budget_check(BudgetClaim("exact", 0.0, 0.0)).outcome == "passed"
    assert budget_check(BudgetClaim("exact", 0.1, 0.0)).outcome == "failed"
    assert budget_check(BudgetClaim("exact", 0.0, 0.0, sigma=1.0)).outcome == "failed"
