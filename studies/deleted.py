"""The deletions of the plan over seeds, and beside them the full model and the reference of the same backbone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mbd.attacks.target_model import Role
from mbd.evaluation.results import Spread
from mbd.formats.deletion import DeletionRecord
from studies.audits import (
    BLACK_BOX,
    MEMBERSHIP,
    OFFERED,
    OWN_PART,
    PATHWAY,
    WHITE_BOX,
    Kind,
    Records,
    epsilon_of,
    kind_of,
)
from studies.cell import backbone_of
from studies.layout import Layout
from studies.scores import Scores, read_scores, spread_of

MEASURES = (WHITE_BOX, BLACK_BOX, PATHWAY, OFFERED, OWN_PART, MEMBERSHIP)
TITLES = (
    "ASR white-box (%)",
    "ASR black-box (%)",
    "rows that move (%)",
    "R² offered",
    "R² of own part",
    "membership AUC",
)


@dataclass(frozen=True)
class Line:
    """One model over seeds: what attacks find of the modality, and what it is worth on the retained ones."""

    name: str
    leaks: Sequence[Spread]
    """by MEASURES"""
    accuracy: Spread
    """the task's first metric"""
    f1: Spread

    @property
    def white_box(self) -> Spread:
        """ASR in percent."""
        return self.leaks[0]

    @property
    def black_box(self) -> Spread:
        """ASR in percent."""
        return self.leaks[1]


@dataclass(frozen=True)
class DeletedLine(Line):
    """A deletion over seeds."""

    kind: Kind
    epsilon: float | None
    """asked for, where the method uses it"""
    backbone: str
    records: Records
    deletions: Mapping[int, DeletionRecord]


Beside = Mapping[str, Mapping[Role, Line]]
"""by backbone: the full model (`before`) and the reference"""


def read_deleted(layout: Layout, names: Iterable[str], scores: Scores) -> list[DeletedLine]:
    """Read deletions, with what they are worth by `scores`."""
    return [_read(layout, name, scores) for name in names]


def _read(layout: Layout, name: str, scores: Scores) -> DeletedLine:
    records, deletions = layout.attacks(name), layout.deletions(name)
    first = next(iter(deletions.values()))
    return DeletedLine(
        name=name,
        leaks=[measure.spread(records, "after") for measure in MEASURES],
        accuracy=score(scores, name, scores.primary),
        f1=score(scores, name, "f1"),
        kind=kind_of(first),
        epsilon=epsilon_of(first),
        backbone=backbone_of(name),
        records=records,
        deletions=deletions,
    )


def read_beside(layout: Layout, deleted: Sequence[DeletedLine], scores: Scores) -> Beside:
    """Read what `deleted` were attacked beside; `scores` are those of the group `deleted`."""
    first = {d.backbone: d for d in reversed(deleted)}
    whole = read_scores(layout.evaluation(layout.plan.main))
    regime = "+".join(m for m in whole.modalities if m != layout.plan.revoked)
    return {
        backbone: {
            "before": _line("full model", deletion, "before", whole, regime),
            "reference": _line("reference", deletion, "reference", scores, "full"),
        }
        for backbone, deletion in sorted(first.items())
    }


def _line(name: str, deletion: DeletedLine, role: Role, scores: Scores, regime: str) -> Line:
    accuracy, f1 = (score(scores, deletion.backbone, metric, regime) for metric in (scores.primary, "f1"))
    leaks = [measure.spread(deletion.records, role) for measure in MEASURES]
    return Line(f"{deletion.backbone}: {name}", leaks, accuracy, f1)


def score(scores: Scores, name: str, metric: str, regime: str = "full") -> Spread:
    """Return a metric of a method over seeds."""
    method = scores.method(name)
    if method is None:
        raise ValueError(f"{name} is not in this evaluation")
    return spread_of(method, regime, metric)
