"""What a deletion came to, for the terminal."""

from collections.abc import Mapping
from typing import Any

from mbd.formats.deletion import DeletionRecord
from mbd.report.text import table

_KINDS = {
    "empirical": "empirical: nothing is proven; the attacks have to show that nothing is left",
    "certified": "certified",
    "exact": "exact: what is left is, bit for bit, what training without it gives",
}


def deletion_summary(summary: Mapping[str, Any]) -> str:
    """Return what was deleted, how, what is guaranteed, and how long it took."""
    record: DeletionRecord = summary["record"]
    request, guarantee = record.request, record.guarantee
    of = f" of {', '.join(request.subjects)}" if request.subjects else ""
    claim = _KINDS[guarantee.kind]
    if guarantee.kind == "certified":
        claim += f": ε = {guarantee.epsilon:g}, δ = {guarantee.delta:g}"
    lines = [
        f"deleted {', '.join(request.modalities)}{of} by {record.method}; left: {', '.join(summary['modalities'])}",
        f"guarantee: {claim}",
        *_removed(record.facts.get("cut")),
        f"edited positions: {record.indices.count:,}",
        f"weights: {record.before[:16]}… → {record.after[:16]}…",
    ]
    if summary.get("settled"):
        lines.append("an earlier run had done it before it was killed; only its charge had to be settled")
    if variant := record.facts.get("variant"):
        lines.append(f"variant: {variant}")
    if record.budget:
        spent = record.budget
        lines.append(f"budget: ε = {spent.epsilon_before:.3g} → {spent.epsilon_after:.3g} of {spent.limit:g}")
    if record.reference:
        told = [when for when in ("before", "after") if when in record.reference]
        rows = [[when, *record.reference[when].values()] for when in told]
        lines += ["", table(["distance to the reference", *record.reference["after"]], rows)]
    seconds = [[phase, f"{value:.3f}"] for phase, value in summary["seconds"].items()]
    return "\n".join([*lines, "", table(["phase", "seconds"], seconds)])


def _removed(cut: Mapping[str, Any] | None) -> list[str]:
    if not cut:
        return []
    tensors, columns = len(cut["tensors_removed"]), cut["columns_removed"]
    numbers = cut["numbers_before"] - cut["numbers_after"]
    return [f"cut out: {tensors} tensors, and input columns of {len(columns)} others ({numbers:,} numbers)"]
