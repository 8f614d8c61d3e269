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

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.bootstrap import balanced_hits, cosine
from mbd.attacks.context import AttackContext
from mbd.attacks.extraction import Feeding, activations
from mbd.attacks.probe import step_by_adam
from mbd.attacks.relearn import few_shot, kernels
from mbd.attacks.target_model import TargetModel
from mbd.formats.features import lengths_of
from mbd.model.attachment import Attachment
from mbd.model.contract import to_tensor
from mbd.registry import BACKBONES
from mbd.tensors import Array
from mbd.training.objective import task_loss

NAME = "reattach"
_DRAWS = 4
"""orders of the rows, of which the first k are shown; an even number, for the two halves"""
_DONORS = 4
"""other rows whose m* each row is given"""
_BATCH, _RATE = 32, 1e-2
_CHECKED = (0, 5, 10, 20, 40, 80)
"""steps of a training that are compared; the last one ends it, or the second in a row that is no better"""
_OTHERS = 128
"""rows on which they are compared"""
_AT_ONCE = 256
"""rows that a network answers at once"""


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return the advantage of the model when m* is plugged in again by k rows, for each k of the parameters."""
    rows = attack_context.rows
    missed, truth = _missed(target_model, attack_context), 2.0 * attack_context.attribute.values[:, None] - 1
    halves = (attack_context, replace(attack_context, fit=attack_context.score, score=attack_context.fit))
    counts = sorted({min(k, len(attack_context.fit)) for k in attack_context.params.relearn_rows})
    products, hits = np.zeros((len(counts), len(rows), 2, 3, _DRAWS)), np.zeros((len(rows), 2))
    plugged = _plug_in(target_model, attack_context)
    for draw in range(_DRAWS):
        half = halves[draw % 2]
        order = attack_context.draw(NAME, str(draw)).permutation(len(half.fit))
        if plugged:
            plugged.begin(half, draw)
        for place, k in enumerate(counts):
            fit = half.fit[order[:k]]
            beside, of_truth = _guess([half.target], fit, half.score, missed, truth)
            added = plugged.learn(order, k) if plugged else beside
            open_part = missed[half.score]
            products[place, half.score, :, :, draw] = np.stack([_products(x, open_part) for x in (added, beside)], 1)
            if k == counts[0]:
                index = np.concatenate([fit, half.score])
                known, guessed = np.split(np.arange(len(index)), [len(fit)])
                layers = plugged.layers(index) if plugged else _layers(target_model, attack_context, index)
                [of_layers] = _guess(layers, known, guessed, truth[index])
                hits[half.score] += (np.hstack([of_layers, of_truth]) > 0) == (truth[half.score] > 0)
    return [
        *(
            AttackEvidence(NAME, f"label_{k}", 0.0, each.reshape(len(rows), -1), advantage, rows.groups, (-2, 2))
            for k, each in zip(counts, products, strict=True)
        ),
        AttackEvidence(
            NAME,
            f"attribute_{counts[0]}",
            0.0,
            np.hstack([truth, hits * (2 / _DRAWS)]),
            accuracy_advantage,
            rows.groups,
            limits=(-1, 1),
            class_weight=0.5,
        ),
    ]


def _guess(known: Sequence[Array], fit: Array, score: Array, *targets: Array) -> list[Array]:
    """Return what ridge from `known`, fitted on the rows `fit`, guesses of the rows `score` of each target."""
    [(kernel, across)] = kernels(known, fit, score, [np.arange(len(fit))[None]])
    return [guess for [guess] in few_shot(kernel, across, *(target[fit][None] for target in targets))]


def _layers(target_model: TargetModel, attack_context: AttackContext, index: Array) -> list[Array]:
    """Return the activations of some rows with m* fed, in a model that is as it was released."""
    seen = target_model.extract(attack_context.rows, attack_context.modality, fed=True)
    return [x[index] for x in seen.activations.values()]


def _products(added: Array, open_part: Array) -> Array:
    """Return ab, a² and b² of each row (n × 3) of two centred matrices."""
    a, b = (x - x.mean(0) for x in (added, open_part))
    products: Array = np.stack([(a * b).sum(1), (a**2).sum(1), (b**2).sum(1)], axis=1)
    return products


def accuracy_advantage(rows: Array, weights: Array) -> Array:
    """Return the difference of two balanced accuracies; columns: truth (±1), share of hits of each."""
    return balanced_hits(rows[:, [0, 1]], weights) - balanced_hits(rows[:, [0, 2]], weights)


def advantage(rows: Array, weights: Array) -> Array:
    """Return r of the model − r of the map beside it, each the mean over draws of Σ ab / √(Σ a² Σ b²).

    Columns: of the model, then of the map, ab of each draw, a² of each, b² of each; 0 where a draw scores no such row.
    """
    with_model, without = (cosine(part, weights) for part in np.split(rows, 2, axis=1))
    return with_model - without


def _missed(target_model: TargetModel, attack_context: AttackContext) -> Array:
    """Return what the model misses of each row's label without m* (n × outputs); of classes, in probabilities."""
    labels, classes = attack_context.rows.labels, len(attack_context.data.manifest.classes)
    outputs = target_model.extract(attack_context.rows, attack_context.modality, fed=False).complete.astype(np.float64)
    missed: Array = np.eye(classes)[labels] - np.exp(outputs) if classes else labels[:, None] - outputs
    return missed


