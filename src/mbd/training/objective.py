"""L = L_task + α·L_re + β·L_pe + γ·L_con on one batch, with L_pe = L_or + L_inv + w·L̂_re + L_app.

    reconstruction  ‖X̂ − X‖² / d                        L_re, and the decomposition's own reconstruction L̂_re
    task            (ŷ − y)², or cross-entropy            L_task
    contrastive     −log softmax_j ⟨X̃_i, Σ_j⟩/τ at j = i  L_con, on vectors of length one
    orthogonality   ⟨Σ, μ⟩² or |⟨Σ, μ⟩|                  L_or
    invariance      ‖μ − μ̄‖²                            L_inv
    alignment       ReLU(‖P − μ̄‖² − ε)                  L_app

Each term is a mean over the rows of the batch that have the modality, then over the modalities. Reconstruction,
decomposition and contrast always have a modality's true values, also where the step hides them from the generators and
from F.

Where this is not the paper's letter: reconstruction is divided by the dimension, so that a wide modality counts no more
than a narrow one; the inner product of L_or is squared, because a signed one has no lower bound; NCE compares unit
vectors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from mbd.formats.features import Task
from mbd.model.networks import JointNetwork, Masks
from mbd.training.distributed import ProcessGroup

_EXCLUDED = -1e9  # a logit that no candidate reaches: |⟨a, b⟩|/τ ≤ 1/τ
TERMS = (
    "total",
    "task",
    "reconstruction",
    "property",
    "contrastive",
    "orthogonality",
    "invariance",
    "decomposition",
    "alignment",
)


@dataclass(frozen=True)
class Batch:
    """The rows of one step: standardised inputs, what is there, what is shown; all of them, in every process."""

    inputs: Mapping[str, Tensor]
    available: Mapping[str, Tensor]
    shown: Mapping[str, Tensor]
    labels: Tensor
    masks: Masks

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Outputs:
    """What the networks make of a process's own rows, by modality where it is not shared."""

    output: Tensor
    generated: dict[str, Tensor] = field(default_factory=dict)
    specific: dict[str, Tensor] = field(default_factory=dict)
    invariant: dict[str, Tensor] = field(default_factory=dict)
    recomposed: dict[str, Tensor] = field(default_factory=dict)
    translated: dict[str, Tensor] = field(default_factory=dict)


def forward(network: JointNetwork, batch: Batch, own: slice) -> Outputs:
    """Run every network that the loss needs on the rows `own`; all comes out in single precision."""
    truth = {m: x[own] for m, x in batch.inputs.items()}
    shown = {m: bits[own] for m, bits in batch.shown.items()}
    inputs = {m: x * shown[m][:, None] for m, x in truth.items()}
    generated = {m: network.generate(m, inputs).float() for m in inputs} if network.shape.reconstruction else {}
    z = network.fuse(network.complete(inputs, shown, generated), shown, (batch.masks[0][own], batch.masks[1][own]))
    outputs = Outputs(network.head(z).float(), generated)
    if network.shape.property_pathway:
        for m, path in network.modality.items():
            specific, invariant = path.decompose(truth[m])
            outputs.specific[m], outputs.invariant[m] = specific.float(), invariant.float()
            outputs.recomposed[m] = path.recomposition(specific + invariant).float()
            outputs.translated[m] = path.back_translation(z).float()
    return outputs


def objective(
    outputs: Outputs, batch: Batch, network: JointNetwork, task: Task, group: ProcessGroup
) -> dict[str, Tensor]:
    """Return this process's share of every term of the loss, by name."""
    losses, own = network.shape.losses, group.part(len(batch))
    terms = dict.fromkeys(TERMS, outputs.output.new_zeros(()))
    terms["task"] = task_loss(outputs.output, batch.labels[own], task).sum() / len(batch)
    for m in batch.inputs:
        for name, value in _modality_terms(outputs, batch, network, m, group).items():
            terms[name] = terms[name] + value / len(batch.inputs)
    decomposition = losses.decomposition_weight * terms["decomposition"]
    terms["property"] = terms["orthogonality"] + terms["invariance"] + decomposition + terms["alignment"]
    auxiliary = losses.alpha * terms["reconstruction"] + losses.beta * terms["property"]
    terms["total"] = terms["task"] + auxiliary + losses.gamma * terms["contrastive"]
    return terms


def _modality_terms(
    outputs: Outputs, batch: Batch, network: JointNetwork, m: str, group: ProcessGroup
) -> dict[str, Tensor]:
    """Return this process's share of the terms that one modality has of its own."""
    losses, own, there = network.shape.losses, group.part(len(batch)), batch.available[m]
    truth = batch.inputs[m][own]
    weight = there[own] / there.sum().clamp(min=1)  # what each row counts in a mean over the rows that have m
    terms = {}
    if m in outputs.generated:
        terms["reconstruction"] = weight @ reconstruction_loss(outputs.generated[m], truth)
    if m in outputs.specific:
        specific, invariant = outputs.specific[m], outputs.invariant[m]
        mean = group.sum(weight @ invariant)
        direction = functional.normalize(specific, dim=1)
        translated = functional.normalize(outputs.translated[m], dim=1)
        everyone = group.gather(direction, len(batch))
        contrast = contrastive_loss(translated, direction, everyone, there, losses.temperature)
        deviation = alignment_loss(network.modality[m].property[0], mean, losses.margin)
        terms |= {
            "orthogonality": weight @ orthogonality_loss(specific, invariant, losses.orthogonality),
            "invariance": weight @ invariance_loss(invariant, mean),
            "decomposition": weight @ reconstruction_loss(outputs.recomposed[m], truth),
            "contrastive": weight @ contrast,
            # P^m and μ̄^m are the same in every process: each counts its part of L_app.
            "alignment": deviation * there.any() / group.size,
        }
    return terms


def task_loss(output: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Return the squared error, or the cross-entropy, of each row's output (n × 1, or n × classes)."""
    if task == "classification":
        return functional.cross_entropy(output, labels, reduction="none")
    return (output[:, 0] - labels) ** 2


def reconstruction_loss(generated: Tensor, truth: Tensor) -> Tensor:
    """Return the mean squared error of each row."""
    return ((generated - truth) ** 2).mean(dim=1)


def contrastive_loss(
    translated: Tensor, own: Tensor, candidates: Tensor, eligible: Tensor, temperature: float
) -> Tensor:
    """Return the NCE loss of each row.

    `own` is the row's Σ, `candidates` are the Σ of all rows of the batch (`own` among them) and `eligible` says
    which of them have the modality. All vectors have length one.
    """
    logits = (translated @ candidates.T / temperature).masked_fill(~eligible, _EXCLUDED)
    return torch.logsumexp(logits, dim=1) - (translated * own).sum(dim=1) / temperature


def orthogonality_loss(specific: Tensor, invariant: Tensor, form: Literal["squared", "absolute"]) -> Tensor:
    """Return how far Σ and μ of each row are from orthogonal."""
    product = (specific * invariant).sum(dim=1)
    return product**2 if form == "squared" else product.abs()


def invariance_loss(invariant: Tensor, mean: Tensor) -> Tensor:
    """Return how far μ of each row is from the batch mean μ̄."""
    return ((invariant - mean) ** 2).sum(dim=1)


def alignment_loss(embedding: Tensor, mean: Tensor, margin: float) -> Tensor:
    """Return what P^m deviates from μ̄^m beyond the margin."""
    return torch.relu(((embedding - mean) ** 2).sum() - margin)
