"""Figures of an audit: leakage of each model, the privacy–utility trade-off over ε, and the proxies' scatter."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mbd.errors import DataError
from mbd.evaluation.metrics import ACCURACIES, TITLES
from mbd.formats.leakage import AttackRecord, Interval, LeakageRecord
from mbd.report.drawing import COLOURS, figure_png
from mbd.tensors import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES = {
    "before": {"color": COLOURS[1], "marker": "s"},
    "after": {"color": COLOURS[0], "marker": "o"},
    "reference": {"color": COLOURS[2], "marker": "D"},
}
_SHIFTS = {"before": -0.24, "after": 0.0, "reference": 0.24}
_GREY = "#888888"


def leakage_intervals(records: Sequence[AttackRecord], title: str) -> bytes:
    """Draw each measure before and after the deletion and of the reference, with intervals; a bar marks chance."""
    places = np.arange(len(records))
    with figure_png((9.6, 1.5 + 0.4 * len(records))) as (figure, png):
        panel = figure.subplots()
        for role, style in _STYLES.items():
            found = [getattr(record, role) for record in records]
            _points(panel, places + _SHIFTS[role], found, role, style)
        for place, record in enumerate(records):
            label = "chance" if not place else None
            panel.plot([record.chance] * 2, [place - 0.4, place + 0.4], color=_GREY, linewidth=1.2, label=label)
            if not place % 2:
                panel.axhspan(place - 0.5, place + 0.5, color="#f5f5f5", zorder=0)
        panel.grid(False, axis="y")
        panel.set_ylim(len(records) - 0.5, -0.5)
        panel.set_yticks(places, [_label(record) for record in records], fontsize=8)
        for tick, record in zip(panel.get_yticklabels(), records, strict=True):
            if record.decision == "refused":
                tick.set_color("#b00020")
                tick.set_fontweight("bold")
        panel.set_xlabel("share, accuracy, R² or AUC: more is more leakage")
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=10)
        figure.legend(loc="outside lower center", ncols=4)
    return png.getvalue()


def _label(record: AttackRecord) -> str:
    variant = "" if record.variant == "as released" else f" [{record.variant}]"
    return f"{record.attack}: {record.measure}{variant}"


def _points(
    panel: "Axes", places: Array, found: Sequence[Interval | None], label: str, style: Mapping[str, str]
) -> None:
    known = [(place, interval) for place, interval in zip(places, found, strict=True) if interval is not None]
    if not known:
        return
    values = np.array([interval.value for _, interval in known])
    low, high = (np.array([getattr(interval, side) for _, interval in known]) for side in ("low", "high"))
    panel.errorbar(
        values,
        [place for place, _ in known],
        xerr=np.maximum([values - low, high - values], 0),
        label=label,
        linestyle="none",
        markersize=4.5,
        elinewidth=1.2,
        color=style["color"],
        marker=style["marker"],
    )


def trade_off(records: Sequence[LeakageRecord], attack: str = "whitebox") -> bytes:
    """Draw accuracy and the success of an attack over the ε of the deletions that `records` are about.

    The paper's figure: each record is of one deletion with an ε of its own; several of one ε are drawn with their
    spread. Dashed: the reference; dotted: the model before.
    """
    points = sorted((_point(record, attack) for record in records), key=lambda point: point["epsilon"])
    epsilons = sorted({point["epsilon"] for point in points})
    with figure_png((6.4, 5.0)) as (figure, png):
        above, below = figure.subplots(2, 1, sharex=True)
        titles = {"utility": f"{TITLES[_metric(records[0])]} (%)", "asr": f"ASR, {attack} (%)"}
        for panel, (name, title) in zip((above, below), titles.items(), strict=True):
            for role, style in _STYLES.items():
                grouped = [[p[f"{name} {role}"] for p in points if p["epsilon"] == e] for e in epsilons]
                _curve(panel, epsilons, grouped, role, style)
            panel.set_ylabel(title)
        below.axhline(50, color=_GREY, linewidth=1.2, label="chance")
        below.set_xscale("log")
        below.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        below.minorticks_off()
        below.set_xlabel("ε of the deletion")
        above.set_title("Privacy and utility over ε")
        handles, labels = below.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return png.getvalue()


def _curve(
    panel: "Axes", epsilons: Sequence[float], grouped: Sequence[Sequence[float]], role: str, style: Mapping[str, str]
) -> None:
    means = [float(np.mean(values)) for values in grouped]
    deviations = [float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for values in grouped]
    line = {"after": "-", "reference": "--", "before": ":"}[role]
    panel.errorbar(
        epsilons,
        means,
        yerr=deviations if any(deviations) else None,
        label=role,
        linestyle=line,
        color=style["color"],
        marker=style["marker"] if role == "after" else None,
        capsize=2,
    )


def _metric(record: LeakageRecord) -> str:
    known = {metrics[0] for metrics in ACCURACIES.values()}
    return next(u.metric for u in record.utility if u.metric in known)


def _point(record: LeakageRecord, attack: str) -> dict[str, float]:
    epsilon = (record.suite.get("deletion") or {}).get("epsilon")
    found = [a for a in record.attacks if a.attack == attack and a.variant == "as released"]
    if not epsilon or not found:
        raise DataError(
            f"no ε, or no {attack}, in the findings of an audit: a trade-off has nothing to draw",
            value=record.models.get("after"),
            hint="take leakage.json of certified deletions",
        )
    measured_utility = next(u for u in record.utility if u.metric == _metric(record))
    point = {"epsilon": float(epsilon)}
    for role in _STYLES:
        success, utility = getattr(found[0], role), getattr(measured_utility, role)
        point[f"asr {role}"] = 100 * success.value if success else float("nan")
        point[f"utility {role}"] = utility.value if utility else float("nan")
    return point


def proxy_scatter(increments: Array, proxies: Mapping[str, Array], facts: Mapping[str, Mapping[str, float]]) -> bytes:
    """Draw each proxy over the true increments, with y = x and ±8 % around it; both axes to the fourth root."""
    with figure_png((4.1 * len(proxies) + 0.4, 4.2)) as (figure, png):
        axes = figure.subplots(1, len(proxies), squeeze=False).ravel()
        for panel, (name, proxy) in zip(axes, proxies.items(), strict=True):
            reach = float(max(np.abs(increments).max(), np.abs(proxy).max(), 1e-30))
            line = np.sign(np.linspace(-1, 1, 201)) * np.linspace(-1, 1, 201) ** 4 * reach
            panel.fill_between(_root(line), _root(0.92 * line), _root(1.08 * line), color=COLOURS[5], alpha=0.35)
            panel.plot(_root(line), _root(line), color=_GREY, linestyle="--", linewidth=1)
            panel.scatter(_root(increments), _root(proxy), s=9, color=COLOURS[0], alpha=0.5, linewidths=0)
            ticks = np.array([-1, -0.1, 0, 0.1, 1]) * 10 ** np.floor(np.log10(reach))
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_ticks(_root(ticks), [f"{tick:.0e}" if tick else "0" for tick in ticks])
            rho = facts[name]["spearman"]
            rank = "" if rho is None else f"Spearman ρ = {rho:.3f}, "
            panel.set_title(f"{name.replace('_', '–')}\n", fontsize=10)
            inside = f"{100 * facts[name]['share_within_8_percent']:.0f} % within ±8 %"
            panel.text(0, 1.02, rank + inside, transform=panel.transAxes, color="#666666")
            panel.set_xlabel("true increment ΔL")
        axes[0].set_ylabel("proxy")
    return png.getvalue()


def _root(values: Array) -> Array:
    """Stretch what is near zero: increments lie over many powers of ten, on both sides of zero."""
    return np.asarray(np.sign(values) * np.abs(values) ** 0.25)


def draw_leakage(record: LeakageRecord) -> dict[str, bytes]:
    """Return the figures of every deleted modality by name."""
    figures = {}
    for modality in record.modalities:
        suffix = f"_{modality}" if len(record.modalities) > 1 else ""
        own = [a for a in record.attacks if a.modality == modality and a.decision != "informational"]
        released, worked_on = ([a for a in own if (a.variant == "as released") is yes] for yes in (True, False))
        figures[f"leakage{suffix}"] = leakage_intervals(released, f"What attacks find of {modality}")
        if worked_on:
            title = f"What attacks find of {modality} in rounded and pruned models"
            figures[f"durability{suffix}"] = leakage_intervals(worked_on, title)
    return figures
