"""Privacy and utility over ε: whether more noise buys more privacy, and what it costs.

Two ways to spend an ε: Algorithm 1 as printed (noise on chosen coordinates), and the certified method (noise on all
that has seen the modality, then fine-tuning). The full model and the reference are lines: between them is all there is
to gain or to lose.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mbd.attacks.target_model import Role
from mbd.evaluation.metrics import TITLES as METRICS
from mbd.report.figures import COLOURS, figure_png
from studies import printed
from studies.audits import WHITE_BOX, attacks_refuse, gives_away
from studies.claims import judged, text
from studies.deleted import Beside, DeletedLine, Line, read_beside, read_deleted
from studies.deletion_claims import UTILITY_LOSS
from studies.layout import Layout
from studies.outcome import Cell, Finding, StudyOutcome, StudyTable
from studies.scores import read_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVES = {"printed": ("Algorithm 1 as printed", COLOURS[1], "s"), "certified": ("certified", COLOURS[0], "o")}
_LINES: dict[Role, tuple[str, str, str]] = {
    "before": ("full model", COLOURS[3], ":"),
    "reference": ("reference", COLOURS[2], "--"),
}
_CHANCE = 50.0


def study(layout: Layout) -> StudyOutcome:
    """Draw utility and leakage of every deletion that has an ε."""
    scores = read_scores(layout.evaluation("deleted"))
    whole = read_deleted(layout, layout.plan.deletions, scores)
    deleted = sorted((d for d in whole if d.epsilon is not None), key=lambda d: d.epsilon or 0.0)
    beside = read_beside(layout, whole, scores)
    return StudyOutcome(
        name="trade-off",
        title="Privacy–utility trade-off",
        question=(
            f"Over the ε that is asked for: what is the model worth without {layout.plan.revoked}, and how well does "
            "the white-box attack do?"
        ),
        tables=[_table(deleted, METRICS[scores.primary]), _printed_table()],
        findings=findings(deleted, beside, METRICS[scores.primary]),
        figures={"trade-off": draw(deleted, beside, f"{METRICS[scores.primary]} (%)")} if deleted else {},
    )


def _table(deleted: Sequence[DeletedLine], title: str) -> StudyTable:
    rows: list[list[Cell]] = [
        [_CURVES[d.kind][0], f"{d.epsilon:g}", d.accuracy, d.white_box, d.black_box]
        for kind in _CURVES
        for d in deleted
        if d.kind == kind
    ]
    header = ["deletion", "ε", f"{title} (%)", "ASR white-box (%)", "ASR black-box (%)"]
    return StudyTable("Utility and leakage over ε", header, rows)


def _printed_table() -> StudyTable:
    rows: list[list[Cell]] = [
        [f"{epsilon:g}", row.acc2, row.white_box, row.black_box]
        for epsilon, row in printed.DELETION.items()
        if epsilon is not None
    ]
    return StudyTable(
        "The points of the paper's figure",
        ["ε", "Acc2 (%)", "ASR white-box (%)", "ASR black-box (%)"],
        rows,
        printed=True,
    )


def draw(deleted: Sequence[DeletedLine], beside: Beside, title: str) -> bytes:
    """Draw both curves over ε, with the full model and the reference as lines."""
    epsilons = sorted({d.epsilon for d in deleted if d.epsilon})
    with figure_png((6.4, 5.4)) as (figure, png):
        above, below = figure.subplots(2, 1, sharex=True)
        for panel, name, label in ((above, "accuracy", title), (below, "white_box", "ASR, white-box (%)")):
            for kind, (text, colour, marker) in _CURVES.items():
                _curve(panel, [d for d in deleted if d.kind == kind], name, text, colour, marker)
            for role, (text, colour, style) in _LINES.items():
                value = getattr(beside[deleted[0].backbone][role], name).mean
                panel.axhline(value, color=colour, linestyle=style, label=text)
            panel.set_ylabel(label)
        below.axhline(_CHANCE, color="#888888", linewidth=1, label="chance")
        below.set_xscale("log")
        below.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        below.minorticks_off()
        below.set_xlabel("ε that is asked for")
        above.set_title("Privacy and utility over ε")
        handles, labels = below.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return png.getvalue()


def _curve(panel: "Axes", own: Sequence[DeletedLine], name: str, text: str, colour: str, marker: str) -> None:
    if not own:
        return
    values = [getattr(d, name) for d in own]
    panel.errorbar(
        [d.epsilon or 0.0 for d in own],
        [value.mean for value in values],
        yerr=[value.deviation or 0.0 for value in values],
        label=text,
        color=colour,
        marker=marker,
        capsize=2,
    )


def findings(deleted: Sequence[DeletedLine], beside: Beside, title: str) -> list[Finding]:
    """Return what became of the paper's claims about its figure."""
    found = [_printed_numbers()]
    if own := [d for d in deleted if d.kind == "printed"]:
        others = beside[own[0].backbone]
        found = [_trade_off(own, others["before"], others["reference"], title), *found]
    if own := [d for d in deleted if d.kind == "certified"]:
        others = beside[own[0].backbone]
        found.append(_certified(own, others["before"], others["reference"], title))
    return found


