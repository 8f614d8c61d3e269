"""Step `compare`: the three kinds of guarantee side by side, for one modality of the same data.

The deletion that was made is one column; the other methods are carried out beside it, as far as model and data allow:
exact on a separable model (a lattice, trained for it if the model is not separable), certified and surgery on the model
itself.

    comparison.json    every column
    comparison.txt     the table, 100 columns wide

What is made for comparison is attacked as it is, without its rounded and pruned variants, and then removed: it is never
certified, and a certified deletion made here is charged to a ledger that is removed with it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from mbd.errors import GateRefusedError, MbdError, UsageError
from mbd.files import STEP_FILE, read_json, to_json, write_file
from mbd.formats.deletion import DELETION, DeletionRecord, read_deletion
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.markdown import ShownInNotebooks
from mbd.model.checkpoint import load_model
from mbd.outputs import step_run
from mbd.params import Params
from mbd.registry import BACKBONES
from mbd.report.page.audit import leaks
from mbd.report.text import table
from mbd.shredding.private_folder import private_folder
from mbd.steps import attack, delete, train
from mbd.steps.step import reads

NAME = "compare"
COMPARISON = "comparison.json"
TABLE = "comparison.txt"
METHODS = ("exact", "certified", "surgery")
_WIDTH = 100
_MADE = ("for comparison only", "released")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ComparedDeletion:
    """One way to delete: what it proves, what it costs, and what attacks find after it."""

    method: str
    backbone: str
    released: bool
    """whether it is the deletion that was made; the others are made for comparison"""
    kind: str
    proven: str
    utility: str
    """the first judged metric after the deletion, beside the reference and the model before"""
    seconds: float
    """duration of the deletion, without attacks"""
    found_before: int
    """measures of attacks that find the modality in the model before"""
    found_after: int
    """measures that find more than in the reference after the deletion"""
    measures: int
    """measures that were judged, on the weights as released"""


@dataclass(frozen=True)
class MethodComparison(ShownInNotebooks):
    """The result of a comparison."""

    modalities: tuple[str, ...]
    deletions: tuple[ComparedDeletion, ...]
    left_out: Mapping[str, str]
    """method → why it could not be carried out"""

    def to_text(self, width: int = _WIDTH) -> str:
        """Return a table with a column for each method."""
        columns = self.deletions
        leaks_of = [f"{c.found_before} of {c.measures} before, {c.found_after} after" for c in columns]
        rows = [
            ["guarantee", *(each.kind for each in columns)],
            ["proven", *(each.proven for each in columns)],
            ["made", *(f"{c.backbone} backbone, {_MADE[c.released]}" for c in columns)],
            ["utility", *(each.utility for each in columns)],
            [
                "time of the deletion",
                *(f"{c.seconds:.1f} s" if c.seconds >= 1 else f"{1000 * c.seconds:.1f} ms" for c in columns),
            ],
            ["attacks that find it", *leaks_of],
        ]
        title = f"Ways to forget {', '.join(self.modalities)}:"
        notes = [f"{name} is left out: {reason}" for name, reason in self.left_out.items()]
        return "\n".join([title, "", table(["", *(each.method for each in columns)], rows, width), *notes])


@reads("model", "reference", "deletion", "leakage", data="features")
def run(
    params: Params, features: Path, model: Path, reference: Path, deletion: Path, leakage: Path, out: Path
) -> MethodComparison:
    """Compare a deletion from `model`, and the attacks on it, with the other methods; `reference` is of its kind."""
    record = read_deletion(deletion)
    if record is None:
        raise UsageError("there is no deletion record", file=deletion / DELETION, hint="`mbd delete` writes one")
    if record.request.subjects:
        raise UsageError("only deletions of whole modalities are compared", file=deletion / DELETION)
    inputs = {"features": features, "model": model, "reference": reference, "deletion": deletion, "leakage": leakage}
    sections = {"training": params.training, "deletion": params.deletion, "attacks": params.attacks}
    with step_run(NAME, out, sections, **inputs) as step, private_folder(gettempdir()) as work:
        made = _column(record, leakage, deletion, released=True)
        left_out: dict[str, str] = {}
        others = {each.method: each for each in _others(params, features, model, reference, record, work, left_out)}
        columns = others | {made.method: made}
        comparison = MethodComparison(
            modalities=record.request.modalities,
            deletions=tuple(columns[name] for name in dict.fromkeys((*METHODS, made.method)) if name in columns),
            left_out=left_out,
        )
        write_file(step.folder / COMPARISON, to_json(asdict(comparison)))
        write_file(step.folder / TABLE, comparison.to_text() + "\n")
        step.look_at = TABLE
    return comparison


def _others(
    params: Params,
    features: Path,
    model: Path,
    reference: Path,
    made: DeletionRecord,
    work: Path,
    left_out: dict[str, str],
) -> Iterator[ComparedDeletion]:
    """Carry out and attack the methods that the deletion was not made by; enter those that cannot be in `left_out`."""
    backbone, gone = load_model(model, verify=False)[0].backbone, made.request.modalities
    # exact deletion drops parts of a model, so it needs a backbone of which that is true
    separable = next(name for name in (backbone, *BACKBONES.builtin) if BACKBONES.get(name).separable)
    for method in METHODS:
        folder, kind = work / method, separable if method == "exact" else backbone
        own = _settings(params, method, kind, folder)
        if method == made.method:
            continue
        _LOG.info("for comparison: %s on %s", method, kind)
        base, beside = model, reference
        try:
            if kind != backbone:
                base, beside = folder / "model", folder / "reference"
                train.run(own, features, base)
                train.run(own, features, beside, without=gone)
            yield _carried_out(own, features, base, beside, gone, folder)
        except MbdError as error:
            left_out[method] = error.problem


def _settings(params: Params, method: str, backbone: str, folder: Path) -> Params:
    deletion = {"deletion.method": method, "deletion.ledgers": str(folder / "ledgers")}
    model = {"model.backbone": backbone} if method == "exact" else {}
    return params.having({**deletion, **model, "attacks.variants": (), "attacks.figures": False})


def _carried_out(
    params: Params, features: Path, base: Path, reference: Path, gone: Sequence[str], folder: Path
) -> ComparedDeletion:
    deleted, leakage = folder / "deleted", folder / "leakage"
    done = delete.run(params, features, base, gone, (), deleted, reference)
    if done is None:
        raise UsageError("a comparison runs in one process", key="RANK")
    with suppress(GateRefusedError):  # such an audit is too weak for a certificate; its measures are what counts here
        attack.run(params, features, base, deleted, reference, gone, leakage)
    return _column(done.record, leakage, deleted, released=False)


def _column(record: DeletionRecord, leakage: Path, deleted: Path, *, released: bool) -> ComparedDeletion:
    audit = LeakageRecord.read(leakage / LEAKAGE, "audit", "`mbd attack` writes one")
    if audit.models["after"] != record.after:
        raise UsageError("the audit is of another model", file=leakage / LEAKAGE, value=audit.models["after"])
    measured = leaks(audit)
    utility = next(u for u in audit.utility if u.decision != "informational")
    before = f", before {utility.before.value:.4g}" if utility.before else ""
    names = ", ".join(record.request.modalities)
    proven = record.guarantee.say("{claim}", names) if record.guarantee.rules.proven else "nothing"
    if proven.startswith("("):
        proven = proven.replace(", ", ",", 1)  # no blank within (ε, δ), where a table would break the line
    phases: dict[str, Any] = read_json(deleted / STEP_FILE).get("phases_seconds", {})
    return ComparedDeletion(
        method=record.method,
        backbone=load_model(deleted, verify=False)[0].backbone,
        released=released,
        kind=record.guarantee.kind,
        proven=proven,
        utility=f"{utility.metric} {utility.after.value:.4g} (reference {utility.reference.value:.4g}{before})",
        seconds=round(sum(phases.values()), 6),
        found_before=measured.before,
        found_after=measured.after,
        measures=measured.measures,
    )
