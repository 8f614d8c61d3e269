"""The budget arithmetic is computed again: right numbers pass, and any number that is moved is noticed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.deletion.certified import accounting
from mbd.formats.guarantee import Guarantee, LineageBudget
from mbd.formats.predicate import Budget, Noise
from mbd.params import load_params
from mbd.privacy.gaussian import epsilon_by_gaussian
from mbd.verifier.arithmetic import check_budget
from mbd.verifier.verdict import Check


def certified(epsilon: float = 1.0, delta: float = 1e-5, radius: float = 1.0, spent: float = 0.0) -> Budget:
    """Return the budget that the method `certified` states at this operating point."""
    pytest.importorskip("dp_accounting", reason="the extra `privacy` states what the bare install checks")
    wanted = [f"deletion.epsilon={epsilon!r}", f"deletion.delta={delta!r}", f"deletion.certified.radius={radius!r}"]
    facts = accounting(load_params(None, wanted).deletion)
    rho = facts["rho"]
    return Budget(
        clip_radius=radius,
        sensitivity=2 * radius,
        reason="any two vectors of norm at most C",
        sigma=facts["sigma"],
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        computed={},
        lineage=LineageBudget(
            rho_before=spent,
            rho_after=spent + rho,
            epsilon_before=epsilon_by_gaussian(spent, delta),
            epsilon_after=epsilon_by_gaussian(spent + rho, delta),
            delta=delta,
            limit=1e6,
            entry="0" * 64,
        ),
    )


def checked(budget: Budget) -> Check:
    """Check a budget beside the guarantee with the same ε and δ."""
    guarantee = Guarantee(kind="certified", epsilon=budget.epsilon, delta=budget.delta, assumptions=("some",))
    return check_budget(guarantee, budget, None)


@settings(deadline=None, max_examples=20)
@given(
    st.floats(0.1, 20),
    st.sampled_from([1e-3, 1e-5, 1e-8]),
    st.floats(0.01, 100),
    st.sampled_from([0.0, 0.1, 3.0]),
)
def test_what_the_method_states_is_right(epsilon: float, delta: float, radius: float, spent: float) -> None:
    check = checked(certified(epsilon, delta, radius, spent))
    assert check.outcome == "passed", check.reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0.9}, "gives δ ="),
        ({"delta": 9e-6}, "gives δ ="),
        ({"sigma": 5.0}, "gives δ ="),
        ({"sensitivity": 4.0}, "gives δ ="),
        ({"clip_radius": 0.5}, "twice the clipping radius"),
        ({"rho": 0.01}, "ρ = Δ²/2σ²"),
    ],
)
def test_a_changed_number_is_found(change: dict[str, float], said: str) -> None:
    check = checked(certified().model_copy(update=change))
    assert check.outcome == "failed"
    assert said in check.reason


@pytest.mark.parametrize("field", ["rho_before", "rho_after", "epsilon_before", "epsilon_after", "delta"])
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_changed_number_of_the_lineage_is_found(field: str, factor: float) -> None:
    budget = certified(spent=0.2)
    changed = budget.lineage.model_copy(update={field: factor * getattr(budget.lineage, field)})
    assert checked(budget.model_copy(update={"lineage": changed})).outcome == "failed"


def test_a_lineage_beyond_its_limit_is_found() -> None:
    budget = certified()
    lineage = budget.lineage.model_copy(update={"limit": 0.5})
    assert "more than its limit" in checked(budget.model_copy(update={"lineage": lineage})).reason


def test_a_certified_deletion_states_its_budget() -> None:
    guarantee = Guarantee(kind="certified", epsilon=1.0, delta=1e-5, assumptions=("some",))
    assert "no charge is stated" in check_budget(guarantee, None, None).reason


def test_exact_and_empirical_deletions_have_no_noise_and_no_budget() -> None:
    empirical = Guarantee(kind="empirical")
    exact = Guarantee(kind="exact", epsilon=0.0, delta=0.0, assumptions=("some",))
    noise = Noise(sigma=1.0, commitment="0" * 64, stream="any", key="destroyed")
    assert check_budget(empirical, None, None).outcome == "passed"
    assert check_budget(empirical, certified(), None).outcome == "failed"
    assert check_budget(exact, None, None).outcome == "passed"
    assert check_budget(exact.model_copy(update={"epsilon": 0.1}), None, None).outcome == "failed"
    assert check_budget(exact, None, noise).outcome == "failed"
