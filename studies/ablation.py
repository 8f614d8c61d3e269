"""The paper's ablation: the model without one part of it, averaged over fixed patterns (FIX) and missing rates (MR).

Seven rows, of which two are the same model here: surgery comes after training, so a model "without controlled
unlearning" has the very weights of the full one.
"""

from collections.abc import Mapping
from dataclasses import asdict

from mbd.evaluation.metrics import TITLES
from mbd.evaluation.results import Comparison, EvaluatedMethod
from studies import printed
from studies.claims import OWN_TABLE, judged, listed, p_text
from studies.drawing import Series, dots
from studies.layout import Layout
from studies.outcome import Cell, Finding, StudyOutcome, StudyTable
from studies.scores import Scores, difference, gap, read_scores, spread_of

PARTS = {"no-property": "property pathway", "no-reconstruction": "reconstruction", "no-fusion": "fusion"}
BOTH = "no-property-no-reconstruction"
_SEEDS_FOR_TEST = 3
_SURE = 0.05
Drops = Mapping[str, Mapping[str, float]]
"""points that a variant has less than the full model, by regime and variant"""


def study(layout: Layout) -> StudyOutcome:
    """Compare the full model with every variant of the plan, on the main data set."""
    scores = read_scores(layout.evaluation("ablation"))
    full = scores.ours
    variants = {name: method for name in layout.plan.variants if (method := scores.method(name))}
    regimes = [regime for regime in ("FIX", "MR") if scores.has(regime)]
    compared = {
        regime: {name: difference(full, method, regime, scores.primary) for name, method in variants.items()}
        for regime in regimes
    }
    drops = {regime: {name: c.difference for name, c in found.items()} for regime, found in compared.items()}
    return StudyOutcome(
        name="ablation",
        title="Ablation",
        question="Which parts of the paper's model carry its performance when modalities are missing?",
        tables=[_ours(layout.plan.main, scores, variants, compared), _printed()],
        figures={"ablation": _figure(scores, compared)},
        findings=[_every_part(scores, compared), _largest(drops), _together(drops), _own_table(), _unlearning()],
        data={
            "metric": scores.primary,
            "full minus variant": {
                regime: {name: asdict(comparison) for name, comparison in found.items()}
                for regime, found in compared.items()
            },
        },
    )


def _ours(
    main: str, scores: Scores, variants: Mapping[str, EvaluatedMethod], compared: Mapping[str, Mapping[str, Comparison]]
) -> StudyTable:
    order = [name for name in printed.ABLATION if name in variants or name in (printed.UNLEARNING, printed.FULL)]
    order = [*(name for name in variants if name not in order), *order]

    def row(name: str) -> list[Cell]:
        method = variants.get(name, scores.ours)
        values: list[Cell] = [spread_of(method, regime, metric) for regime in compared for metric in scores.shown]
        if name not in variants:
            return [printed.VARIANTS[name], *values, *["–"] * len(compared)]
        tests: list[Cell] = [_test(found[name]) for found in compared.values()]
        return [printed.VARIANTS.get(name, name), *values, *tests]

    return StudyTable(
        f"{main}: the joint backbone without some of its parts",
        [
            "variant",
            *(f"{regime} {TITLES[metric]}" for regime in compared for metric in scores.shown),
            *(f"{regime}: change of {TITLES[scores.primary]}" for regime in compared),
        ],
        [row(name) for name in order],
        note=(
            f"“{printed.VARIANTS[printed.UNLEARNING]}” is the full model itself: surgery comes after training. "
            "The change is against the full model, with p of the paired t-test over seeds where there are three."
        ),
    )


def _test(comparison: Comparison) -> str:
    change = f"{-comparison.difference:+.1f}"
    return f"{change} ({p_text(comparison)})" if comparison.pairs >= _SEEDS_FOR_TEST else change


def _printed() -> StudyTable:
    return StudyTable(
        "CMU-MOSI, ablation",
        ["variant", *(f"{regime} {TITLES[metric]}" for regime in ("FIX", "MR") for metric in printed.Short._fields)],
        [[printed.VARIANTS[name], *row.fix, *row.mr] for name, row in printed.ABLATION.items()],
        note="The last row repeats the averages of the tables on missing modalities, with their slips.",
        printed=True,
    )


