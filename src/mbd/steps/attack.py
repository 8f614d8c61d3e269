"""Step `attack`: what adversaries still get out of a deleted model, beside the model before and the reference.

    leakage.json      every attack, utility, invariant and threshold, and the gate's decision
    report.md         the same for reading
    metrics.json      headline numbers
    figures/*.png     leakage with intervals, the same after rounding and pruning

A refused model leaves all of these too, so that anyone can see why; then the step ends with exit code 3.

Every audit is recorded beside the ledgers (`deletion.ledgers`), by the weights that were deleted from and the
modalities; the next one of any such deletion states how many there were and how many were refused. The same audit again
counts once and has the same bytes.
"""

import fcntl
import html
import json
import logging
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from mbd.files import canonical_digest, to_json, write_file
from mbd.formats.files import METRICS, REPORT
from mbd.formats.leakage import LEAKAGE, EarlierAudits, LeakageRecord
from mbd.outputs import StepRun, step_run
from mbd.params import Params
from mbd.report.figures import draw_leakage, forest_plot
from mbd.report.page.audit import audit_page, audit_plots, audit_summary, leakage_metrics
from mbd.report.page.markdown import to_markdown
from mbd.steps.step import reads

NAME = "attack"
_LOG = logging.getLogger(__name__)


class AuditResult(LeakageRecord):
    """The record of an audit; notebooks show the decision, and each measure before, after and on the reference."""

    def __repr__(self) -> str:
        return audit_summary(self).splitlines()[0]

    def _repr_html_(self) -> str:
        drawn = [b64encode(forest_plot(plot)).decode() for plot in audit_plots(self) if not plot.folded]
        plots = [f'<img width="700" src="data:image/png;base64,{png}">' for png in drawn]
        return f"<b>{html.escape(repr(self))}</b><br>{''.join(plots)}"


@reads("before", "after", "reference", data="features")
def run(
    params: Params,
    features: Path,
    before: Path | None,
    after: Path,
    reference: Path,
    modalities: Sequence[str],
    out: Path,
    *,
    show: Callable[[str], object] = lambda _: None,
) -> AuditResult:
    """Attack the model `after` and write what was found; then refuse it, or return the record.

    `before` is None where that model is gone, as in a later audit. `show` gets a summary before the gate decides.

    Raises:
        GateRefusedError: the gate refuses the model.
    """
    from mbd.attacks.audit_input import open_audit  # noqa: PLC0415 -- needs torch
    from mbd.attacks.gate import refuse  # noqa: PLC0415
    from mbd.attacks.suite import run_suite  # noqa: PLC0415

    audit_input = open_audit(features, before, after, reference, modalities)
    released = audit_input.after
    inputs = {**({"before": before} if before else {}), "after": after, "reference": reference}
    with step_run(NAME, out, {"attacks": params.attacks}, **inputs) as step:
        step.inputs["features"] = {"path": str(features), "digest": canonical_digest(audit_input.data.digests())}
        audit = run_suite(audit_input, params.attacks, progress=True)
        # a release that names no weights it was deleted from is counted by its own
        own = released.deletion.before if released.deletion else released.record.sha256
        deleted_from = audit_input.before.record.sha256 if audit_input.before else own
        record = counted(audit.record, deleted_from, Path(params.deletion.ledgers))
        _write(step, record, draw_leakage(record) if params.attacks.figures else {})
        step.phases |= audit.seconds
    show("\n".join([audit_summary(record), *released.record.guarantee.warnings]))
    refuse(record, out / REPORT)
    return AuditResult(**dict(record))


def _write(step: StepRun, record: LeakageRecord, figures: Mapping[str, bytes]) -> None:
    write_file(step.folder / LEAKAGE, record.to_json())
    write_file(step.folder / METRICS, to_json(leakage_metrics(record)))
    write_file(step.folder / REPORT, to_markdown(audit_page(record), figures))
    (step.folder / "figures").mkdir()
    for name, png in figures.items():
        write_file(step.folder / "figures" / f"{name}.png", png)
    step.look_at = REPORT


def counted(record: LeakageRecord, before: str, ledgers: Path) -> LeakageRecord:
    """Enter an audit under the weights that were deleted from; return it with the number of those before it."""
    lineage = canonical_digest({"before": before, "modalities": sorted(record.modalities)})
    file, name = ledgers / "audits" / f"{lineage}.jsonl", canonical_digest(record.to_plain())
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.seek(0)
            decisions = {entry["audit"]: entry["decision"] for entry in map(json.loads, stream)}
            if name not in decisions:
                stream.write(json.dumps({"audit": name, "decision": record.decision}) + "\n")
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("audits of this model are not counted: %s: %s", file, error)
        return record
    earlier = list(takewhile(lambda entry: entry != name, decisions))
    refused = sum(decisions[entry] == "refused" for entry in earlier)
    return record.model_copy(update={"earlier": EarlierAudits(audits=len(earlier), refused=refused)})
