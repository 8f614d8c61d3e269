"""The audit: every attack on every model, the gate's decision, and the content of `leakage.json`.

The models are attacked with the same rows, halves and seeds; outputs and activations are extracted once and shared by
all attacks. Each deleted modality is attacked separately. All attacks but `reattach` and `copies` run again on the
deleted model and the reference after quantisation and pruning: a deletion that only hides may be undone by rounding.

    int8     w → s · round(w / s),  s = max|w| / 127 for each weight tensor (symmetric), biases and scalings unchanged
    pruned   the smallest share of each weight tensor becomes 0

Both are computed on the stored weights; inference stays in floating point, so device kernels do not matter.

What the old weights reveal together with the new ones (`diff`) is informational and not part of the gate: the old
weights of m* are put into the new model, and some attacks run on it. If they succeed as before, the deletion only
unplugged m*, and a copy of its old weights brings it back; if they do no better than on the reference, the deletion
changed what these weights need. With the old weights an attacker has m* anyway, so these must be purged.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from mbd.attacks.attack import AttackEvidence
from mbd.attacks.audit_input import AuditInput, StoredModel
from mbd.attacks.context import AttackContext, make_context
from mbd.attacks.gate import GateFinding, decide, judge_attacks, judge_epsilon, judge_utility
from mbd.attacks.invariants import invariants
from mbd.attacks.target_model import Role, TargetModel
from mbd.attacks.utility import utility
from mbd.errors import DataError
from mbd.files import canonical_digest, sha256_file
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.leakage import AttackedRows, AttackRecord, LeakageRecord, ReferenceModel, SuiteRecord, Variant
from mbd.logs import progress_bar
from mbd.params.deletion import AttacksSettings, WeightChange
from mbd.registry import ATTACKS
from mbd.tensors import Array, is_float
from mbd.training.reproducibility import reproducible

_LEVELS = 127  # of int8, on each side of 0
_DELTA = 1e-5  # δ of the lower bound on ε if none is claimed
_ALTERED: tuple[Role, ...] = ("after", "reference")  # the models that are quantised and pruned
_REVIVED = ("blackbox", "reconstruction")  # the attacks on the new model with the old weights in it
TargetModels = Mapping[Role, TargetModel]


@dataclass(frozen=True)
class Audit:
    """The result of an audit."""

    record: LeakageRecord
    seconds: dict[str, float]


@dataclass
class _Clock:
    """How long each part took, and a progress bar."""

    bar: "tqdm[NoReturn]"
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part and show it in the progress bar."""
        self.bar.set_description(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self.bar.update()


def run_suite(
    audit: AuditInput,
    params: AttacksSettings,
    *,
    progress: bool = False,
    measured: "dict[tuple[str, str, str], list[AttackEvidence]] | None" = None,
) -> Audit:
    """Attack the models of an audit and judge the results.

    Args:
        audit: The models and the data.
        params: What is attacked, and how.
        progress: Whether a bar is shown.
        measured: Evidence of other audits of the same data by the same parameters, to which this one adds: a model that
            is in several (the reference) is attacked once.

    """
    target_models = {role: _target_model(role, stored, audit) for role, stored in audit.models.items()}
    contexts = [make_context(audit.data, modality, params, retained=audit.retained) for modality in audit.gone]
    changes = len(params.variants) * len(_ALTERED)
    runs = sum(len(_attacks(params, altered=a)) * n for a, n in ((False, len(target_models)), (True, changes)))
    jobs = 2 + len(contexts) * (runs + ("before" in target_models))
    with reproducible(1), threadpool_limits(1), progress_bar(total=jobs, shown=progress, unit="part") as bar:
        clock = _Clock(bar)
        with clock.part("invariants"):
            held = invariants(audit)
        attacked = _Runs(clock, {} if measured is None else measured)
        findings = [finding for each in contexts for finding in _attack(target_models, each, attacked)]
        with clock.part("utility"):
            utilities = utility(audit, target_models, params)
    claims = audit.after.deletion or audit.after.record
    attacks, measured_utility = judge_attacks(findings, params), judge_utility(utilities, params)
    bound = judge_epsilon(findings, claims.guarantee.epsilon, claims.guarantee.delta or _DELTA, params)
    record = LeakageRecord(
        modalities=audit.gone,
        models={role: stored.record.sha256 for role, stored in audit.models.items()},
        reference=ReferenceModel(
            record=sha256_file(audit.reference.folder / MODEL),
            modalities=tuple(audit.reference.record.inputs),
            shapes=audit.reference.record.shapes_digest(),
        ),
        data={"name": audit.data.manifest.name, "digest": canonical_digest(audit.data.digests())},
        suite=_specification(contexts, attacks, params, audit),
        earlier=None,
        attacks=attacks,
        utility=measured_utility,
        invariants=tuple(held),
        lower_bound=bound,
        decision="passed",
        reasons=(),
    )
    return Audit(decide(record, claims.guarantee.kind), clock.seconds)


def _target_model(role: Role, stored: StoredModel, audit: AuditInput) -> TargetModel:
    try:
        return TargetModel.of(role, stored.record, stored.tensors, audit.data.shapes)
    except (KeyError, RuntimeError) as error:
        raise DataError(
            f"these are not the weights of a {stored.record.backbone} model of {', '.join(stored.record.modalities)}, "
            "so it cannot be run",
            file=stored.folder / WEIGHTS,
            hint="give a model folder written by `mbd train` or `mbd delete`",
        ) from error


def _attack(target_models: TargetModels, attack_context: AttackContext, runs: "_Runs") -> Iterator[GateFinding]:
    """Yield every measure of every attack on one modality."""
    released = {role: runs.attack(model, attack_context, "as released") for role, model in target_models.items()}
    yield from _findings(released, attack_context, "as released")
    for variant in attack_context.params.variants:
        # One by one: a changed model is in memory only while it is attacked.
        altered = {
            role: runs.attack(changed(target_models[role], variant, attack_context.params), attack_context, variant)
            for role in _ALTERED
        }
        yield from _findings(altered, attack_context, variant)
    if "before" not in target_models:
        return
    with runs.clock.part("diff"):
        revived = target_models["after"].with_old(target_models["before"], attack_context.modality)
        again = {name: runs.evidence(name, revived, attack_context) for name in _REVIVED}
    for name, evidence in again.items():
        for old, new in zip(released["before"][name], evidence, strict=True):
            renamed = partial(replace, attack="diff", measure=f"{name}_{new.measure}")
            yield GateFinding(attack_context.modality, "as released", {"before": renamed(old), "after": renamed(new)})


@dataclass
class _Runs:
    """Attacks; models of the same bytes give the same evidence, so each is attacked once."""

    clock: _Clock
    found: dict[tuple[str, str, str], list[AttackEvidence]]

    def attack(
        self, target_model: TargetModel, attack_context: AttackContext, variant: Variant
    ) -> dict[str, list[AttackEvidence]]:
        """Return the evidence of every attack on one model."""
        found = {}
        for name in _attacks(attack_context.params, altered=variant != "as released"):
            with self.clock.part(name if variant == "as released" else f"{name}, {variant}"):
                found[name] = self.evidence(name, target_model, attack_context)
        return found

    def evidence(self, name: str, target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
        """Return the evidence of one attack on one model."""
        key = attack_context.modality, name, target_model.digest
        if key not in self.found:
            measured = ATTACKS.get(name).run(target_model, attack_context)
            self.found[key] = [replace(evidence, attack=name) for evidence in measured]
        return self.found[key]


def _attacks(params: AttacksSettings, *, altered: bool) -> tuple[str, ...]:
    """Return the names of the attacks: every built-in one, and those that the parameters add."""
    names = (*ATTACKS.builtin, *params.also)
    return tuple(name for name in names if ATTACKS.get(name).altered or not altered)


def _findings(
    found: Mapping[Role, Mapping[str, list[AttackEvidence]]], attack_context: AttackContext, variant: Variant
) -> Iterator[GateFinding]:
    """Yield each measure of each attack (role → attack → measures) of all models."""
    measures = [[evidence for measured in of_role.values() for evidence in measured] for of_role in found.values()]
    for same in zip(*measures, strict=True):
        yield GateFinding(attack_context.modality, variant, dict(zip(found, same, strict=True)))


def _specification(
    contexts: list[AttackContext], attacks: tuple[AttackRecord, ...], params: AttacksSettings, audit: AuditInput
) -> SuiteRecord:
    deletion = audit.after.deletion
    return SuiteRecord(
        parameters=params.model_dump(mode="json"),
        # where the attacks that are not built in come from, and what they measure
        added={name: {"package": ATTACKS.provider(name), "asks": ATTACKS.get(name).asks} for name in params.also},
        judged_together=sum(record.decision != "informational" for record in attacks),
        rows={attack_context.modality: _attacked_rows(attack_context) for attack_context in contexts},
        deletion=deletion
        and {
            "method": deletion.method,
            "guarantee": deletion.guarantee.kind,
            "epsilon": deletion.guarantee.epsilon,
            "delta": deletion.guarantee.delta,
        },
    )


def _attacked_rows(attack_context: AttackContext) -> AttackedRows:
    return AttackedRows(
        splits=attack_context.params.splits,
        attacked=len(attack_context.rows),
        fit=len(attack_context.fit),
        scored=len(attack_context.score),
        groups_scored=len(set(attack_context.groups.tolist())),
        ids_digest=canonical_digest(attack_context.rows.ids.tolist()),
        attribute=attack_context.attribute.origin,
    )


def changed(target_model: TargetModel, variant: WeightChange, params: AttacksSettings) -> TargetModel:
    """Return the model after quantisation or pruning."""
    if variant == "int8":
        return _on_weights(target_model, to_int8_and_back)
    return _on_weights(target_model, lambda tensor: prune(tensor, params.pruned_share))


def to_int8_and_back(tensor: Array) -> Array:
    """Return a tensor after symmetric quantisation to 8 bits and back."""
    scale = float(np.abs(tensor, where=np.isfinite(tensor), out=np.zeros_like(tensor)).max(initial=0)) / _LEVELS
    if scale < np.finfo(np.float32).tiny:  # a step that float32 cannot have: there is nothing to round
        return tensor
    levels = np.clip(np.round(np.nan_to_num(tensor / scale)), -_LEVELS, _LEVELS).astype(np.int8)
    return (levels * scale).astype(tensor.dtype)


def prune(tensor: Array, share: float) -> Array:
    """Return a tensor whose smallest values (by magnitude, a share of all) are 0."""
    count = int(share * tensor.size)
    pruned = np.array(tensor, order="C")
    if count:
        flat = pruned.reshape(-1)
        sizes = np.fmin(np.abs(flat), np.inf)  # what is no number counts as large
        largest = np.partition(sizes, count - 1)[count - 1]
        smaller = sizes < largest
        smaller[np.flatnonzero(sizes == largest)[: count - int(smaller.sum())]] = True  # the first of equal ones
        np.copyto(flat, 0, where=smaller)
    return pruned


def _on_weights(target_model: TargetModel, change: Callable[[Array], Array]) -> TargetModel:
    """Apply `change` to every matrix of floating-point weights; vectors and numbers are offsets, scales and counts."""
    return target_model.with_tensors(
        {
            name: change(tensor) if tensor.ndim > 1 and is_float(tensor) else tensor
            for name, tensor in target_model.tensors.items()
        }
    )