def _trade_off(own: Sequence[DeletedLine], before: Line, reference: Line, title: str) -> Finding:
    least, most = own[0], own[-1]
    suppressed = not gives_away(least.records, WHITE_BOX.id.partition(".")[0])
    lost = before.accuracy.mean - least.accuracy.mean
    recovered = most.accuracy.mean - least.accuracy.mean
    return Finding(
        "Smaller budgets suppress leakage with minor utility loss, larger budgets recover utility.",
        judged(suppressed and lost <= UTILITY_LOSS and recovered >= 0),
        f"Algorithm 1 as printed at ε = {least.epsilon:g}: white-box {text(least.white_box)} % (reference "
        f"{text(reference.white_box)} %), {lost:.1f} points of {title} lost. At ε = {most.epsilon:g}: white-box "
        f"{text(most.white_box)} %, {recovered:+.1f} points of {title}. What decides leakage is the cut, not ε.",
    )


def _printed_numbers() -> Finding:
    rows = sorted((epsilon, row) for epsilon, row in printed.DELETION.items() if epsilon is not None)
    (low, first), (high, last) = rows[0], rows[-1]
    cost = last.white_box.mean - first.white_box.mean
    return Finding(
        "The paper's own figure shows a trade-off: larger budgets cost indistinguishability.",
        judged(cost > 0),
        f"As printed, from ε = {low:g} to {high:g} Acc2 goes from {first.acc2.mean} to {last.acc2.mean} and white-box "
        f"success from {first.white_box.mean} to {last.white_box.mean} %: with a larger budget "
        + (
            "the attack does better."
            if cost > 0
            else "the model is worth more and leaks no more, so nothing is traded."
        ),
    )


def _certified(own: Sequence[DeletedLine], before: Line, reference: Line, title: str) -> Finding:
    worst = max(own, key=lambda d: d.white_box.mean)
    lowest, highest = (pick(own, key=lambda d: d.accuracy.mean) for pick in (min, max))
    lost = reference.accuracy.mean - lowest.accuracy.mean
    bits = max(record.facts["information_bits_at_most"] for d in own for record in d.deletions.values())
    return Finding(
        "Deletion can carry an ε at a minor loss of utility.",
        judged(lost <= UTILITY_LOSS and not any(attacks_refuse(d.records) for d in own)),
        f"The certified method has white-box {text(worst.white_box)} % at most (reference {text(reference.white_box)} "
        f"%) and {title} from {lowest.accuracy.mean:.1f} (ε = {lowest.epsilon:g}) to {highest.accuracy.mean:.1f} "
        f"(ε = {highest.epsilon:g}), beside {text(reference.accuracy)} of the reference and {text(before.accuracy)} of "
        f"the full model. The noise leaves at most {bits:.2g} bits of the old weights: the utility comes from "
        "fine-tuning.",
    )
