"""The paper's losses, each as one value for each sample (L_app is one value for each modality).

    reconstruction  ‖X̂ − X‖² / d                        L_re, and the decomposition's own reconstruction
    task            (ŷ − y)², or cross-entropy            L_task
    contrastive     −log softmax_j ⟨X̃_i, Σ_j⟩/τ at j = i  L_con, on vectors of length one
    orthogonality   ⟨Σ, μ⟩² or |⟨Σ, μ⟩|                  L_or
    invariance      ‖μ − μ̄‖²                            L_inv
    alignment       ReLU(‖P − μ̄‖² − ε)                  L_app

Where this is not the paper's letter: reconstruction is divided by the dimension, so that a wide modality counts no more
than a narrow one; the inner product of L_or is squared, because a signed one has no lower bound; NCE compares unit
vectors.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from mbd.formats.features import Task

_EXCLUDED = -1e9  # a logit that no candidate reaches: |⟨a, b⟩|/τ ≤ 1/τ


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
