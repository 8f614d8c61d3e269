"""The numbers that the paper prints, and what they say of each other.

Every table is under its own name, as printed; a mapping is in the paper's order. Nothing here was measured by us.

    averages(table)    the averages that the rows of a table have
    slips()            every printed average that its own rows cannot have, however they were rounded
    not_best()         every cell where the paper marks its method as best, and another one is better
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import NamedTuple

from mbd.evaluation.results import Spread

OURS = "MBD"
AVERAGE = "Avg."
DATA = MappingProxyType({"mosi": "CMU-MOSI", "mosei": "CMU-MOSEI", "iemocap": "IEMOCAP"})
"""the names of the data sets here and in the paper"""
MODALITIES = ("text", "audio", "visual")


class Sentiment(NamedTuple):
    """A row of the comparison on MOSI and MOSEI."""

    acc7: float
    acc2: float
    f1: float
    mae: float
    corr: float


class Emotion(NamedTuple):
    """A row of the comparison on IEMOCAP."""

    wa: float
    ua: float


class Short(NamedTuple):
    """A cell of the tables about missing modalities, ablation and corruption."""

    acc2: float
    f1: float
    acc7: float


class Regimes(NamedTuple):
    """A row of the ablation and of the corruption table."""

    fix: Short
    mr: Short


class PrintedDeletion(NamedTuple):
    """A row of the table about deletion; ΔL_re has no deviation in print."""

    white_box: Spread
    black_box: Spread
    acc2: Spread
    f1: Spread
    reconstruction: float


class Scanned(NamedTuple):
    """A row of the sensitivity scan."""

    knob: str
    value: float
    acc2: Spread
    epsilon: float
    default: bool = False


class Runtime(NamedTuple):
    """Seconds of one deletion, by phase, and of training without the modality."""

    saliency: float
    sensitivity: float
    surgery: float
    total: float
    retraining: float
    ratio: float


class Proxy(NamedTuple):
    """A row of Table A2; shares are in percent."""

    chi_max: float
    max_relative_error: float
    within_bound: bool
    over_delete: float
    spearman: float


class Scatter(NamedTuple):
    """What the caption of the proxy scatter says; shares are in percent."""

    spearman: float
    band: float
    inside: float


def _sentiment(text: str) -> Mapping[str, Sentiment]:
    rows = (line.split() for line in text.strip().splitlines())
    return MappingProxyType({name: Sentiment(*map(float, values)) for name, *values in rows})


def _short(text: str) -> Short:
    return Short(*map(float, text.split("/")))


def _by_method(methods: str, text: str) -> Mapping[str, Mapping[str, Short]]:
    """Read a table with a column for each method; the answer goes by row, then by method."""
    rows = (line.split() for line in text.strip().splitlines())
    return MappingProxyType(
        {row: MappingProxyType(dict(zip(methods.split(), map(_short, cells), strict=True))) for row, *cells in rows}
    )


def _three(mean: float, deviation: float) -> Spread:
    return Spread(mean, deviation, 3)


FULL_MODALITY: Mapping[str, Mapping[str, Sentiment]] = MappingProxyType(
    {
        "mosi": _sentiment("""
            HyCon      46.6 85.2 85.1 0.741 0.779
            UniMSE     48.7 86.9 86.4 0.691 0.809
            ConFEDE    42.3 85.5 85.5 0.742 0.782
            MGCL       49.3 86.7 86.7 0.685 0.707
            HyDiscGAN  43.2 86.7 86.3 0.749 0.782
            CLGSI      48.0 86.4 86.3 0.703 0.790
            DLF        47.1 85.1 85.0 0.731 0.781
            PAMoE-MSA  48.7 87.0 87.0 0.690 0.806
            MSAmba     49.7 87.4 87.4 0.707 0.809
            MBD        50.8 89.9 89.9 0.620 0.872
        """),
        "mosei": _sentiment("""
            HyCon      52.8 85.4 85.6 0.554 0.751
            UniMSE     54.4 87.5 87.5 0.523 0.773
            ConFEDE    54.9 85.8 85.8 0.522 0.780
            MGCL       53.9 86.4 86.4 0.535 0.772
            HyDiscGAN  54.4 86.3 86.2 0.533 0.761
            CLGSI      54.6 86.3 86.2 0.532 0.763
            DLF        53.9 85.4 85.3 0.536 0.764
            PAMoE-MSA  54.6 87.7 86.9 0.526 0.780
            MSAmba     54.2 86.9 86.9 0.507 0.796
            MBD        56.7 89.4 89.4 0.478 0.836
        """),
    }
)
IEMOCAP: Mapping[str, Emotion] = MappingProxyType(
    {
        "TwoStageFT": Emotion(74.9, 76.1),
        "AdaptiveMixup": Emotion(75.4, 76.0),
        "EmoAug": Emotion(72.7, 73.8),
        "MoMKE": Emotion(77.9, 77.1),
        "APIN": Emotion(77.8, 78.2),
        "IAM": Emotion(74.8, 75.6),
        "GateM2Former": Emotion(76.0, 77.4),
        "SeeNet": Emotion(78.5, 79.6),
        OURS: Emotion(82.0, 82.0),
    }
)
_METHODS = "GCNet IMDer MoMKE LNLN EUAR CIDer MBD"
FIXED_MISSING: Mapping[str, Mapping[str, Short]] = _by_method(
    _METHODS,
    """
    text          83.7/83.6/42.3 84.8/84.7/44.8 86.2/86.1/38.1 84.9/84.7/45.1 86.0/86.0/46.1 83.7/83.6/41.3 88.9/88.9/48.9
    visual        56.1/55.7/16.9 61.3/60.8/22.2 54.1/53.7/17.0 52.2/58.9/18.8 64.9/64.9/23.6 57.8/42.3/15.5 67.0/67.0/23.0
    audio         56.1/54.5/16.6 62.0/62.2/22.0 59.3/59.0/18.4 52.2/58.9/18.0 63.0/62.3/23.2 57.8/43.2/15.2 67.5/67.5/23.5
    text+visual   84.3/84.2/43.4 85.5/85.4/45.3 86.5/86.4/37.5 84.3/84.6/44.6 86.2/86.2/45.5 83.8/83.8/42.1 89.5/89.5/50.0
    text+audio    84.3/84.2/43.4 85.4/85.3/45.0 86.5/86.4/38.6 84.9/85.2/45.1 86.1/86.1/44.7 83.8/83.8/41.7 90.0/90.0/50.5
    audio+visual  62.0/61.9/17.2 63.6/63.4/23.8 59.6/59.6/20.1 52.2/58.9/18.8 66.1/65.8/24.2 57.8/44.0/15.5 69.0/69.0/24.0
    Avg.          71.1/70.7/30.0 73.8/73.6/33.9 72.0/71.9/28.3 68.5/71.9/31.7 75.4/75.2/34.5 70.8/63.5/28.6 78.7/78.8/37.8
    """,  # noqa: E501 -- a printed row is a line
)
"""by the modalities that are available; the paper writes {v,a} for audio+visual"""
VARYING_RATE: Mapping[str, Mapping[str, Short]] = _by_method(
    _METHODS,
    """
    0.1   82.4/82.2/41.9 83.3/83.2/43.0 83.6/83.6/35.5 81.1/82.0/42.0 84.1/84.1/43.8 81.1/79.6/39.4 88.9/88.9/48.5
    0.2   79.6/79.3/38.9 80.9/80.8/40.7 80.7/80.7/33.7 78.0/79.5/39.5 81.9/81.9/41.5 78.5/75.6/36.7 86.9/86.9/46.5
    0.3   76.7/76.5/35.9 78.5/78.4/38.4 77.8/77.7/31.9 74.8/77.0/36.9 79.8/79.7/39.2 76.0/71.6/34.0 84.6/84.6/44.1
    0.4   73.6/73.2/33.0 76.0/75.9/36.0 74.7/74.6/29.8 71.6/74.4/34.3 77.4/77.3/36.9 73.4/67.4/31.2 82.2/82.2/41.2
    0.5   70.4/69.9/30.1 73.5/73.4/33.6 71.6/71.4/27.8 68.4/71.8/31.7 75.1/74.9/34.7 70.8/63.3/28.5 79.8/79.8/38.5
    0.6   67.3/66.7/27.2 71.0/70.9/31.2 68.5/68.3/25.8 65.2/69.2/29.0 72.8/72.6/32.5 68.2/59.1/25.8 77.4/77.4/36.3
    0.7   65.3/64.6/25.3 69.4/69.2/29.7 66.5/66.3/24.5 63.1/67.5/27.3 71.3/71.1/31.0 66.4/56.4/24.0 75.0/75.0/33.9
    Avg.  73.6/73.2/33.2 76.1/76.0/36.1 74.8/74.6/29.9 71.7/74.5/34.4 77.5/77.4/37.1 73.5/67.6/31.4 80.9/80.9/40.6
    """,
)
"""by the missing rate η"""
FULL = "MBD (FULL)"
UNLEARNING = "w/o controlled unlearning"
ABLATION: Mapping[str, Regimes] = MappingProxyType(
    {
        "no-property": Regimes(Short(75.0, 74.8, 31.8), Short(77.7, 77.4, 36.3)),
        "no-reconstruction": Regimes(Short(76.2, 76.0, 33.6), Short(78.9, 78.8, 37.6)),
        "no-fusion": Regimes(Short(75.6, 75.4, 32.9), Short(78.3, 78.0, 36.9)),
        UNLEARNING: Regimes(Short(77.8, 77.7, 35.4), Short(79.8, 79.8, 38.6)),
        "no-property-no-reconstruction": Regimes(Short(73.9, 73.6, 30.7), Short(76.1, 75.8, 34.6)),
        "bare": Regimes(Short(72.1, 71.8, 29.0), Short(74.2, 73.9, 31.5)),
        FULL: Regimes(Short(78.7, 78.8, 37.8), Short(80.9, 80.9, 40.6)),
    }
)
"""by the names of the variants in params.yaml"""
VARIANTS = MappingProxyType(
    {
        "no-property": "w/o property embedding pathway",
        "no-reconstruction": "w/o reconstruction module",
        "no-fusion": "w/o fusion module",
        UNLEARNING: "w/o controlled unlearning module",
        "no-property-no-reconstruction": "w/o property pathway + reconstruction",
        "bare": "w/o all modules",
        FULL: FULL,
    }
)
"""how the paper calls the variants"""
CORRUPTION: Mapping[str, Regimes] = MappingProxyType(
    {
        "corrupted": Regimes(Short(77.9, 77.9, 36.9), Short(79.9, 80.0, 39.2)),
        "clean": Regimes(Short(78.7, 78.8, 37.8), Short(80.9, 80.9, 40.6)),
    }
)
CORRUPTED_SHARE = 10.0
"""percent of the test rows"""
P_DRIFT = 0.0025
"""mean squared deviation between property embeddings of noisy and of clean input"""
DELETION: Mapping[float | None, PrintedDeletion] = MappingProxyType(
    {
        None: PrintedDeletion(_three(78.4, 0.3), _three(72.1, 0.4), _three(89.9, 0.2), _three(89.9, 0.2), 0.000),
        0.5: PrintedDeletion(_three(50.2, 0.5), _three(51.8, 0.6), _three(88.6, 0.3), _three(88.4, 0.3), 0.012),
        1.0: PrintedDeletion(_three(49.9, 0.4), _three(50.7, 0.5), _three(88.9, 0.2), _three(88.8, 0.2), 0.009),
        2.0: PrintedDeletion(_three(49.7, 0.6), _three(50.5, 0.5), _three(89.1, 0.3), _three(89.0, 0.3), 0.006),
        4.0: PrintedDeletion(_three(49.6, 0.5), _three(50.4, 0.4), _three(89.3, 0.2), _three(89.2, 0.2), 0.004),
    }
)
"""by ε, None before the deletion; audio deleted on CMU-MOSI"""
RECONSTRUCTION_BOUND = 0.018
"""what the text says ΔL_re of a deleted model stays below"""
SENSITIVITY: Sequence[Scanned] = (
    Scanned("r", 0.01, _three(88.4, 0.3), 0.49),
    Scanned("r", 0.02, _three(88.7, 0.2), 0.50),
    Scanned("r", 0.03, _three(88.6, 0.3), 0.50, default=True),
    Scanned("r", 0.05, _three(89.0, 0.2), 0.51),
    Scanned("η_s", 0.05, _three(88.5, 0.3), 0.49),
    Scanned("η_s", 0.10, _three(88.6, 0.3), 0.50, default=True),
    Scanned("η_s", 0.20, _three(88.8, 0.2), 0.50),
    Scanned("|B|", 2000, _three(88.5, 0.3), 0.50),
    Scanned("|B|", 5000, _three(88.6, 0.3), 0.50, default=True),
    Scanned("|B|", 10000, _three(88.7, 0.2), 0.50),
)
SENSITIVITY_ACC2 = 1.1
"""points by which the text says Acc2 changes less"""
SENSITIVITY_EPSILON = 1.0
"""what the text says ε is always at most"""
RUNTIME = Runtime(saliency=17, sensitivity=8, surgery=14, total=39, retraining=2.9 * 3600, ratio=270)
PROXY: Mapping[str, Proxy] = MappingProxyType(
    {
        "mosi": Proxy(0.99, 7.9, within_bound=True, over_delete=1.8, spearman=0.87),
        "mosei": Proxy(0.99, 8.2, within_bound=True, over_delete=2.1, spearman=0.86),
        "iemocap": Proxy(0.99, 8.0, within_bound=True, over_delete=1.9, spearman=0.88),
    }
)
PROXY_BOUND = 8.0
"""percent that the text says no relative error of the proxy exceeds"""
OVER_DELETE_BOUND = 2.0
"""percent that the text says the over-delete rate is at most, on all three data sets"""
PROXY_SCATTER = Scatter(spearman=0.87, band=8.0, inside=98.0)

AVERAGED: Mapping[str, Mapping[str, Mapping[str, Short]]] = MappingProxyType(
    {"fixed missing patterns": FIXED_MISSING, "varying missing rates": VARYING_RATE}
)
"""the tables that print averages of their own rows"""
_ROUNDING = 0.05


@dataclass(frozen=True)
class Slip:
    """A printed average, and the one that the rows above it have."""

    table: str
    method: str
    metric: str
    printed: float
    recomputed: float

    @property
    def difference(self) -> float:
        """By how much the paper prints more than its rows say."""
        return self.printed - self.recomputed

    def __str__(self) -> str:
        return f"{self.method} {self.metric}: {self.printed:.1f} printed, {self.recomputed:.2f} from its rows"


@dataclass(frozen=True)
class NotBest:
    """A cell that is marked as best, and a better one beside it."""

    table: str
    row: str
    metric: str
    ours: float
    better: str
    theirs: float

    def __str__(self) -> str:
        return f"{self.row}, {self.metric}: {self.better} {self.theirs:.1f}, {OURS} {self.ours:.1f}"


def averages(table: Mapping[str, Mapping[str, Short]]) -> dict[str, Short]:
    """Return for each method the averages of the rows of a table, unrounded."""
    rows = [row for name, row in table.items() if name != AVERAGE]
    return {method: Short(*map(fmean, zip(*(row[method] for row in rows), strict=True))) for method in rows[0]}


def slips(tables: Mapping[str, Mapping[str, Mapping[str, Short]]] = AVERAGED) -> list[Slip]:
    """Return the printed averages that cannot come of their rows.

    Rows and averages are both rounded to one decimal, which moves an average by at most 0.05 + 0.05.
    """
    found = [
        Slip(name, method, metric, printed, mean)
        for name, table in tables.items()
        for method, means in averages(table).items()
        for metric, printed, mean in zip(Short._fields, table[AVERAGE][method], means, strict=True)
    ]
    return [slip for slip in found if abs(slip.difference) > 2 * _ROUNDING + 1e-9]


def not_best() -> list[NotBest]:
    """Return the cells of the averaged tables in which another method is better than the one marked as best."""
    return [
        NotBest(name, row, metric, ours, better, theirs)
        for name, table in AVERAGED.items()
        for row, cells in table.items()
        for place, (metric, ours) in enumerate(zip(Short._fields, cells[OURS], strict=True))
        for theirs, better in [max((cell[place], method) for method, cell in cells.items())]
        if theirs > ours
    ]


def margins(table: Mapping[str, Sentiment] | Mapping[str, Emotion], metrics: Sequence[str]) -> dict[str, float]:
    """Return for each metric how far the paper's method is ahead of the best other one."""
    others = [row for method, row in table.items() if method != OURS]
    return {metric: getattr(table[OURS], metric) - max(getattr(row, metric) for row in others) for metric in metrics}
