"""The joint backbone: any modalities, missing inputs, what can be looked into, a provenance that is true."""

from itertools import product

import numpy as np
import pytest
import torch

from mbd.formats.model import DataRecord, ModelRecord
from mbd.model.joint import JointBackbone, empty_network, from_tensors, provenance, to_tensor_dict
from mbd.model.networks import REACH, JointNetwork
from mbd.model.predictor import Model
from mbd.params.learning import JointSettings
from mbd.tensors import Array
from mbd.training.draws import initial_weights

# `items` and `train` are attributes of every torch module, too.
DIMS = {"text": 6, "train": 3, "items": 4, "visual": 5}
SMALL = JointSettings(hidden=8, embedding=7, property_dim=5)
ABLATIONS = [
    SMALL.model_copy(update={"property_pathway": p, "reconstruction": r, "fusion": f})
    for p, r, f in product((True, False), repeat=3)
]


def random_model(dims: dict[str, int], shape: JointSettings = SMALL, classes: int = 0, seed: int = 0) -> Model:
    """A model with random weights and scalings."""
    network = empty_network(dims, max(classes, 1), shape)
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    rng = np.random.default_rng(seed)
    tensors = initial_weights(seed, {name: s for name, s in shapes.items() if len(s) > 1})
    tensors |= {name: rng.uniform(0.5, 1.5, s).astype(np.float32) for name, s in shapes.items() if len(s) == 1}
    record = ModelRecord(
        backbone="joint",
        spec=shape.model_dump(mode="json"),
        task="classification" if classes else "regression",
        classes=tuple(f"c{k}" for k in range(classes)),
        label_range=None if classes else (-3, 3),
        modalities=dims,
        seed="0",
        data=DataRecord(name="none", files={}),
        tensors=provenance(tensors, dims),
        sha256="",
    )
    return Model(record, from_tensors(record, tensors))


def backbone(model: Model) -> JointBackbone:
    assert isinstance(model.backbone, JointBackbone)
    return model.backbone