def _plug_in(target_model: TargetModel, attack_context: AttackContext) -> "_Plugged | None":
    """Return the model with m* plugged in, scaled as in the attacked rows; None: it cannot be trained further."""
    record, m = target_model.record, attack_context.modality
    attach = BACKBONES.get(record.backbone).attach
    if attach is None:
        return None
    sample = np.asarray(attack_context.rows.features[m], np.float32)
    attachment = attach(record, target_model.tensors, m, attack_context.data.shapes, sample)
    return _Plugged(attachment, attack_context) if attachment else None


class _Plugged:
    """A network into which m* is plugged again; built once, and begun again for each draw."""

    def __init__(self, attachment: Attachment, attack_context: AttackContext) -> None:
        self._network, self._backbone, self._half = attachment.network, attachment.backbone, attack_context
        m, parameters = attack_context.modality, dict(attachment.network.named_parameters())
        retained = tuple(other for other in attack_context.retained if other in attachment.inputs)
        self._feeding = Feeding(attachment.inputs, retained, (m,), m)
        self._trained: list[tuple[Tensor, Tensor]] = [
            (parameters[name], mask) for name, mask in attachment.fresh.items()
        ]
        self._map, shape = None, attachment.inputs[m]
        if shape.kind in ("vector", "sequence"):
            self._map = torch.eye(shape.width, requires_grad=True)
            self._trained.append((self._map, torch.ones(self._map.shape, dtype=torch.bool)))
        self._start = self._fresh = [parameter.detach().clone() for parameter, _ in self._trained]
        self._seed, self._task = 0, attack_context.data.manifest.task
        kind = torch.int64 if self._task == "classification" else torch.float32
        self._labels = torch.from_numpy(np.asarray(attack_context.rows.labels)).to(kind)
        features, available = self._feeding(attack_context.rows, retained)
        self._features = {name: to_tensor(x) for name, x in features.items()}
        self._available = {name: torch.from_numpy(bits) for name, bits in available.items()}

    def begin(self, half: AttackContext, seed: int) -> None:
        """Take the rows of one half, and fresh weights of a seed: those of the factory in another order."""
        self._half, self._seed, self._start = half, seed, [value.clone() for value in self._fresh]
        draw = half.draw(NAME, "fresh", str(seed))
        for value, (parameter, mask) in zip(self._start, self._trained, strict=True):
            if parameter is not self._map:
                value[mask] = value[mask][torch.from_numpy(draw.permutation(int(mask.sum())))]

    def learn(self, order: Array, k: int) -> Array:
        """Train on the first k fit rows of an order; return what a scored row's own m* adds to its outputs."""
        half, names, drawn = self._half, (str(k), str(self._seed)), self._half.fit[order]
        # Where k takes all fit rows, a quarter of them are kept for the choice of a step.
        shown, others = np.split(drawn, [min(k, 3 * len(drawn) // 4)])
        self._train(shown, others[:_OTHERS], half.draw(NAME, "batches", *names))
        draw = half.draw(NAME, "donors", *names)
        donors = [np.resize(draw.permutation(drawn), len(half.rows))[half.score] for _ in range(_DONORS)]
        given = np.stack([half.score, *donors])
        answers = self._answer(np.tile(half.score, len(given)), given.ravel()).reshape(*given.shape, -1)
        effect: Array = answers[0] - answers[1:].mean(0)
        return effect

    def layers(self, index: Array) -> list[Array]:
        """Return the activations of some rows with m* fed."""
        rows, m = self._half.rows.take(index), self._half.modality
        if self._map is not None:
            mapped = np.asarray(rows.features[m], np.float32) @ self._map.detach().numpy()
            rows = replace(rows, features={**rows.features, m: mapped})
        return [*activations(self._backbone, self._feeding, rows).values()]

    def _put(self, values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for (parameter, _), value in zip(self._trained, values, strict=True):
                parameter.copy_(value)

    def _answer(self, index: Array, given: Array) -> Array:
        """Return scores, or probabilities, of some rows, each with the m* of the row that is given."""
        ends = range(_AT_ONCE, len(index), _AT_ONCE)
        with torch.no_grad():
            parts = zip(np.split(index, ends), np.split(given, ends), strict=True)
            outputs = torch.cat([self._run(*part) for part in parts])
        answers = outputs.softmax(1) if self._task == "classification" else outputs
        return answers.double().nan_to_num(0.0).numpy()

    def _train(self, shown: Array, others: Array, draw: np.random.Generator) -> None:
        """Train on the rows `shown` from the start, and keep the step that does best on `others`."""
        self._put(self._start)
        best, least, worse = self._start, np.inf, 0
        for _ in self._steps(shown, draw):
            with torch.no_grad():
                loss = float(self._loss(others))
            worse += 1
            if loss < least:
                best, least, worse = [parameter.detach().clone() for parameter, _ in self._trained], loss, 0
            if worse == 2:
                break
        self._put(best)

    def _steps(self, shown: Array, draw: np.random.Generator) -> Iterator[int]:
        """Take steps of Adam; yield at those that are compared."""
        parameters = [parameter for parameter, _ in self._trained]
        moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
        yield 0
        for step in range(1, _CHECKED[-1] + 1):
            loss = self._loss(draw.permutation(shown)[:_BATCH])
            if not loss.requires_grad:  # what is fresh reaches no output
                return
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            with torch.no_grad():
                for (parameter, mask), gradient, moment in zip(self._trained, gradients, moments, strict=True):
                    if gradient is not None:
                        step_by_adam(parameter, moment, gradient.nan_to_num(0.0) * mask, step, _RATE)
            if step in _CHECKED:
                yield step

    def _loss(self, index: Array) -> Tensor:
        return task_loss(self._run(index, index), self._labels[torch.from_numpy(index)], self._task).mean()

    def _run(self, index: Array, given: Array) -> Tensor:
        """Return the outputs of some rows, each with the m* of the row that is given."""
        m, own, others = self._half.modality, torch.from_numpy(given), torch.from_numpy(index)
        features = {name: x[own if name in (m, lengths_of(m)) else others] for name, x in self._features.items()}
        if self._map is not None:
            features[m] = features[m].float() @ self._map
        outputs: Tensor = self._network(features, {name: bits[others] for name, bits in self._available.items()})
        return outputs


ATTACK = Attack(attack, "how few rows bring the deleted modality back when it is plugged in again", altered=False)