def _figure(scores: Scores, compared: Mapping[str, Mapping[str, Comparison]]) -> bytes:
    names = list(next(iter(compared.values()), {}))
    rows = [printed.VARIANTS.get(name, name) for name in names]
    series = [
        Series(
            f"{regime}, ours",
            [gap(scores.ours, method, regime, scores.primary) for name in names if (method := scores.method(name))],
        )
        for regime in compared
    ] + [
        Series(f"{regime}, printed (CMU-MOSI)", [_printed_drops(regime).get(name) for name in names], "printed")
        for regime in compared
    ]
    xlabel = f"points of {TITLES[scores.primary]} lost against the full model"
    return dots(rows, series, title="What each part is worth", xlabel=xlabel, zero=True)


def _printed_drops(regime: str) -> dict[str, float]:
    """Return the points of Acc2 that each printed variant has less than the printed full model."""
    return {
        name: getattr(printed.ABLATION[printed.FULL], regime.lower()).acc2 - getattr(row, regime.lower()).acc2
        for name, row in printed.ABLATION.items()
        if name != printed.FULL
    }


def _every_part(scores: Scores, compared: Mapping[str, Mapping[str, Comparison]]) -> Finding:
    claim = "Property embeddings, reconstruction and fusion account for the gains: without any of them it is worse."
    tests = [comparison for found in compared.values() for comparison in found.values()]
    if not tests:
        return Finding(claim, "not comparable", "No variant was measured.")
    parts = [
        f"{_called(name)} {' / '.join(f'{-found[name].difference:+.1f}' for found in compared.values())}"
        for name in next(iter(compared.values()))
    ]
    worse = sum(comparison.difference > 0 for comparison in tests)
    sure = sum(c.difference > 0 and c.p is not None and c.p < _SURE for c in tests)
    return Finding(
        claim,
        judged(worse == len(tests)),
        f"Change of {TITLES[scores.primary]} ({' / '.join(compared)}): {listed(parts)}. {worse} of {len(tests)} "
        f"changes are losses, {sure} of them with p < {_SURE} ({tests[0].pairs} seed{'s' * (tests[0].pairs > 1)}).",
    )


def _largest(drops: Drops) -> Finding:
    claim = "The property pathway and the reconstruction module make the largest individual contributions."
    if not drops or any(name not in found for found in drops.values() for name in PARTS):
        return Finding(claim, "not comparable", f"It takes the variants {listed(list(PARTS))}.")
    parts, right = [], True
    for regime, found in drops.items():
        order = sorted(PARTS, key=lambda name: -found[name])
        right &= order[-1] == "no-fusion" and all(found[name] > 0 for name in order[:2])
        parts.append(f"{regime}: {listed([f'{PARTS[name]} {found[name]:z.1f}' for name in order])}")
    return Finding(claim, judged(right), f"Points lost without each part, largest first: {listed(parts)}.")


def _together(drops: Drops) -> Finding:
    claim = "Removing property pathway and reconstruction together does the most harm."
    singles = [name for name in PARTS if all(name in found for found in drops.values())]
    if not drops or not singles or any(BOTH not in found for found in drops.values()):
        return Finding(claim, "not comparable", f"It takes the variant {BOTH} and those without one part.")
    worst = {regime: max(singles, key=found.__getitem__) for regime, found in drops.items()}
    parts = [
        f"{regime}: {found[BOTH]:z.1f} points lost by both together, {found[worst[regime]]:.1f} without "
        f"{PARTS[worst[regime]]} alone"
        for regime, found in drops.items()
    ]
    right = all(found[BOTH] > found[worst[regime]] for regime, found in drops.items())
    return Finding(claim, judged(right), f"{listed(parts)}.")


def _own_table() -> Finding:
    order = {regime: sorted(PARTS, key=lambda n: -_printed_drops(regime)[n]) for regime in ("FIX", "MR")}
    parts = [
        f"{regime}: {listed([f'{PARTS[name]} {_printed_drops(regime)[name]:.1f}' for name in names])}"
        for regime, names in order.items()
    ]
    return Finding(
        f"The property pathway and the reconstruction module make the largest individual contributions ({OWN_TABLE}).",
        judged(all(names[-1] == "no-fusion" for names in order.values())),
        f"By the printed Acc2 the points lost without each part are, largest first, {listed(parts)}.",
    )


def _unlearning() -> Finding:
    parts = [f"{_printed_drops(regime)[printed.UNLEARNING]:.1f} points ({regime})" for regime in ("FIX", "MR")]
    return Finding(
        f"Without controlled unlearning the model loses {listed(parts)}.",
        "does not hold",
        "Surgery edits the weights after training, on request. A model that is never edited is the full model: the "
        "same weights, hence the same scores, so this row cannot differ from the last one. What else was left out, the "
        "paper does not say.",
    )


def _called(name: str) -> str:
    return printed.VARIANTS.get(name, name)
