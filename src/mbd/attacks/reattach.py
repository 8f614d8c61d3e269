"""Attack `reattach`: a deleted modality is plugged in again and trained from few rows, everything else frozen.

Who has the file of a model can undo what the deletion did to it: what was zeroed or removed gets fresh weights
(:mod:`mbd.model.attachment`), m* passes a linear map first (the identity at the start), and both are trained on k rows
with m*. If the layers behind m*'s input were left as they were, a few rows bring m* back; in a model that never saw m*
they teach no more than they teach without a model. f_k is the model after that, m*_π the m* of other rows, and each
measure is the advantage over the same k rows without the model:

    utility    r(f_k(x, m*) − mean f_k(x, m*_π), y − f(x)) − r(g_k(m*), y − f(x))
               r: correlation of what a row's own m* adds with what f misses; g_k: ridge from m* to y − f(x)
    recovery   accuracy of the private attribute by ridge from the activations of f_k − the same from m* itself

Each row is scored by trainings on the other half of the rows, several draws of k; of each training the step is taken
that does best on further rows of its half. A backbone that cannot be trained further has no advantage. Models are
attacked as released only: rounding revives nothing that training does not.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.context import AttackContext
from mbd.attacks.extraction import Feeding, activations
from mbd.attacks.relearn import balanced_hits, few_shot, kernels
from mbd.attacks.target_model import TargetModel
from mbd.features.rows import Rows
from mbd.model.attachment import Attachment
from mbd.model.contract import to_tensor
from mbd.model.losses import task_loss
from mbd.registry import BACKBONES
from mbd.tensors import Array

NAME = "reattach"
_DRAWS = 4
_DONORS = 4
"""other rows whose m* each row is given"""
_BATCH = 32
_CHECKED = (0, 5, 10, 20, 40, 80)
"""steps of a training that are compared; the last one ends it"""
_OTHERS = 128
"""rows on which they are compared"""
_AT_ONCE = 256
"""rows that a network answers at once"""
_RATE, _DECAYS, _TINY = 1e-2, (0.9, 0.99), 1e-12


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return the advantage of the model when m* is plugged in again by k rows, for each k of the parameters."""
    rows = attack_context.rows
    missed, truth = _missed(target_model, attack_context), 2.0 * attack_context.attribute.values[:, None] - 1
    halves = (attack_context, replace(attack_context, fit=attack_context.score, score=attack_context.fit))
    counts = sorted({min(k, len(attack_context.fit)) for k in attack_context.params.relearn_rows})
    evidence, hits = [], np.zeros((len(rows), 2))
    for k in counts:
        products = np.zeros((len(rows), 2, 3, _DRAWS))
        for draw in range(_DRAWS):
            half = halves[draw % 2]
            order = attack_context.draw(NAME, str(k), str(draw)).permutation(len(half.fit))
            effects, layers = _plug_in(target_model, half, missed, order, k, draw)
            open_part = missed[half.score] - missed[half.score].mean(0)
            for place, effect in enumerate(effects):
                added = effect - effect.mean(0)
                pairs = (added * open_part, added**2, open_part**2)
                products[half.score, place, :, draw] = np.stack([pair.sum(1) for pair in pairs], axis=1)
            if k == counts[0]:
                for place, known in enumerate((layers, [half.target])):
                    [(kernel, across)] = kernels(known, half, [order[None, :k]])
                    [[guess]] = few_shot(kernel, across, truth[half.fit[order[None, :k]]])
                    right = ((guess > 0) == (truth[half.score] > 0))[:, 0]
                    hits[half.score, place] += right * 2 / _DRAWS
        measure = f"label_{k}"
        columns = products.reshape(len(rows), -1)
        evidence.append(AttackEvidence(NAME, measure, 0.0, columns, advantage, rows.groups, limits=(-2, 2)))
    measure, columns = f"attribute_{counts[0]}", np.hstack([truth, hits])
    limits = (-1, 1)
    return [*evidence, AttackEvidence(NAME, measure, 0.0, columns, accuracy_advantage, rows.groups, limits, 0.5)]


def accuracy_advantage(rows: Array, weights: Array) -> Array:
    """Return the difference of two balanced accuracies; columns: truth (±1), share of hits of each."""
    return balanced_hits(rows[:, [0, 1]], weights) - balanced_hits(rows[:, [0, 2]], weights)


def advantage(rows: Array, weights: Array) -> Array:
    """Return r of the model − r of the map beside it, each the mean over draws of Σ ab / √(Σ a² Σ b²).

    Columns: of the model, then of the map, ab of each draw, a² of each, b² of each; 0 where a draw scores no such row.
    """
    with_model, without = (_correlation(weights @ part) for part in np.split(rows, 2, axis=1))
    return with_model - without


def _correlation(sums: Array) -> Array:
    products, first, second = np.split(sums, 3, axis=1)
    scale = np.sqrt(first * second)
    correlation: Array = np.divide(products, scale, out=np.zeros_like(scale), where=scale > _TINY).mean(1)
    return correlation


def _missed(target_model: TargetModel, attack_context: AttackContext) -> Array:
    """Return what the model misses of each row's label without m* (n × outputs); of classes, in probabilities."""
    labels, classes = attack_context.rows.labels, len(attack_context.data.manifest.classes)
    outputs = target_model.extract(attack_context.rows, attack_context.modality, fed=False).complete.astype(np.float64)
    missed: Array = np.eye(classes)[labels] - np.exp(outputs) if classes else labels[:, None] - outputs
    return missed


