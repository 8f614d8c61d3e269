"""Fixed missing patterns: only some modalities available, the same for every row; their average is FIX."""

from studies import printed
from studies.claims import (
    lead_claim,
    linear_note,
    not_best_claim,
    scores_claim,
    significance_claim,
    slips_claim,
    why_not_comparable,
)
from studies.drawing import Series, dots
from studies.layout import Layout
from studies.missing import data, filling_claim, printed_table, tables
from studies.outcome import StudyOutcome
from studies.scores import Scores, mean, read_scores

AVERAGE = "FIX"
TABLE = "fixed missing patterns"


def study(layout: Layout) -> StudyOutcome:
    """Compare methods under every fixed pattern, on the main data set."""
    main = layout.plan.main
    scores = read_scores(layout.evaluation(main))
    patterns = scores.names("fixed")
    theirs = _by_pattern(scores)
    return StudyOutcome(
        name="missing-patterns",
        title="Fixed missing patterns",
        question="What is a model worth when only some modalities are available, the same for every row?",
        tables=[
            *tables(scores, patterns, AVERAGE, f"{main}, fixed patterns"),
            printed_table(printed.FIXED_MISSING, TABLE, "available"),
        ],
        figures={"missing-patterns": _figure(scores, patterns, theirs)},
        findings=[
            lead_claim(
                "MBD consistently outperforms others under fixed patterns.",
                {main: scores},
                patterns,
                linear_note(layout),
            ),
            not_best_claim(TABLE),
            significance_claim(
                "The improvements are significant at p < 0.01 (average of patterns).", {main: scores}, AVERAGE
            ),
            filling_claim(scores, patterns, AVERAGE),
            slips_claim(TABLE),
            scores_claim(
                "MBD reaches the printed Acc2 under each pattern.",
                why_not_comparable(layout, main, scores.modalities),
                [(p, mean(scores.ours, p, "acc2"), cell.acc2) for p in patterns if (cell := theirs.get(p))]
                if scores.task == "regression"
                else [],
            ),
        ],
        data=data(scores, [*patterns, AVERAGE]),
    )


def _by_pattern(scores: Scores) -> dict[str, printed.Short]:
    """Return the paper's numbers for its own model by our names of patterns; the order of modalities does not count."""
    theirs = {frozenset(p.split("+")): row[printed.OURS] for p, row in printed.FIXED_MISSING.items()}
    found = {p: theirs.get(frozenset(p.split("+"))) for p in scores.names("fixed")}
    return {p: cell for p, cell in found.items() if cell and set(scores.modalities) == set(printed.MODALITIES)}


def _figure(scores: Scores, patterns: list[str], theirs: dict[str, printed.Short]) -> bytes:
    series = scores.series(patterns, scores.primary)
    if theirs and scores.primary == "acc2":
        values = [cell.acc2 if (cell := theirs.get(p)) else None for p in patterns]
        series.append(Series("MBD on CMU-MOSI (printed)", values, "printed"))
    label = "Acc2 (%)" if scores.primary == "acc2" else "WA (%)"
    return dots(patterns, series, title="Only these modalities are available", xlabel=label)
