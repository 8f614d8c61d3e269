"""Varying missing rate: a share η of all inputs hidden at random; the average over the rates is MR."""

from mbd.evaluation.metrics import TITLES
from studies import printed
from studies.claims import (
    lead_claim,
    linear_note,
    listed,
    not_best_claim,
    scores_claim,
    significance_claim,
    slips_claim,
    why_not_comparable,
)
from studies.drawing import Series, lines
from studies.layout import Layout
from studies.missing import data, filling_claim, printed_table, tables
from studies.outcome import Finding, StudyOutcome
from studies.scores import Scores, mean, read_scores

AVERAGE = "MR"
TABLE = "varying missing rates"


def study(layout: Layout) -> StudyOutcome:
    """Compare methods at every missing rate, on the main data set."""
    main = layout.plan.main
    scores = read_scores(layout.evaluation(main))
    rates = scores.names("rate")
    shown = printed_table(printed.VARYING_RATE, TABLE, "missing rate")
    name, title = "missing-rates", "Varying missing rate"
    question = "How fast does a model degrade when a share η of all its inputs is hidden at random?"
    if not rates:
        why = "The rows of this data lack so much of themselves that no missing rate can be set."
        findings = [Finding("MBD consistently outperforms others at every missing rate.", "not comparable", why)]
        return StudyOutcome(name, title, question, [shown], [*findings, slips_claim(TABLE)])
    return StudyOutcome(
        name=name,
        title=title,
        question=question,
        tables=[*tables(scores, rates, AVERAGE, f"{main}, missing rates"), shown],
        figures={"missing-rates": _figure(scores)},
        findings=[
            lead_claim(
                "MBD consistently outperforms others at every missing rate.",
                {main: scores},
                rates,
                linear_note(layout),
            ),
            not_best_claim(TABLE),
            significance_claim(
                "The improvements are significant at p < 0.01 (average of rates).", {main: scores}, AVERAGE
            ),
            filling_claim(scores, rates, AVERAGE, _lost(scores)),
            slips_claim(TABLE),
            scores_claim(
                "MBD reaches the printed Acc2 at each missing rate.",
                why_not_comparable(layout, main, scores.modalities),
                _beside(scores),
            ),
        ],
        data=data(scores, [*rates, AVERAGE]),
    )


def _rate(regime: str) -> str:
    """Return the row of the paper's table that a regime represents."""
    return regime.removeprefix("η=")


def _beside(scores: Scores) -> list[tuple[str, float, float]]:
    if scores.task != "regression":
        return []
    known = [rate for rate in scores.names("rate") if _rate(rate) in printed.VARYING_RATE]
    theirs = {rate: printed.VARYING_RATE[_rate(rate)][printed.OURS].acc2 for rate in known}
    return [(rate, mean(scores.ours, rate, "acc2"), theirs[rate]) for rate in known]


def _lost(scores: Scores) -> str:
    """Return what is lost between the lowest and the highest rate that both tables have."""
    rates = [rate for rate in scores.names("rate") if _rate(rate) in printed.VARYING_RATE]
    if len(rates) < 2:
        return ""
    low, high, metric = rates[0], rates[-1], scores.primary
    lost = [f"{m.name} {mean(m, low, metric) - mean(m, high, metric):.1f}" for m in scores.methods]
    first, last = printed.VARYING_RATE[_rate(low)], printed.VARYING_RATE[_rate(high)]
    theirs = {name: first[name].acc2 - last[name].acc2 for name in first}
    gentle = min(theirs, key=theirs.__getitem__)
    return (
        f" From {low} to {high} the points of {TITLES[metric]} lost are {listed(lost)}; in print, {printed.OURS} "
        f"loses {theirs[printed.OURS]:.1f}, and {gentle} the least, {theirs[gentle]:.1f}."
    )


def _figure(scores: Scores) -> bytes:
    regimes = [regime for regime in scores.regimes if regime.kind in ("full", "rate")]
    names, metric = [regime.name for regime in regimes], scores.primary
    series = scores.series(names, metric)
    if metric == "acc2":
        theirs = [printed.VARYING_RATE.get(_rate(name)) for name in names]
        full = printed.FULL_MODALITY["mosi"][printed.OURS].acc2
        values = [
            row[printed.OURS].acc2 if row else full if name == "full" else None
            for name, row in zip(names, theirs, strict=True)
        ]
        series.append(Series("MBD on CMU-MOSI (printed)", values, "printed"))
    return lines(
        [regime.eta or 0.0 for regime in regimes],
        series,
        title=f"{TITLES[metric]} over the missing rate",
        xlabel="missing rate η (share of inputs hidden)",
        ylabel=f"{TITLES[metric]} (%)",
    )
