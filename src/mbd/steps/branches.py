"""Which submodules of a module of one's own belong to a modality, as found by :mod:`mbd.model.branches`, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mbd.errors import UsageError
from mbd.model.checkpoint import load_model
from mbd.registry import BACKBONES
from mbd.report.text import table
from mbd.steps.step import reads

if TYPE_CHECKING:
    from mbd.model.branches import Proposal


@reads("model")
def run(
    model: Path, modalities: Sequence[str] = (), named: Mapping[str, Sequence[str]] | None = None
) -> dict[str, "Proposal | None"]:
    """Return the proposal for each of some modalities, or of all that a model takes.

    Args:
        model: The model's folder.
        modalities: To look at; none: all.
        named: Branches to compare the proposal with, by modality, instead of those that the model's record names.

    Returns:
        By modality; None: the factory builds a smaller model without it, which needs no branches.

    """
    record, _ = load_model(model, verify=False)
    if not BACKBONES.is_path(record.backbone):
        raise UsageError(
            "only a module of one's own has branches",
            file=model,
            key="backbone",
            value=record.backbone,
            hint="its record says of every tensor what belongs to which modality: see model.json",
        )
    for modality in modalities:
        if modality not in record.inputs:
            raise UsageError(
                f"the model takes no {modality}", key="--modality", hint=f"it takes {', '.join(record.inputs)}"
            )
    from mbd.model.branches import propose, with_branches  # noqa: PLC0415 -- imports torch
    from mbd.model.module import architecture_of  # noqa: PLC0415

    architecture = with_branches(architecture_of(record), named or {})
    return {m: propose(architecture, m) for m in modalities or record.inputs}


def to_plain(proposals: Mapping[str, "Proposal | None"]) -> dict[str, Any]:
    """Return proposals as JSON values."""
    return {
        modality: proposal and {**asdict(proposal), "missing": proposal.missing, "setting": proposal.setting}
        for modality, proposal in proposals.items()
    }


def to_text(proposals: Mapping[str, "Proposal | None"]) -> str:
    """Return proposals for a terminal."""
    return "\n\n".join(_text(modality, proposal) for modality, proposal in proposals.items())


def _text(modality: str, proposal: "Proposal | None") -> str:
    if proposal is None:
        return f"{modality}: the factory builds a smaller model without it, so no branches are needed"
    numbers = f"{proposal.cut_with_proposal:,} of {proposal.numbers:,} numbers"
    if not proposal.proposed:
        return "\n".join([f"{modality}: no submodule is its own; {numbers} exist for it alone", *proposal.left_open])
    now = f"; with what model.branches names, {proposal.cut:,}" if proposal.missing else "; all are named"
    rows = [
        [b.name, ", ".join(b.hears), f"{b.numbers:,}", "no" if b.name in proposal.missing else "yes"]
        for b in proposal.proposed
    ]
    lines = [
        f"{modality}: {numbers} exist for it alone with these branches{now}",
        table(["branch", "hears", "numbers", "named"], rows),
        *proposal.left_open,
    ]
    if proposal.missing:
        lines.append(f"to accept: --set '{proposal.setting}', where the model is trained or imported")
    return "\n".join(lines)
