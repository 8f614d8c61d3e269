"""The linear map of a joint network: ridge for each set of modalities, in closed form."""

from itertools import combinations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mbd.evaluation.ridge import solve_ridge
from mbd.tensors import Array
from mbd.training.linear import linear_map

ROWS = 120
DIMS = {"text": 9, "audio": 4, "visual": 6}


def inputs_of(dims: dict[str, int], rows: int = ROWS) -> dict[str, Array]:
    """Modalities that share a factor, standardised."""
    rng = np.random.default_rng(5)
    shared = rng.standard_normal((rows, 1))
    raw = {m: shared + rng.standard_normal((rows, d)) for m, d in dims.items()}
    return {m: ((x - x.mean(0)) / x.std(0)).astype(np.float32) for m, x in raw.items()}


def scores_of(inputs: dict[str, Array]) -> Array:
    rng = np.random.default_rng(6)
    score = sum(x @ rng.standard_normal(x.shape[1]) for x in inputs.values()) + rng.standard_normal(ROWS)
    labels: Array = (score - score.mean()) / score.std()
    return labels.astype(np.float32)


def everything(inputs: dict[str, Array]) -> dict[str, Array]:
    return {m: np.ones(len(x), bool) for m, x in inputs.items()}


def mapped(tensors: dict[str, Array], inputs: dict[str, Array], shown: tuple[str, ...]) -> Array:
    """What the network makes of the map, written down a second time."""
    padded = {m: x if m in shown else np.zeros_like(x) for m, x in inputs.items()}
    out = np.hstack(list(padded.values())) @ tensors["linear.weight"].T + tensors["linear.bias"]
    for m in shown:
        others = np.hstack([np.zeros((len(out), 0)), *(x for k, x in padded.items() if k != m)])
        out = out + others @ tensors[f"modality.{m}.beside.weight"].T
    return out


def ridge(inputs: dict[str, Array], shown: tuple[str, ...], targets: Array) -> Array:
    x = np.hstack([inputs[m] for m in shown]).astype(np.float64)
    found: Array = x @ solve_ridge(x, targets - targets.mean(0)).weights + targets.mean(0)
    return found


def test_of_two_modalities_each_set_has_the_weights_of_its_own_ridge() -> None:
    inputs = inputs_of({"text": 9, "audio": 4})
    labels = scores_of(inputs)
    tensors = linear_map(inputs, everything(inputs), labels, 0)
    for shown in (("text",), ("audio",), ("text", "audio")):
        expected = ridge(inputs, shown, labels[:, None].astype(float))
        np.testing.assert_allclose(mapped(tensors, inputs, shown), expected, rtol=1e-4, atol=1e-5)


def test_of_three_modalities_every_set_is_close_to_its_own_ridge_and_one_weight_for_all_is_not() -> None:
    inputs = inputs_of(DIMS)
    labels = scores_of(inputs)
    tensors = linear_map(inputs, everything(inputs), labels, 0)
    alone = {name: np.zeros_like(x) if "beside" in name else x for name, x in tensors.items()}
    errors, without = [], []
    for size in (1, 2, 3):
        for shown in combinations(DIMS, size):
            expected = ridge(inputs, shown, labels[:, None].astype(float))
            errors.append(np.abs(mapped(tensors, inputs, shown) - expected).mean())
            without.append(np.abs(mapped(alone, inputs, shown) - expected).mean())
    assert max(errors) < 0.15  # of predictions that spread by 0.7 to 1
    assert max(without) > 5 * max(errors)


def test_classes_are_those_of_ridge_and_outputs_are_logits() -> None:
    inputs = inputs_of({"text": 9, "audio": 4})
    labels = np.digitize(scores_of(inputs), [-0.5, 0.5])
    tensors = linear_map(inputs, everything(inputs), labels, 3)
    logits = mapped(tensors, inputs, ("text", "audio"))
    scores = ridge(inputs, ("text", "audio"), np.eye(3)[labels])
    assert (logits.argmax(1) == scores.argmax(1)).all()
    factors = logits / scores
    assert factors.min() == pytest.approx(factors.max(), rel=1e-3)

    def cross_entropy(values: Array) -> float:
        return float((np.log(np.exp(values).sum(1)) - values[np.arange(ROWS), labels]).mean())

    assert cross_entropy(logits) < min(cross_entropy(scores), np.log(3))


def test_a_modality_is_fitted_on_the_rows_that_have_it() -> None:
    inputs = inputs_of({"text": 9, "audio": 4})
    labels, there = scores_of(inputs), everything(inputs)
    there["audio"] = np.arange(ROWS) % 3 > 0
    inputs["audio"][~there["audio"]] = 0
    tensors = linear_map(inputs, there, labels, 0)
    few = {m: x[there["audio"]] for m, x in inputs.items()}
    targets = labels[there["audio"]][:, None].astype(float)
    x = few["audio"].astype(float)
    expected = x @ solve_ridge(x, targets - labels.mean(dtype=np.float64)).weights + labels.mean(dtype=np.float64)
    np.testing.assert_allclose(mapped(tensors, few, ("audio",)), expected, rtol=1e-3, atol=1e-4)


def test_a_modality_that_no_row_has_gets_no_weight() -> None:
    inputs = inputs_of(DIMS)
    there = everything(inputs) | {"audio": np.zeros(ROWS, bool)}
    inputs["audio"][:] = 0
    tensors = linear_map(inputs, there, scores_of(inputs), 0)
    assert not tensors["linear.weight"][:, 9:13].any()
    assert not tensors["modality.text.beside.weight"][:, :4].any()
    assert tensors["modality.text.beside.weight"][:, 4:].any()


def test_of_one_modality_there_is_nothing_beside_it() -> None:
    inputs = inputs_of({"text": 9})
    tensors = linear_map(inputs, everything(inputs), scores_of(inputs), 0)
    assert tensors["modality.text.beside.weight"].shape == (1, 0)
    assert tensors["linear.weight"].any()


def test_the_bytes_do_not_depend_on_the_number_of_threads() -> None:
    inputs = inputs_of({"text": 90, "audio": 40})
    found = []
    for threads in (1, 4):
        with threadpool_limits(threads):
            found.append(linear_map(inputs, everything(inputs), scores_of(inputs), 0))
    assert all(found[0][name].tobytes() == values.tobytes() for name, values in found[1].items())
