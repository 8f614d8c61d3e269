"""The linear map of a joint network: ridge for each set of modalities, in closed form."""

from itertools import combinations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mbd.evaluation.ridge import RidgeSums
from mbd.features.rows import Rows
from mbd.tensors import Array
from mbd.training.linear import linear_map

ROWS, TRAIN = 120, 80
DIMS = {"text": 9, "audio": 4, "visual": 6}


def inputs_of(dims: dict[str, int], rows: int = ROWS) -> dict[str, Array]:
    """Modalities that share a factor, standardised and within reach."""
    rng = np.random.default_rng(5)
    shared = rng.standard_normal((rows, 1))
    raw = {m: shared + rng.standard_normal((rows, d)) for m, d in dims.items()}
    return {m: ((x - x.mean(0)) / x.std(0)).clip(-3, 3).astype(np.float32) for m, x in raw.items()}


def scores_of(inputs: dict[str, Array]) -> Array:
    rng = np.random.default_rng(6)
    score = sum(x @ rng.standard_normal(x.shape[1]) for x in inputs.values()) + rng.standard_normal(ROWS)
    labels: Array = (score - score.mean()) / score.std()
    return labels.astype(np.float32)


def fit(
    inputs: dict[str, Array],
    labels: Array,
    classes: int = 0,
    available: dict[str, Array] | None = None,
    fit_valid: bool = True,
) -> dict[str, Array]:
    """The map of these rows, of which the last third is the valid split."""
    rows = Rows.of([f"r{k}" for k in range(ROWS)], labels, inputs, available=available)
    train, valid = rows.take(np.arange(ROWS) < TRAIN), rows.take(np.arange(ROWS) >= TRAIN)
    scaling = {f"modality.{m}.mean": np.zeros(x.shape[1]) for m, x in inputs.items()}
    scaling |= {f"modality.{m}.scale": np.ones(x.shape[1]) for m, x in inputs.items()}
    scaling |= {"label_mean": np.zeros(1), "label_scale": np.ones(1)}
    return linear_map(train, valid, scaling, classes, fit_valid=fit_valid)


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
    found: Array = x @ weights(x, targets) + targets.mean(0)
    return found


def weights(x: Array, targets: Array) -> Array:
    return RidgeSums(x.astype(np.float64), targets, np.zeros(x.shape[1]), np.ones(x.shape[1])).fit().weights


def test_of_two_modalities_each_set_has_the_weights_of_its_own_ridge() -> None:
    inputs = inputs_of({"text": 9, "audio": 4})
    labels = scores_of(inputs)
    tensors = fit(inputs, labels)
    for shown in (("text",), ("audio",), ("text", "audio")):
        expected = ridge(inputs, shown, labels[:, None].astype(float))
        np.testing.assert_allclose(mapped(tensors, inputs, shown), expected, rtol=1e-4, atol=1e-5)


def test_of_three_modalities_every_set_is_close_to_its_own_ridge_and_one_weight_for_all_is_not() -> None:
    inputs = inputs_of(DIMS)
    labels = scores_of(inputs)
    tensors = fit(inputs, labels)
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
    tensors = fit(inputs, labels, 3)
    logits = mapped(tensors, inputs, ("text", "audio"))
    scores = ridge(inputs, ("text", "audio"), np.eye(3)[labels])
    assert (logits.argmax(1) == scores.argmax(1)).all()
    factors = logits / scores
    assert factors.min() == pytest.approx(factors.max(), rel=1e-3)

    def cross_entropy(values: Array) -> float:
        return float((np.log(np.exp(values).sum(1)) - values[np.arange(ROWS), labels]).mean())

    assert cross_entropy(logits) < min(cross_entropy(scores), np.log(3))


def test_logits_are_as_sharp_as_valid_rows_want_of_the_ridge_that_has_not_seen_them() -> None:
    inputs = inputs_of({"text": 9, "audio": 4})
    labels = np.digitize(scores_of(inputs), [-0.5, 0.5])
    targets, held_out = np.eye(3)[labels], labels[TRAIN:]
    train, valid = ({m: x[own] for m, x in inputs.items()} for own in (slice(TRAIN), slice(TRAIN, None)))
    scores = []
    for shown in (("text",), ("audio",), ("text", "audio")):
        x = np.hstack([train[m] for m in shown])
        scores.append(np.hstack([valid[m] for m in shown]) @ weights(x, targets[:TRAIN]) + targets[:TRAIN].mean(0))

    def loss(factor: float) -> float:
        logits = [factor * found for found in scores]
        return float(np.mean([np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), held_out] for z in logits]))

    found = fit(inputs, labels, 3)["linear.bias"] / targets.mean(0)
    assert loss(found[0]) == pytest.approx(min(loss(2.0**power) for power in np.arange(-2, 6, 0.25)))


def test_valid_rows_are_fitted_to_only_if_asked_for() -> None:
    inputs = inputs_of({"text": 9, "audio": 4})
    labels = scores_of(inputs)
    train = {m: x[:TRAIN] for m, x in inputs.items()}
    shown, targets = ("text", "audio"), labels[:TRAIN, None].astype(np.float64)
    found = mapped(fit(inputs, labels, fit_valid=False), train, shown)
    np.testing.assert_allclose(found, ridge(train, shown, targets), atol=1e-4)


def test_a_modality_is_fitted_on_the_rows_that_have_it() -> None:
    inputs = inputs_of({"text": 9, "audio": 4})
    labels, there = scores_of(inputs), np.arange(ROWS) % 3 > 0
    inputs["audio"][~there] = 0
    tensors = fit(inputs, labels, available={"audio": there})
    few, targets = {m: x[there] for m, x in inputs.items()}, labels[there][:, None].astype(float)
    expected = few["audio"] @ weights(few["audio"], targets) + labels.mean(dtype=np.float64)
    np.testing.assert_allclose(mapped(tensors, few, ("audio",)), expected, rtol=1e-4, atol=1e-5)
    expected = inputs["text"] @ weights(inputs["text"], labels[:, None].astype(float)) + labels.mean(dtype=np.float64)
    np.testing.assert_allclose(mapped(tensors, inputs, ("text",)), expected, rtol=1e-4, atol=1e-5)


def test_a_modality_that_no_row_has_gets_no_weight() -> None:
    inputs = inputs_of(DIMS)
    inputs["audio"][:] = 0
    tensors = fit(inputs, scores_of(inputs), available={"audio": np.zeros(ROWS, bool)})
    assert not tensors["linear.weight"][:, 9:13].any()
    assert not tensors["modality.text.beside.weight"][:, :4].any()
    assert tensors["modality.text.beside.weight"][:, 4:].any()


def test_of_one_modality_there_is_nothing_beside_it() -> None:
    inputs = inputs_of({"text": 9})
    tensors = fit(inputs, scores_of(inputs))
    assert tensors["modality.text.beside.weight"].shape == (1, 0)
    assert tensors["linear.weight"].any()


def test_the_bytes_do_not_depend_on_the_number_of_threads() -> None:
    inputs = inputs_of({"text": 90, "audio": 40})
    found = []
    for threads in (1, 4):
        with threadpool_limits(threads):
            found.append(fit(inputs, scores_of(inputs)))
    assert all(found[0][name].tobytes() == values.tobytes() for name, values in found[1].items())
