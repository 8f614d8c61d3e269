"""Which parameters are chosen: thresholds, budget, order, ties, and what is said if none qualifies."""

from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.deletion.selection import nothing_salient, select
from mbd.errors import UsageError
from mbd.params.deletion import SurgerySettings
from mbd.tensors import Array
from tests.refusals import refused

SHAPES = {"b.bias": (7,), "a.weight": (6, 11), "c.weight": (40, 3)}
SIZE = sum(int(np.prod(shape)) for shape in SHAPES.values())


def values(seed: int, levels: int) -> dict[str, Array]:
    """Numbers with many ties, zeros among them."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, levels, shape) / 4 for name, shape in SHAPES.items()}


def flat(found: dict[str, Array]) -> Array:
    return np.concatenate([found[name].ravel() for name in sorted(found)])


def chosen_mask(indices: dict[str, Array]) -> Array:
    masks = {name: np.zeros(shape, bool) for name, shape in SHAPES.items()}
    for name, positions in indices.items():
        masks[name].reshape(-1)[positions] = True
    return flat(masks)


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**16),
    levels=st.integers(2, 30),
    order=st.sampled_from(["saliency", "importance"]),
    threshold=st.sampled_from(["absolute", "quantile"]),
    eta=st.tuples(st.floats(0, 6), st.floats(0, 6)),
    quantiles=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    budget=st.floats(1 / SIZE + 1e-9, 0.05),
)
def test_the_selection_respects_thresholds_budget_and_order(
    seed: int,
    levels: int,
    order: str,
    threshold: str,
    eta: tuple[float, float],
    quantiles: tuple[float, float],
    budget: float,
) -> None:
    saliency, importance = values(seed, levels), values(seed + 1, levels)
    params = SurgerySettings.model_validate(
        {
            "order": order,
            "threshold": threshold,
            "budget": budget,
            "saliency_threshold": eta[0],
            "importance_threshold": eta[1],
            "saliency_quantile": quantiles[0],
            "importance_quantile": quantiles[1],
        }
    )
    s, importances = flat(saliency), flat(importance)
    try:
        found = select(saliency, importance, params)
    except UsageError:
        if threshold == "absolute":
            assert not ((s > 0) & (s >= eta[0]) & (importances <= eta[1])).any()
        return
    assert found.parameters == SIZE
    assert found.limit == floor(budget * SIZE)
    assert found.saliency_threshold is not None
    assert found.importance_threshold is not None
    qualified = (s > 0) & (s >= found.saliency_threshold) & (importances <= found.importance_threshold)
    if threshold == "absolute":
        assert (found.saliency_threshold, found.importance_threshold) == eta
    else:
        assert found.saliency_threshold == np.quantile(s[s > 0], quantiles[0])
    mask = chosen_mask(dict(found.indices))
    assert found.candidates == qualified.sum()
    assert found.chosen == mask.sum() == min(found.limit, qualified.sum())
    assert not (mask & ~qualified).any()
    # Nothing that was passed over would have come before anything that was taken.
    keys = np.lexsort((np.arange(SIZE), importances if order == "importance" else -s))
    expected = [q for q in keys if qualified[q]][: found.limit]
    assert np.flatnonzero(mask).tolist() == sorted(expected)
    for positions in found.indices.values():
        assert positions.dtype == np.int64
        assert (np.diff(positions) > 0).all()


def test_ties_go_by_name_and_then_by_position() -> None:
    equal = {name: np.ones(shape) for name, shape in SHAPES.items()}
    found = select(equal, equal, SurgerySettings(budget=0.05, threshold="quantile"))
    assert {name: positions.tolist() for name, positions in found.indices.items()} == {
        "a.weight": list(range(floor(0.05 * SIZE)))
    }


def test_an_empty_set_of_candidates_explains_the_scale_and_proposes_quantiles() -> None:
    rng = np.random.default_rng(0)
    saliency = {name: rng.uniform(0, 1e-4, shape) for name, shape in SHAPES.items()}
    importance = {name: rng.uniform(0, 1e-2, shape) for name, shape in SHAPES.items()}
    with pytest.raises(UsageError) as error:
        select(saliency, importance, SurgerySettings(threshold="absolute"))
    text = str(error.value)
    assert "η_s = 0.1" in text
    assert f"of {SIZE} salient parameters, 0 pass the first threshold and {SIZE} the second" in text
    assert "scale of the loss" in text
    assert f"0.9: {np.quantile(flat(saliency), 0.9):.3g}" in text
    assert "deletion.surgery.threshold=quantile" in text
    assert select(saliency, importance, SurgerySettings()).chosen == floor(0.03 * SIZE)


def test_nothing_salient_is_an_empty_selection_only_where_it_is_asked_for() -> None:
    zero = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    found = nothing_salient(zero, SurgerySettings())
    assert found is not None
    assert (found.chosen, found.parameters, found.saliency_threshold) == (0, SIZE, None)
    assert nothing_salient(values(1, 5), SurgerySettings()) is None
    for threshold in ("absolute", "quantile"):
        with pytest.raises(UsageError, match="surgery has nothing to edit"):
            select(zero, zero, SurgerySettings.model_validate({"threshold": threshold}))


def test_a_budget_of_no_parameter_is_refused() -> None:
    with refused(UsageError, key="deletion.surgery.budget"):
        select(values(0, 5), values(1, 5), SurgerySettings(budget=1e-4))


def test_a_budget_above_the_papers_is_refused() -> None:
    with pytest.raises(ValueError, match="less than or equal to"):
        SurgerySettings(budget=0.06)
