"""Step `delete`: from a model and a request to the model that has forgotten, and the record of how.

    model.safetensors, model.json    the new model
    deletion.json                    method, parameters, guarantee with its assumptions, budget, digests, findings
    indices.safetensors              the edited positions of each tensor of the new model

A certified deletion is entered in its lineage's ledger before the noise is drawn, and settled when the new model is in
place: killed anywhere and run again, it counts once. Where the new model is in place already and only its charge is not
settled, no noise is drawn again.

Of several processes (torchrun) the first one works.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbd.deletion.cut import requested
from mbd.deletion.methods import DeletionOutcome, ModelBefore, refuse_data, refuse_method
from mbd.deletion.reference import reference_distances
from mbd.errors import DataError, MbdError, UsageError
from mbd.files import STEP_FILE, canonical_digest, read_json, sha256_file, write_file
from mbd.formats.deletion import DELETION, DeletionRecord, DeletionTarget, IndexRecord, read_deletion
from mbd.formats.files import INDICES, WEIGHTS
from mbd.formats.guarantee import LineageBudget, claimable
from mbd.formats.predicate import Rounding
from mbd.markdown import ShownInNotebooks
from mbd.model.checkpoint import load_model, save_model
from mbd.model.compatible import open_for, refuse_foreign
from mbd.outputs import StepRun, step_run
from mbd.params import Params, params_digest
from mbd.privacy.ledger import deletion_id, open_ledger
from mbd.registry import METHODS, PluginError
from mbd.report.text import table
from mbd.steps.step import reads
from mbd.tensors import save_tensors

NAME = "delete"


@dataclass(frozen=True)
class DeletionResult(ShownInNotebooks):
    """A request that was carried out."""

    record: DeletionRecord
    seconds: Mapping[str, float]
    """phase → duration"""
    modalities: tuple[str, ...]
    """that the new model takes"""
    settled: bool = False
    """an earlier run made the model and was killed; this one only settled its charge"""

    def to_text(self) -> str:
        """Return what was deleted, how, what is guaranteed, and how long it took, for a terminal."""
        record = self.record
        request, guarantee = record.request, record.guarantee
        deleted = ", ".join(request.modalities) + (f" of {len(request.subjects)} subjects" if request.subjects else "")
        lines = [
            f"deleted: {deleted}, by the method {record.method}; left: {', '.join(self.modalities)}",
            f"guarantee: {guarantee.kind} ({guarantee.say('{claim}', deleted)})",
            *guarantee.warnings,
            "",
            *_cut_out(record.facts, record.indices.count),
            *_rounded(record.rounding),
            f"weights: {record.before[:16]}… → {record.after[:16]}…",
        ]
        if self.settled:
            lines.append("an earlier run had made this model and was killed; only its charge was settled")
        if variant := record.facts.get("variant"):
            lines.append(f"variant: {variant}")
        if spent := record.budget:
            lines.append(f"budget: ε = {spent.epsilon_before:.3g} → {spent.epsilon_after:.3g} of {spent.limit:g}")
        if distances := record.reference:
            lines += _distance(distances, record.indices.count)
        if self.seconds:
            seconds = ", ".join(f"{phase} {value:.3f}" for phase, value in self.seconds.items())
            lines.append(f"seconds: {sum(self.seconds.values()):.3f} ({seconds})")
        return "\n".join(lines)


def _cut_out(facts: Mapping[str, Any], edited: int) -> list[str]:
    """Return what a surgery removed and edited."""
    lines, cut = [], facts.get("cut")
    if cut:
        tensors, columns = len(cut["tensors_removed"]), cut["columns_removed"]
        parameters = cut["numbers_before"] - cut["numbers_after"]
        lines.append(
            f"cut out: {tensors} tensors, and input columns of {len(columns)} others ({parameters:,} parameters)"
        )
        if unused := cut.get("unused_by_all"):
            lines.append(f"left, because no modality uses it: {sum(unused.values()):,} of {', '.join(unused)}")
    selection = facts.get("selection")
    if cut and selection and not selection["salient"]:
        lines.append("Algorithm 1: the cut has removed all that is salient, so nothing is left to edit")
    elif edited:
        lines.append(f"edited one by one: {edited:,} parameters")
    return lines


def _distance(distances: Mapping[str, Any], edited: int) -> list[str]:
    """Return the distance to the reference, inside and outside the edited positions if there are any."""
    when = [moment for moment in ("before", "after") if moment in distances]
    if not edited:
        total = (f"{sum(value**2 for value in distances[moment].values()) ** 0.5:.2f} {moment}" for moment in when)
        return [f"distance to the reference: {', '.join(total)}; no parameter that both have was edited"]
    return [
        "",
        table(["distance to the reference", *distances["after"]], [[m, *distances[m].values()] for m in when]),
        "",
    ]


def _rounded(rounding: Rounding | None) -> list[str]:
    if rounding is None:
        return []
    growth = 100 * (rounding.loss_rounded / rounding.loss - 1) if rounding.loss else 0.0
    return [
        f"rounded to {rounding.mantissa_bits} bits of the mantissa: the loss on {rounding.rows:,} calibration rows "
        f"changes by {growth:+.3f} %"
    ]


@reads("model", "reference", data="features")
def run(
    params: Params,
    features: Path,
    model: Path,
    modalities: Sequence[str],
    subjects: Sequence[str],
    out: Path,
    reference: Path | None = None,
) -> DeletionResult | None:
    """Carry out a request and write the new model to `out`.

    Returns:
        The result; None in all processes of torchrun but the first.

    """
    case = _open(params, features, model, modalities, subjects, reference)
    method = METHODS.get(params.deletion.method)
    if int(os.environ.get("RANK", "0")) > 0:
        return None
    inputs = {"model": model, **({"reference": reference} if reference else {})}
    with _accounted(case, params, out) as account:
        if account.done:
            account.settle(account.done.after)
            return _result(account.done, out, settled=True)
        with step_run(NAME, out, {"deletion": params.deletion, "training": params.training}, **inputs) as step:
            digest = canonical_digest(case.original.data.digests())
            step.inputs["features"] = {"path": str(features), "digest": digest}
            outcome = method.delete(case.request, case.original, params)
            claimed = outcome.record.guarantee.kind
            if claimed not in (*claimable(method.kind), "empirical"):
                raise PluginError(f"the method {params.deletion.method} is declared {method.kind} and claims {claimed}")
            record = _write(step, case, outcome, params, account.budget)
            step.phases |= outcome.phases.seconds
            step.look_at = DELETION
        account.settle(record.after)
    return _result(record, out)


def _result(record: DeletionRecord, out: Path, *, settled: bool = False) -> DeletionResult:
    seconds, model = read_json(out / STEP_FILE).get("phases_seconds", {}), load_model(out, verify=False)[0]
    return DeletionResult(record, seconds, tuple(model.inputs), settled)


@dataclass(frozen=True)
class _Case:
    """A request that can be carried out: the model, its data, and the deletions that led to it."""

    request: DeletionTarget
    original: ModelBefore
    lineage: tuple[str, ...]
    known_ledger_entries: tuple[str, ...]


def _open(
    params: Params,
    features: Path,
    model: Path,
    modalities: Sequence[str],
    subjects: Sequence[str],
    reference: Path | None,
) -> _Case:
    record, tensors = load_model(model)
    refuse_method(params.deletion.method, record, subjects)
    if subjects and reference:
        problem = "a reference is for whole modalities, not for single subjects"
        raise UsageError(problem, key="--reference", value=reference)
    if subjects:
        refuse_foreign(record, modalities)
        gone = tuple(m for m in record.inputs if m in modalities)
    else:
        gone = requested(record, modalities)
    data = open_for(record, features)
    refuse_data(params.deletion.method, record, data, subjects)
    earlier = read_deletion(model)
    if earlier and earlier.after != record.sha256:
        raise DataError(
            "the deletion record belongs to another model",
            file=model / DELETION,
            value=f"sha256 {earlier.after}, the model has {record.sha256}",
            hint="fetch the model again",
        )
    return _Case(
        request=DeletionTarget(modalities=gone, subjects=tuple(dict.fromkeys(subjects))),
        original=ModelBefore(record, tensors, data, load_model(reference) if reference else None),
        lineage=(*(earlier.lineage if earlier else ()), record.sha256),
        known_ledger_entries=earlier.ledger_entries if earlier else (),
    )


@dataclass(frozen=True)
class _Account:
    """The place of a deletion in its lineage's budget."""

    budget: LineageBudget | None
    settle: Callable[[str], object]
    done: DeletionRecord | None = None
    """what an earlier run has done under this charge, before it was killed"""


