"""Judging what the paper claims: sentences whose numbers come from what was measured.

On synthetic data, and on data that the paper did not use, scores say nothing about the paper's scores. What can be
judged there is what a claim says of methods on the same rows: their order, how far apart they are, what they lose.
"""

from collections.abc import Mapping, Sequence

from mbd.evaluation.metrics import TITLES
from mbd.evaluation.results import Comparison, Spread
from studies import printed
from studies.layout import Layout
from studies.outcome import Finding, Verdict, cell_text
from studies.plan import SYNTHETIC
from studies.scores import Scores, mean, spread_of

SIGNIFICANT = 0.01
"""the p below which the paper calls a difference significant"""
OWN_TABLE = "in the paper's own table"
"""what the claims have in common that the printed numbers decide, whatever data was measured"""
_POINT = 1.0
"""how far below a printed score, in percent, ours still counts as reaching it"""


def lead_claim(claim: str, scores: Mapping[str, Scores], regimes: Sequence[str], more: str = "") -> Finding:
    """Judge whether the paper's model is best on the same rows, in each of `regimes` of each data set."""
    parts, wins, cells = [], 0, 0
    for data, found in scores.items():
        metric = found.primary
        known = [regime for regime in regimes if found.has(regime)]
        leads = {regime: found.lead(regime, metric).difference for regime in known}
        wins += sum(lead > 0 for lead in leads.values())
        cells += len(leads)
        worst = min(leads, key=leads.__getitem__)
        other = found.best_other(worst, metric)
        parts.append(
            f"on {data} {found.ours.name} has {TITLES[metric]} {text(spread_of(found.ours, worst, metric))} and "
            f"{other.name} {mean(other, worst, metric):.1f} ({worst}, {leads[worst]:+.1f} points)"
        )
    where = "" if cells == len(scores) else f"The paper's model is ahead in {wins} of {cells} regimes; at its worst, "
    start = where or "With all methods on the same rows, "
    return Finding(
        claim,
        judged(wins == cells),
        f"{start}{listed(parts)}. The paper's competitors are not run here: its model is compared with the lattice and "
        f"plain ridge regressions, which the paper leaves out.{more}",
    )


def significance_claim(claim: str, scores: Mapping[str, Scores], regime: str) -> Finding:
    """Judge whether the paper's model is better than the runner-up with p < 0.01 over seeds."""
    leads = {data: found.lead(regime, found.primary) for data, found in scores.items()}
    parts = [
        f"{data}: {lead.difference:+.1f} points of {TITLES[scores[data].primary]} against "
        f"{scores[data].best_other(regime, scores[data].primary).name} ({p_text(lead)})"
        for data, lead in leads.items()
    ]
    if all(lead.pairs < 2 for lead in leads.values()):
        return Finding(claim, "not comparable", f"One seed has no t-test. {listed(parts)}.")
    better = all(lead.difference > 0 and lead.p is not None and lead.p < SIGNIFICANT for lead in leads.values())
    pairs = max(lead.pairs for lead in leads.values())
    return Finding(
        claim,
        judged(better),
        f"Paired two-tailed t-test over {pairs} seeds: {listed(parts)}. The paper prints no deviations, so its own "
        "tests cannot be done again.",
    )


def scores_claim(claim: str, why_not: str, values: Sequence[tuple[str, float, float]]) -> Finding:
    """Judge whether scores reach what is printed; `values` are name, ours and printed, in percent.

    Scores that are reached show that they can be. Lower ones show nothing: other features might reach them.
    """
    numbers = listed([f"{name} {ours:.1f} (printed {theirs:.1f})" for name, ours, theirs in values])
    if why_not or not values:
        beside = f"Ours beside it, for orientation: {numbers}." if values else "No metric and regime is in both."
        return Finding(claim, "not comparable", f"{sentence(why_not)} {beside}".strip())
    found = f"With the features and splits of the file: {numbers}."
    if all(ours >= theirs - _POINT for _, ours, theirs in values):
        return Finding(claim, "holds", found)
    why = "The paper does not name its encoders, so this does not show what others would reach."
    return Finding(claim, "not comparable", f"{found} {why}")