def rows(dims: dict[str, int], n: int = 11, seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {m: rng.standard_normal((n, d), dtype=np.float32) for m, d in dims.items()}


def subset(dims: dict[str, int], size: int) -> dict[str, int]:
    return dict(list(dims.items())[:size])


@pytest.mark.parametrize("shape", ABLATIONS, ids=lambda s: f"{s.property_pathway}-{s.reconstruction}-{s.fusion}")
def test_every_ablation_predicts_for_any_number_of_modalities(shape: JointSettings) -> None:
    for size in (1, 2, 3, 4):
        dims = subset(DIMS, size)
        model, x = random_model(dims, shape), rows(dims)
        scores = model.predict(x)
        assert scores.shape == (11,)
        assert np.isfinite(scores).all()
        for left_out in dims if size > 1 else ():
            assert np.isfinite(model.predict({m: x[m] for m in dims if m != left_out})).all()


@pytest.mark.parametrize("shape", ABLATIONS, ids=lambda s: f"{s.property_pathway}-{s.reconstruction}-{s.fusion}")
def test_a_prediction_is_that_of_the_network_for_every_set_of_modalities(shape: JointSettings) -> None:
    patterns = [bits for bits in product((True, False), repeat=len(DIMS)) if any(bits)]
    n = 3 * len(patterns)
    there = dict(zip(DIMS, np.tile(np.array(patterns).T, 3), strict=True))
    x = {m: np.where(there[m][:, None], 2 * values, 0) for m, values in rows(DIMS, n).items()}  # some beyond REACH
    for share, classes in product((0.0, 0.4, 1.0), (0, 3)):
        model = random_model(DIMS, shape.model_copy(update={"linear_share": share}), classes)
        with torch.inference_mode():
            outputs = backbone(model).network(*backbone(model).to_tensors(x, there))
        expected = (outputs.softmax(dim=1) if classes else outputs[:, 0]).numpy()
        np.testing.assert_array_equal(model.predict(x, there), expected)
        for k, bits in enumerate(patterns):
            row = {m: x[m][[k]] for m, bit in zip(DIMS, bits, strict=True) if bit}
            np.testing.assert_allclose(model.predict(row)[0], expected[k], rtol=1e-5, atol=1e-5)


def test_many_rows_are_predicted_as_few_are() -> None:
    model, x = random_model(DIMS), rows(DIMS, 30_000)
    few = [model.predict({m: values[own] for m, values in x.items()}) for own in (slice(0, 7), slice(29_990, None))]
    many = model.predict(x, batch_size=30_000)
    np.testing.assert_allclose(np.concatenate([many[:7], many[29_990:]]), np.concatenate(few), rtol=1e-5, atol=1e-5)


def test_values_of_any_float_type_are_predicted_as_single_precision() -> None:
    model, x = random_model(DIMS), rows(DIMS)
    single = {m: values.astype(np.float16).astype(np.float32) for m, values in x.items()}
    for kind in (np.float16, np.float64):
        given = {m: values.astype(kind) for m, values in single.items()}
        np.testing.assert_array_equal(model.predict(given), model.predict(single))


def test_classes_get_probabilities() -> None:
    probabilities = random_model(DIMS, classes=3).predict(rows(DIMS))
    assert probabilities.shape == (11, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)


def test_the_values_of_a_missing_input_do_not_matter() -> None:
    model, x = random_model(DIMS), rows(DIMS)
    there = {m: np.ones(11, bool) for m in DIMS} | {"text": np.arange(11) % 2 == 0}
    noisy = {**x, "text": x["text"] + 100 * ~there["text"][:, None]}
    np.testing.assert_array_equal(model.predict(x, there), model.predict(noisy, there))


def test_a_missing_input_is_generated_from_the_others_then_fused() -> None:
    model, x = random_model(DIMS, SMALL.model_copy(update={"linear_share": 0.0})), rows(DIMS)
    generated = backbone(model).reconstruct(x, {m: np.full(11, m != "text") for m in DIMS})["text"]
    path = backbone(model).network.modality["text"]
    reach = (path.mean - REACH * path.scale).numpy(), (path.mean + REACH * path.scale).numpy()
    assert ((generated > reach[0]) & (generated < reach[1])).all()
    without = model.predict({m: x[m] for m in DIMS if m != "text"})
    np.testing.assert_allclose(without, model.predict({**x, "text": generated}), rtol=1e-4, atol=1e-5)


def test_the_linear_map_has_weights_for_each_set_of_modalities_and_reads_nothing_generated() -> None:
    model, x = random_model(DIMS, SMALL.model_copy(update={"linear_share": 1.0})), rows(DIMS)
    network, there = backbone(model).network, [m for m in DIMS if m != "text"]
    state = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    scaled = {
        m: np.clip((x[m] - state[f"modality.{m}.mean"]) / state[f"modality.{m}.scale"], -REACH, REACH) for m in there
    }
    shared = dict(zip(DIMS, np.split(state["linear.weight"][0], np.cumsum(list(DIMS.values()))[:-1]), strict=True))
    expected = state["linear.bias"] + sum(scaled[m] @ shared[m] for m in there)
    for m in there:
        others = {k: d for k, d in DIMS.items() if k != m}
        ends = np.cumsum(list(others.values()))[:-1]
        beside = dict(zip(others, np.split(state[f"modality.{m}.beside.weight"][0], ends), strict=True))
        expected = expected + sum(scaled[k] @ beside[k] for k in there if k != m)
    found = model.predict({m: x[m] for m in there})
    np.testing.assert_allclose(found, expected * state["label_scale"] + state["label_mean"], rtol=1e-5, atol=1e-5)


def test_networks_and_linear_map_have_their_shares_of_the_output() -> None:
    x = rows(DIMS)
    none, half, whole = (
        random_model(DIMS, SMALL.model_copy(update={"linear_share": share})) for share in (1e-9, 0.5, 1.0)
    )
    np.testing.assert_allclose(half.predict(x), (none.predict(x) + whole.predict(x)) / 2, rtol=1e-4, atol=1e-5)


def test_a_generator_does_not_read_its_own_modality() -> None:
    inside, x = backbone(random_model(DIMS)), rows(DIMS)
    there = {m: np.ones(11, bool) for m in DIMS}
    before, after = inside.reconstruct(x, there), inside.reconstruct({**x, "items": -x["items"]}, there)
    np.testing.assert_array_equal(before["items"], after["items"])
    assert all((before[m] != after[m]).any() for m in DIMS if m != "items")


def test_what_can_be_looked_into() -> None:
    inside, x = backbone(random_model(DIMS)), rows(DIMS)
    there = {m: np.ones(11, bool) for m in DIMS} | {"text": np.zeros(11, bool)}
    assert {m: r.shape for m, r in inside.reconstruct(x, there).items()} == {m: x[m].shape for m in DIMS}
    assert inside.activations(x, there)["fusion.out"].shape == (11, 7)
    nothing = backbone(
        random_model(DIMS, SMALL.model_copy(update={"property_pathway": False, "reconstruction": False}))
    )
    assert nothing.reconstruct(x, there) == {}


def test_the_scaling_sees_its_modality_alone_and_the_rest_sees_all() -> None:
    record = random_model(DIMS).record
    for name, tensor in record.tensors.items():
        owner = name.split(".")[1] if name.startswith("modality.") else None
        assert tensor.belongs_to == owner
        if name.startswith("label_"):
            assert tensor.sees == ()
        elif name.endswith((".mean", ".scale")):
            assert tensor.sees == (owner,)
        else:
            assert tensor.sees == tuple(DIMS)


@pytest.mark.parametrize("shape", ABLATIONS, ids=lambda s: f"{s.property_pathway}-{s.reconstruction}-{s.fusion}")
def test_without_its_columns_and_its_own_tensors_a_modality_has_no_say(shape: JointSettings) -> None:
    model, x = random_model(DIMS, shape), rows(DIMS)
    for gone in DIMS:
        tensors = to_tensor_dict(backbone(model).network)
        for name, entry in model.record.tensors.items():
            if entry.belongs_to == gone and not name.endswith((".mean", ".scale")):
                tensors[name][...] = 0
            for span in entry.columns:
                if span.reads == gone:
                    tensors[name][..., span.start : span.stop] = 0
        blind = Model(model.record, from_tensors(model.record, tensors))
        other = {**x, gone: -x[gone]}
        assert (model.predict(x) != model.predict(other)).any()
        np.testing.assert_array_equal(blind.predict(x), blind.predict(other))
        there = {m: np.ones(11, bool) for m in DIMS}
        for m, generated in backbone(blind).reconstruct(x, there).items():
            np.testing.assert_array_equal(generated, backbone(blind).reconstruct(other, there)[m])


@pytest.mark.parametrize("gone", DIMS)
def test_a_model_without_a_modality_has_the_shapes_that_its_cut_leaves(gone: str) -> None:
    whole, never = random_model(DIMS).record, random_model({m: d for m, d in DIMS.items() if m != gone}).record
    left = {
        name: (*e.shape[:-1], e.shape[-1] - sum(s.stop - s.start for s in e.columns if s.reads == gone))
        for name, e in whole.tensors.items()
        if e.belongs_to != gone
    }
    assert left == {name: entry.shape for name, entry in never.tensors.items()}


def test_a_network_is_built_without_drawing_weights() -> None:
    before = torch.get_rng_state()
    network = empty_network(DIMS, 1, SMALL)
    assert isinstance(network, JointNetwork)
    assert all(parameter.is_meta for parameter in network.parameters())
    assert torch.equal(before, torch.get_rng_state())