@contextmanager
def _accounted(case: _Case, params: Params, out: Path) -> Iterator[_Account]:
    """Within: the deletion is charged to its lineage, if it is one that costs something."""
    settings, before = params.deletion, case.original.record.sha256
    cost = METHODS.get(settings.method).cost
    if cost is None or settings.noise_seed is not None:
        yield _Account(None, lambda _: None)
        return
    rho = cost(settings)
    deletion = deletion_id(before, case.request.modalities, params_digest(settings))
    with open_ledger(Path(settings.ledgers), case.lineage[0], known=case.known_ledger_entries) as ledger:
        budget = ledger.charge(
            deletion,
            rho,
            settings.delta,
            settings.budget_limit,
            before=before,
            modalities=case.request.modalities,
        )
        yield _Account(budget, lambda after: ledger.release(deletion, after), _done(out, budget.entry))


def _done(out: Path, charge: str) -> DeletionRecord | None:
    """Return the record in `out` if it names this charge and everything it lists is there and whole."""
    try:
        record = read_deletion(out)
        if record is None or record.budget is None or record.budget.entry != charge:
            return None
        model, _ = load_model(out)
        whole = model.sha256 == record.after and sha256_file(out / INDICES) == record.indices.sha256
    except (MbdError, OSError):
        return None
    return record if whole else None


def _write(
    step: StepRun, case: _Case, outcome: DeletionOutcome, params: Params, budget: LineageBudget | None
) -> DeletionRecord:
    gone, reference = case.request.modalities, case.original.reference
    distances = reference_distances(case.original, outcome, *reference, gone) if reference else None
    model = save_model(step.folder, outcome.record, outcome.tensors)
    indices = save_tensors(step.folder / INDICES, outcome.indices)
    step.known_digests |= {WEIGHTS: model.sha256, INDICES: indices}
    counts = {name: len(positions) for name, positions in outcome.indices.items()}
    data = case.original.data
    record = DeletionRecord(
        method=params.deletion.method,
        request=case.request,
        parameters=params.deletion.model_dump(mode="json"),
        guarantee=model.guarantee,
        lineage=case.lineage,
        before=case.original.record.sha256,
        after=model.sha256,
        revoked=model.revoked,
        data={"name": data.manifest.name, "digest": canonical_digest(data.digests())},
        indices=IndexRecord(sha256=indices, count=sum(counts.values()), by_tensor=counts),
        budget=budget,
        ledger_entries=(*case.known_ledger_entries, *([budget.entry] if budget else [])),
        rounding=outcome.rounding,
        reference=distances,
        facts=dict(outcome.facts),
    )
    write_file(step.folder / DELETION, record.to_json())
    return record