def _plug_in(
    target_model: TargetModel, half: AttackContext, missed: Array, order: Array, k: int, seed: int
) -> tuple[tuple[Array, Array], list[Array]]:
    """Plug m* in and train it on the first k fit rows of an order.

    Returns:
        What a scored row's own m* adds to its outputs, by the model and by a map beside it; activations of all rows.

    """
    m, rows, record = half.modality, half.rows, target_model.record
    drawn, attach = half.fit[order], BACKBONES.get(record.backbone).attach
    [(kernel, across)] = kernels([half.target], half, [order[None, :k]])
    [[mapped]] = few_shot(kernel, across, missed[drawn[:k]][None])
    sample = np.asarray(rows.features[m][drawn[:k]], np.float32)
    attachment = attach(record, target_model.tensors, m, half.data.shapes, sample, seed) if attach else None
    if attachment is None:
        return (mapped, mapped), list(target_model.extract(rows, m, fed=True).activations.values())
    plugged = _Plugged(attachment, half)
    # Where k takes all fit rows, a quarter of them are kept for the choice of a step.
    shown, others = np.split(drawn, [min(k, 3 * len(drawn) // 4)])
    plugged.train(shown, others[:_OTHERS], half.draw(NAME, "batches", str(k), str(seed)))
    draw = half.draw(NAME, "donors", str(k), str(seed))
    donors = [np.resize(draw.permutation(drawn), len(rows)) for _ in range(_DONORS)]
    others_own = np.mean([plugged.answer(rows.swapped(m, index).take(half.score)) for index in donors], axis=0)
    return (plugged.answer(rows.take(half.score)) - others_own, mapped), plugged.layers(rows)


class _Plugged:
    """A network into which m* is plugged again."""

    def __init__(self, attachment: Attachment, attack_context: AttackContext) -> None:
        self._network, self._backbone = attachment.network, attachment.backbone
        self._rows, self._task = attack_context.rows, attack_context.data.manifest.task
        retained = tuple(m for m in attack_context.retained if m in attachment.inputs)
        self._feeding = Feeding(attachment.inputs, retained, (attack_context.modality,), attack_context.modality)
        parameters, shape = dict(self._network.named_parameters()), attachment.inputs[attack_context.modality]
        self._trained: list[tuple[Tensor, Tensor]] = [
            (parameters[name], mask) for name, mask in attachment.fresh.items()
        ]
        self._map = None
        if shape.kind in ("vector", "sequence"):
            self._map = torch.eye(shape.width, requires_grad=True)
            self._trained.append((self._map, torch.ones(self._map.shape, dtype=torch.bool)))
        kind = torch.int64 if self._task == "classification" else torch.float32
        self._labels = torch.from_numpy(np.asarray(self._rows.labels)).to(kind)

    def answer(self, rows: Rows) -> Array:
        """Return scores, or probabilities, of rows with m* fed."""
        with torch.no_grad():
            parts = np.split(np.arange(len(rows)), range(_AT_ONCE, len(rows), _AT_ONCE))
            outputs = torch.cat([self._run(rows.take(part)) for part in parts])
        answers = outputs.softmax(1) if self._task == "classification" else outputs
        return answers.double().nan_to_num(0.0).numpy()

    def layers(self, rows: Rows) -> list[Array]:
        """Return the activations of rows with m* fed."""
        if self._map is not None:
            m = self._feeding.modality
            mapped = np.asarray(rows.features[m], np.float32) @ self._map.detach().numpy()
            rows = replace(rows, features={**rows.features, m: mapped})
        return list(activations(self._backbone, self._feeding, rows).values())

    def train(self, shown: Array, others: Array, draw: np.random.Generator) -> None:
        """Train on the rows `shown`, and keep the step that does best on `others`."""
        best, least = [], np.inf
        for _ in self._steps(shown, draw) if self._trained else ():
            with torch.no_grad():
                loss = float(self._loss(others))
            if loss < least:
                best, least = [p.detach().clone() for p, _ in self._trained], loss
        with torch.no_grad():
            for (parameter, _), value in zip(self._trained, best, strict=False):
                parameter.copy_(value)

    def _steps(self, shown: Array, draw: np.random.Generator) -> Iterator[int]:
        """Take steps of Adam; yield at those that are compared."""
        parameters = [p for p, _ in self._trained]
        moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
        yield 0
        for step in range(1, _CHECKED[-1] + 1):
            loss = self._loss(draw.permutation(shown)[:_BATCH])
            if not loss.requires_grad:  # what is fresh reaches no output
                return
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            with torch.no_grad():
                for (p, mask), gradient, (mean, square) in zip(self._trained, gradients, moments, strict=True):
                    g = torch.zeros_like(p) if gradient is None else gradient.nan_to_num(0.0) * mask
                    mean.lerp_(g, 1 - _DECAYS[0])
                    square.lerp_(g.square(), 1 - _DECAYS[1])
                    scale = square.div(1 - _DECAYS[1] ** step).sqrt_().add_(_TINY)
                    p.addcdiv_(mean, scale, value=-_RATE / (1 - _DECAYS[0] ** step))
            if step in _CHECKED:
                yield step

    def _loss(self, index: Array) -> Tensor:
        return task_loss(self._run(self._rows.take(index)), self._labels[torch.from_numpy(index)], self._task).mean()

    def _run(self, rows: Rows) -> Tensor:
        features, available = self._feeding(rows, self._feeding.retained)
        given, m = {name: to_tensor(x) for name, x in features.items()}, self._feeding.modality
        if self._map is not None:
            given[m] = given[m].float() @ self._map
        outputs: Tensor = self._network(given, {m: torch.from_numpy(bits) for m, bits in available.items()})
        return outputs


ATTACK = Attack(attack, "how few rows bring the deleted modality back when it is plugged in again", altered=False)