def slips_claim(table: str) -> Finding:
    """Judge the averages that a table of the paper prints below its own rows."""
    claim = f"The row Avg. of the table on {table} is the average of the rows above it ({OWN_TABLE})."
    slips = [slip for slip in printed.slips() if slip.table == table]
    wrong = {slip.method for slip in slips}
    right = [method for method in printed.averages(printed.AVERAGED[table]) if method not in wrong]
    if not slips:
        return Finding(claim, "holds", "All averages are right.")
    parts = [f"{s.method} {TITLES[s.metric]} {s.printed:.1f} printed, {s.recomputed:.2f} by its rows" for s in slips]
    return Finding(
        claim,
        "does not hold",
        f"{sentence('; '.join(parts))} Rounding accounts for 0.1 at most. The averages of {listed(right)} are right. "
        "We compute averages from the very numbers that are shown.",
    )


def not_best_claim(table: str) -> Finding:
    """Judge whether what a table of the paper marks as best is the best of its row."""
    found = [cell for cell in printed.not_best() if cell.table == table]
    parts = [
        f"{cell.row}: {cell.better} has {TITLES[cell.metric]} {cell.theirs:.1f}, {printed.OURS} {cell.ours:.1f}"
        for cell in found
    ]
    return Finding(
        f"MBD is the best in every cell of the table on {table} ({OWN_TABLE}).",
        judged(not found),
        f"{sentence('; '.join(parts))} They are printed bold for {printed.OURS} all the same."
        if found
        else "It leads every cell.",
    )


def why_not_comparable(layout: Layout, data: str, modalities: Sequence[str], wanted: str = "mosi") -> str:
    """Return why the paper's numbers for `wanted` say nothing about scores on `data`, "" if they do."""
    if layout.plan.name == SYNTHETIC:
        return f"“{data}” is synthetic data in the shape of {printed.DATA.get(data, data)}, and its scores are its own"
    if papers_set(layout, data) != wanted:
        return f"the paper has no numbers for “{data}”; those printed are for {printed.DATA[wanted]}"
    if set(modalities) != set(printed.MODALITIES):
        return f"the modalities are {listed(modalities)}, those of the paper {listed(printed.MODALITIES)}"
    return ""


def linear_note(layout: Layout) -> str:
    """Return what synthetic data does to an order of methods."""
    if layout.plan.name != SYNTHETIC:
        return ""
    return " Synthetic data mixes its factors linearly, which suits ridge; on real data the order can be another."


def papers_set(layout: Layout, data: str) -> str | None:
    """Return which of the paper's data sets `data` is, None for synthetic data and for any other.

    A file is taken for the set that its name begins with: mosi.npz and mosi_clean.npz are CMU-MOSI.
    """
    if layout.plan.name == SYNTHETIC:
        return None
    return next((name for name in printed.DATA if name == data.lower().split("_")[0]), None)


def judged(holds: bool) -> Verdict:
    """Return the verdict on a claim that can be judged."""
    return "holds" if holds else "does not hold"


def text(value: Spread | None, digits: int = 1) -> str:
    """Return mean ± deviation as a sentence shows them."""
    return cell_text(value, digits)


def p_text(comparison: Comparison) -> str:
    """Return p of a paired t-test, or why there is none."""
    if comparison.p is not None:
        return f"p = {comparison.p:.2g}"
    return "no p: one seed" if comparison.pairs < 2 else "no p: every seed differs by the same"


def listed(items: Sequence[str]) -> str:
    """Return `a, b and c`; with semicolons if an item has commas of its own."""
    if len(items) < 2:
        return items[0] if items else "none"
    comma = "; " if any("," in item for item in items) else ", "
    return f"{comma.join(items[:-1])}{';' if comma == '; ' else ''} and {items[-1]}"


def sentence(words: str) -> str:
    """Return `words` as a sentence."""
    return f"{words[:1].upper()}{words[1:]}." if words else ""
