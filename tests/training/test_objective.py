"""The objective against the paper's sums, row by row and modality by modality."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from mbd.formats.features import Task
from mbd.model.joint import empty_network
from mbd.model.networks import JointNetwork
from mbd.params.learning import JointSettings, LossesSettings
from mbd.training.distributed import ProcessGroup
from mbd.training.draws import initial_weights
from mbd.training.objective import TERMS, Batch, forward, objective

DIMS = {"text": 5, "audio": 3, "visual": 4}
LOSSES = LossesSettings(alpha=0.7, beta=0.3, gamma=0.2, temperature=0.4, margin=0.02, decomposition_weight=5)
SHAPE = JointSettings(hidden=9, embedding=6, property_dim=4, losses=LOSSES)
N = 13


def network_and_batch(shape: JointSettings = SHAPE, classes: int = 0) -> tuple[JointNetwork, Batch]:
    network = empty_network(DIMS, max(classes, 1), shape).to_empty(device="cpu")
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    weights = initial_weights(0, {name: s for name, s in shapes.items() if len(s) > 1})
    weights |= {name: np.full(s, 0.1, np.float32) for name, s in shapes.items() if len(s) == 1}
    network.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    rng = np.random.default_rng(0)
    available = {m: torch.from_numpy(rng.random(N) < (0.7 if m != "visual" else 1)) for m in DIMS}
    batch = Batch(
        inputs={
            m: torch.from_numpy(rng.standard_normal((N, d), np.float32)) * available[m][:, None]
            for m, d in DIMS.items()
        },
        available=available,
        shown={
            m: bits & torch.from_numpy(rng.random(N) < (0.6 if m != "visual" else 1)) for m, bits in available.items()
        },
        labels=torch.from_numpy(rng.integers(0, classes, N) if classes else rng.standard_normal(N, np.float32)),
        masks=(2.0 * (torch.from_numpy(rng.random((N, 12))) < 0.5), 2.0 * (torch.from_numpy(rng.random((N, 9))) < 0.5)),
    )
    return network, batch


def values(network: JointNetwork, batch: Batch, task: Task = "regression") -> dict[str, float]:
    terms = objective(forward(network, batch, slice(0, len(batch))), batch, network, task, ProcessGroup())
    assert tuple(terms) == TERMS
    return {name: value.item() for name, value in terms.items()}


def row_by_row(network: JointNetwork, batch: Batch) -> dict[str, float]:
    """The terms as the paper writes them, with loops."""
    network.requires_grad_(False)
    means: dict[str, list[float]] = {name: [] for name in TERMS}
    z = []
    generated: dict[str, list[torch.Tensor]] = {m: [] for m in DIMS}
    for i in range(N):
        shown = {m: batch.inputs[m][i] * batch.shown[m][i] for m in DIMS}
        filled = []
        for m in DIMS:
            path = network.modality[m]
            others = torch.cat([shown[o] for o in DIMS if o != m] + [path.property[0]])
            generated[m].append(path.generator.out(torch.relu(path.generator.hidden(others))))
            filled.append(batch.inputs[m][i] if batch.shown[m][i] else generated[m][i])
        hidden = torch.relu(network.fusion.hidden(torch.cat(filled) * batch.masks[0][i])) * batch.masks[1][i]
        z.append(network.fusion.out(hidden))
        means["task"].append(float((network.head(z[i])[0] - batch.labels[i]) ** 2))
    for m, dim in DIMS.items():
        path, there = network.modality[m], [i for i in range(N) if batch.available[m][i]]
        pairs = {i: path.decomposition(batch.inputs[m][i][None])[0].split(4) for i in there}
        mean = torch.stack([mu for _, mu in pairs.values()]).mean(0)
        unit = {i: sigma / sigma.norm() for i, (sigma, _) in pairs.items()}
        terms: dict[str, list[float]] = {name: [] for name in TERMS}
        for i, (sigma, mu) in pairs.items():
            x = batch.inputs[m][i]
            terms["reconstruction"].append(float(((generated[m][i] - x) ** 2).sum()) / dim)
            terms["orthogonality"].append(float(sigma @ mu) ** 2)
            terms["invariance"].append(float(((mu - mean) ** 2).sum()))
            terms["decomposition"].append(float(((path.recomposition(sigma + mu) - x) ** 2).sum()) / dim)
            back = path.back_translation(z[i][None])[0]
            scores = {j: math.exp(float(back / back.norm() @ unit[j]) / LOSSES.temperature) for j in there}
            terms["contrastive"].append(-math.log(scores[i] / sum(scores.values())))
        terms["alignment"] = [max(float(((path.property[0] - mean) ** 2).sum()) - LOSSES.margin, 0)]
        for name, parts in terms.items():
            if parts:
                means[name].append(sum(parts) / len(parts))
    return {name: sum(parts) / len(parts) for name, parts in means.items() if parts}


def test_every_term_is_the_papers() -> None:
    network, batch = network_and_batch()
    found, expected = values(network, batch), row_by_row(network, batch)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4), name
    property_terms = expected["orthogonality"] + expected["invariance"] + expected["alignment"]
    assert found["property"] == pytest.approx(property_terms + 5 * expected["decomposition"], rel=1e-4)
    total = expected["task"] + 0.7 * expected["reconstruction"] + 0.3 * found["property"]
    assert found["total"] == pytest.approx(total + 0.2 * expected["contrastive"], rel=1e-4)
    assert min(expected.values()) > 0


@pytest.mark.parametrize("on", list(product((True, False), repeat=3)))
def test_an_ablated_part_has_no_term_and_all_that_is_left_but_the_linear_map_has_a_gradient(
    on: tuple[bool, bool, bool],
) -> None:
    shape = SHAPE.model_copy(update=dict(zip(("property_pathway", "reconstruction", "fusion"), on, strict=True)))
    network, batch = network_and_batch(shape, classes=3)
    terms = objective(forward(network, batch, slice(0, N)), batch, network, "classification", ProcessGroup())
    assert (terms["property"].item() > 0) == (terms["contrastive"].item() > 0) == on[0]
    assert (terms["reconstruction"].item() > 0) == on[1]
    terms["total"].backward()  # type: ignore[no-untyped-call]
    for name, parameter in network.named_parameters():
        if name in network.in_closed_form():
            assert parameter.grad is None, name
        else:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


def test_a_modality_that_no_row_of_the_batch_has_adds_nothing() -> None:
    network, batch = network_and_batch()
    without_text = {**batch.available, "text": torch.zeros(N, dtype=torch.bool)}
    hidden = {**batch.shown, "text": without_text["text"]}
    inputs = {**batch.inputs, "text": torch.zeros(N, 5)}
    gone = Batch(inputs, without_text, hidden, batch.labels, batch.masks)
    terms = objective(forward(network, gone, slice(0, N)), gone, network, "regression", ProcessGroup())
    terms["total"].backward()  # type: ignore[no-untyped-call]
    path = network.modality["text"]
    for layer in (path.decomposition.out, path.recomposition, path.back_translation.out):
        assert layer.weight.grad is not None
        assert (layer.weight.grad == 0).all()
    assert all(term.isfinite() for term in terms.values())


def test_half_precision_products_leave_the_losses_in_single_precision() -> None:
    network, batch = network_and_batch()
    exact = objective(forward(network, batch, slice(0, N)), batch, network, "regression", ProcessGroup())
    with torch.autocast("cpu", torch.bfloat16):
        outputs = forward(network, batch, slice(0, N))
    mixed = objective(outputs, batch, network, "regression", ProcessGroup())
    for name in TERMS:
        assert mixed[name].dtype == torch.float32
        assert mixed[name].item() == pytest.approx(exact[name].item(), rel=0.05, abs=0.01), name
