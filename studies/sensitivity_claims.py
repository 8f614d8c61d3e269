"""What became of the paper's claims about its sensitivity scan, and what each scan changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mbd.evaluation.results import Spread
from studies import printed
from studies.audits import WHITE_BOX
from studies.claims import judged, listed
from studies.deleted import DeletedLine
from studies.outcome import Finding
from studies.thresholds import Thresholds

STABLE_ROWS = 2000
"""calibration rows from which on the paper calls its choice stable"""
STABLE_SHARE = 0.9
"""of the chosen parameters that two calibration batches have to have in common to call the choice stable"""
_KNOBS = {"budget": "r", "saliency_quantile": "quantile of s", "rows": "|B|"}


def knob(deletion: DeletedLine, default: DeletedLine) -> tuple[str, float]:
    """Return what a scan changed, and to what."""
    own, other = (_knobs(d) for d in (deletion, default))
    changed = [name for name in _KNOBS if own[name] != other[name]]
    name = changed[0] if changed else "rows"
    return _KNOBS[name], own[name]


def _knobs(deletion: DeletedLine) -> dict[str, float]:
    record = next(iter(deletion.deletions.values()))
    settings: Mapping[str, Any] = record.parameters["surgery"]
    rows = record.facts["calibration"]["rows_with_modality"]
    return {**{name: settings[name] for name in _KNOBS if name in settings}, "rows": min(rows.values())}


def proven_epsilons(deletion: DeletedLine) -> list[float]:
    """Return the ε that the records of a deletion claim as proven."""
    found = (record.guarantee.epsilon for record in deletion.deletions.values())
    return [epsilon for epsilon in found if epsilon is not None]


def findings(
    default: DeletedLine,
    scanned: Sequence[DeletedLine],
    overlap: Mapping[str, Spread],
    counted: Sequence[Thresholds],
    title: str,
) -> list[Finding]:
    """Return what became of the paper's claims."""
    return [
        _epsilon([default, *scanned]),
        _accuracy([default, *scanned], title),
        _stable(default, scanned, overlap),
        _threshold(counted),
        _importance(counted),
        _reach(counted),
    ]


def _epsilon(every: Sequence[DeletedLine]) -> Finding:
    proven = [epsilon for d in every for epsilon in proven_epsilons(d)]
    cells = sum(len(d.deletions) for d in every)
    low, high = (pick(row.epsilon for row in printed.SENSITIVITY) for pick in (min, max))
    kept = len(proven) == cells and max(proven, default=0.0) <= printed.SENSITIVITY_EPSILON
    return Finding(
        f"Whatever r, η_s and |B|, ε ≤ {printed.SENSITIVITY_EPSILON:g} is satisfied ({low:.2f}–{high:.2f} printed).",
        judged(kept),
        f"{len(proven)} of {cells} deletions can claim any ε. Algorithm 1 zeroes at ε ≤ 1, which is not random; and "
        "with noise Δ cancels out, so the printed ε would be what was asked for, whatever is edited (study `budget`). "
        "Our surgery claims no ε; the certified and the exact method do.",
    )


def _accuracy(every: Sequence[DeletedLine], title: str) -> Finding:
    means = [d.accuracy.mean for d in every]
    width, leaks = max(means) - min(means), [d.white_box.mean for d in every]
    reference = WHITE_BOX.spread(every[0].records, "reference").mean
    return Finding(
        f"Acc2 changes by less than {printed.SENSITIVITY_ACC2:g} points over the scan.",
        judged(width < printed.SENSITIVITY_ACC2),
        f"{title} lies between {min(means):.1f} and {max(means):.1f}, {width:.2f} points apart. White-box success lies "
        f"between {min(leaks):.1f} and {max(leaks):.1f} %, where the reference has {reference:.1f} %: a scan of "
        "utility alone does not show whether anything was deleted.",
    )


def _stable(default: DeletedLine, scanned: Sequence[DeletedLine], overlap: Mapping[str, Spread]) -> Finding:
    claim = f"The choice of parameters is stable for |B| ≥ {STABLE_ROWS}."
    base = _knobs(default)["rows"]
    sizes = {d.name: _knobs(d)["rows"] for d in scanned if knob(d, default)[0] == _KNOBS["rows"]}
    others = {name: rows for name, rows in sizes.items() if rows != base and rows >= STABLE_ROWS}
    if base < STABLE_ROWS or not others:
        return Finding(
            claim,
            "not comparable",
            f"The data has {base:g} calibration rows with the modality, and no other number of {STABLE_ROWS} or more "
            "to compare with.",
        )
    least = min(others, key=lambda name: overlap[name].mean)
    shares = "; ".join(f"{100 * overlap[name].mean:.1f} % with {rows:g} rows" for name, rows in others.items())
    return Finding(
        claim,
        judged(overlap[least].mean >= STABLE_SHARE),
        f"Of the parameters chosen with {base:g} rows, also chosen: {shares}.",
    )


def _threshold(counted: Sequence[Thresholds]) -> Finding:
    eta = next(row.value for row in printed.SENSITIVITY if row.knob == "η_s" and row.default)
    by_scale: dict[str, list[int]] = {}
    for found in counted:
        for row in found.passing:
            if row.eta == eta:
                by_scale.setdefault(row.scale, []).append(row.candidates)
    means = {scale: float(np.mean(counts)) for scale, counts in by_scale.items()}
    useful = all(0 < mean < counted[0].parameters for mean in means.values())
    steady = useful and max(means.values()) <= 2 * min(means.values())
    return Finding(
        f"η_s = {eta:g} is an operating point.",
        judged(steady),
        "Candidates by the scale on which the same loss is taken: "
        + ", ".join(f"{scale} {mean:.0f}" for scale, mean in means.items())
        + f" (of {counted[0].parameters} parameters). An absolute threshold has the scale of loss and features; ours "
        "is a quantile of the saliencies, which has none.",
    )


def _importance(counted: Sequence[Thresholds]) -> Finding:
    above, salient = (
        sum(values)
        for values in zip(*((f.above_importance, sum(p.salient for p in f.parts)) for f in counted), strict=True)
    )
    largest = max(found.largest_importance for found in counted)
    return Finding(
        f"The threshold L ≤ {counted[0].eta_importance:g} limits harm to predictions.",
        judged(above > 0),
        f"It keeps back {above} of {salient} salient parameters (all seeds); the largest L of any parameter is "
        f"{largest:.3g}. "
        + ("" if above else "It never binds. ")
        + "We set both proxies beside the true increments (study `proxy`) and measure utility after the deletion.",
    )


def _reach(counted: Sequence[Thresholds]) -> Finding:
    outside = sum(part.salient for found in counted for part in found.parts if not part.own)
    where = sorted({part.name for found in counted for part in found.parts if part.salient})
    reached = sum(part.salient for part in counted[0].parts)
    return Finding(
        "Saliency finds the parameters that encode the modality, wherever they are in the model.",
        judged(outside > 0),
        f"s > 0 in {listed(where) if where else 'no part'} ({reached} of {counted[0].parameters} parameters); "
        f"{outside} parameters of other parts are salient. "
        + (
            ""
            if outside
            else "Fusion, head and the other generators, which read the modality too, can never be chosen. "
        )
        + "The structural cut takes out every column that reads it.",
    )
