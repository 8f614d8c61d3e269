"""The whole audit: every adversary on every model, the gate's decision, and all that belongs into `leakage.json`.

The models are attacked with the same rows, halves and seeds; what a model computes of the rows is extracted once
and shared by all adversaries. Each deleted modality is attacked by itself. Then everything is done again on the deleted
model and the reference after rounding and pruning (`durability`): what comes back that way was never gone. What the old
weights can do together with the new ones (`diff`) is told, and decides nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, NoReturn

from threadpoolctl import threadpool_limits
from tqdm import tqdm

from mbd.attacks import diff
from mbd.attacks.attack import Evidence
from mbd.attacks.case import Case, Stored
from mbd.attacks.durability import changed
from mbd.attacks.gate import Finding, judge_attacks, judge_epsilon, judge_utility, reasons_of
from mbd.attacks.invariants import invariants
from mbd.attacks.proxy import ProxyQuality, proxy_quality
from mbd.attacks.setting import Setting, make_setting
from mbd.attacks.suspect import Role, Suspect
from mbd.attacks.utility import utility
from mbd.errors import DataError
from mbd.evaluation.leakage import AttackRecord, LeakageRecord, Variant
from mbd.files import canonical_digest
from mbd.model.checkpoint import WEIGHTS
from mbd.params import Attacks
from mbd.training.reproducibility import reproducible

ATTACKS = ("pathway", "whitebox", "blackbox", "reconstruction", "membership", "relearn")
_DELTA = 1e-5  # at which an ε is bounded from below where none is claimed
Suspects = Mapping[Role, Suspect]


@dataclass(frozen=True)
class Audit:
    """What an audit came to."""

    record: LeakageRecord
    proxy: ProxyQuality | None
    seconds: dict[str, float]


@dataclass
class _Clock:
    """How long each part took, and a bar that moves with them."""

    bar: "tqdm[NoReturn]"
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what happens within, and show that it happens."""
        self.bar.set_description(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self.bar.update()


def run_suite(case: Case, params: Attacks, *, progress: bool = False) -> Audit:
    """Attack the models of a case and judge what was found."""
    suspects = {role: _suspect(role, stored) for role, stored in case.models.items()}
    settings = [make_setting(case.data, modality, params, retained=case.retained) for modality in case.gone]
    jobs = 3 + len(settings) * (len(ATTACKS) * (1 + len(params.variants)) + ("before" in suspects))
    with reproducible(1), threadpool_limits(1), tqdm(total=jobs, disable=not progress, unit="part") as bar:
        clock = _Clock(bar)
        with clock.part("invariants"):
            held = invariants(case)
        findings = [finding for setting in settings for finding in _attack(suspects, setting, clock)]
        with clock.part("utility"):
            worths = utility(case, suspects, params)
        with clock.part("proxy quality"):
            quality = proxy_quality(case, params)
    claims = case.after.deletion or case.after.record
    attacks, worth = judge_attacks(findings, params), judge_utility(worths, params)
    bound = judge_epsilon(findings, claims.guarantee.epsilon, claims.guarantee.delta or _DELTA, params)
    reasons = reasons_of(attacks, worth, held, bound)
    record = LeakageRecord(
        modalities=case.gone,
        models={role: stored.record.sha256 for role, stored in case.models.items()},
        data={"name": case.data.manifest.name, "digest": canonical_digest(case.data.digests())},
        suite=_specification(settings, attacks, params, case),
        attacks=attacks,
        utility=worth,
        invariants=tuple(held),
        lower_bound=bound,
        proxy=quality.facts() if quality else None,
        decision="refused" if reasons else "passed",
        reasons=reasons,
    )
    return Audit(record, quality, clock.seconds)


def _suspect(role: Role, stored: Stored) -> Suspect:
    try:
        return Suspect.of(role, stored.record, stored.tensors)
    except (KeyError, RuntimeError) as error:
        raise DataError(
            f"the weights are not those of a {stored.record.backbone} model of {', '.join(stored.record.modalities)}, "
            "so it cannot be run",
            file=stored.folder / WEIGHTS,
            way_out="give a model folder as `mbd train` or `mbd delete` leaves it",
        ) from error


def _attack(suspects: Suspects, setting: Setting, clock: _Clock) -> Iterator[Finding]:
    """Yield every measure of every attack on one modality."""
    released: dict[str, dict[Role, list[Evidence]]] = {}
    for name in ATTACKS:
        with clock.part(name):
            released[name] = {role: _adversary(name)(suspect, setting) for role, suspect in suspects.items()}
        yield from _findings(released[name], setting, "as released")
    for variant in setting.params.variants:
        roles: tuple[Role, ...] = ("after", "reference")
        altered = {role: changed(suspects[role], variant, setting.params) for role in roles}
        for name in ATTACKS:
            with clock.part(f"{name}, {variant}"):
                found = {role: _adversary(name)(suspect, setting) for role, suspect in altered.items()}
            yield from _findings(found, setting, variant)
    if "before" not in suspects:
        return
    with clock.part(diff.NAME):
        revived = diff.attack(suspects["before"], suspects["after"], setting)
    whole = [evidence for name in diff.ADVERSARIES for evidence in released[name]["before"]]
    named = [replace(old, attack=diff.NAME, measure=new.measure) for old, new in zip(whole, revived, strict=True)]
    yield from _findings({"before": named, "after": revived}, setting, "as released")


def _adversary(name: str) -> Callable[[Suspect, Setting], list[Evidence]]:
    adversary: Callable[[Suspect, Setting], list[Evidence]] = import_module(f"mbd.attacks.{name}").attack
    return adversary


def _findings(found: Mapping[Role, list[Evidence]], setting: Setting, variant: Variant) -> Iterator[Finding]:
    roles = list(found)
    for measures in zip(*found.values(), strict=True):
        yield Finding(setting.modality, variant, dict(zip(roles, measures, strict=True)))


def _specification(
    settings: list[Setting], attacks: tuple[AttackRecord, ...], params: Attacks, case: Case
) -> dict[str, Any]:
    """Return what is needed to run the same attacks again."""
    deletion = case.after.deletion
    return {
        "parameters": params.model_dump(mode="json"),
        "attacks": list(dict.fromkeys(record.attack for record in attacks)),
        "judged_together": sum(record.decision != "told" for record in attacks),
        "rows": {
            setting.modality: {
                "splits": list(params.splits),
                "attacked": len(setting.rows),
                "fit": len(setting.fit),
                "scored": len(setting.score),
                "groups_scored": len(set(setting.groups.tolist())),
                "ids_digest": canonical_digest(setting.rows.ids.tolist()),
                "attribute": setting.attribute.origin,
            }
            for setting in settings
        },
        "deletion": deletion
        and {
            "method": deletion.method,
            "guarantee": deletion.guarantee.kind,
            "epsilon": deletion.guarantee.epsilon,
            "delta": deletion.guarantee.delta,
        },
    }
