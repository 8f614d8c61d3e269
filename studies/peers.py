"""Our backbones beside what one would otherwise pick, on any data: `python -m studies.peers DATA …`.

DATA is a file that `mbd features` reads, or a FeatureSet folder. The methods, and how they are tuned, are in
:mod:`studies.methods`; metrics and intervals over groups of test rows in :mod:`studies.comparison`. A method whose
difference to the lattice has an interval that leaves out zero is marked ▲ (better) or ▼ (worse than the lattice). The
report is in studies/build/peers; `--write PAGE` also puts the tables between two marks of a page. How often a peer is
marked over all sets is said beneath them: of methods that are equal, each mark would be given to one in forty.
"""

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import click

from mbd.cli import run_command
from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.files import write_file
from mbd.formats.features import MANIFEST, Task
from mbd.logs import progress_bar
from mbd.markdown import table
from mbd.params import load_params
from mbd.steps import features
from studies.comparison import Column, Estimate, Values, columns, estimate, planned, row_values, title
from studies.drawing import Panel, intervals
from studies.layout import ROOT, Layout
from studies.methods import OURS, methods
from studies.outcome import StudyOutcome, StudyTable, write_outcome

NAME = "peers"
MARKS = ("<!-- peers -->", "<!-- /peers -->")
_NOTE = (
    "In brackets: 95 % intervals over groups of test rows. ▲ and ▼: better or worse than the lattice, by the interval "
    "of the difference on the same rows. FIX: average of the fixed patterns; MR: of the missing rates."
)


@dataclass(frozen=True)
class ComparedSet:
    """What every method reaches on one data set."""

    name: str
    rows: int
    found: Mapping[str, Mapping[Column, Estimate]]
    """by method"""

    @property
    def header(self) -> list[str]:
        """The heads of the table's columns."""
        return [f"{self.name}, {self.rows} test rows", *map(title, next(iter(self.found.values())))]

    @property
    def marks(self) -> list[str]:
        """The marks of every metric of every method that is not ours; empty where noise explains the difference."""
        peers = (own.values() for name, own in self.found.items() if name not in OURS)
        return [e.mark.strip() for e in chain.from_iterable(peers) if math.isfinite(e.value)]

    @property
    def lines(self) -> list[list[str]]:
        """The lines of the table, one for each method."""
        return [[name, *map(str, own.values())] for name, own in self.found.items()]

    def figure(self) -> bytes:
        """Draw each metric of each method with its interval."""
        cells = list(next(iter(self.found.values())))
        panels = [
            Panel(title(column), [(e.value, e.low, e.high) for e in (own[column] for own in self.found.values())])
            for column in cells
        ]
        across = sum(column == "FIX" for column, _ in cells)  # a row of panels for each regime
        return intervals(list(self.found), panels, title=self.header[0], across=across)


def compare(name: str, data: FeatureSet) -> ComparedSet:
    """Train every method on a FeatureSet, and compare them on its test rows."""
    data.require_vectors("lattice")
    task: Task = data.manifest.task
    plan = planned(data.split("test").load(), task)
    found: dict[str, Values] = {}
    with progress_bar(desc=name, unit="method") as bar:
        for method, predict in methods(data):
            bar.set_postfix_str(method)
            found[method] = row_values(predict, plan)
            bar.update()
    beside = next(iter(found.values()))
    cells = columns(task, beside)
    estimates = {
        method: {c: estimate(own[c], beside[c], plan.rows.groups, c[1]) for c in cells} for method, own in found.items()
    }
    return ComparedSet(name, len(plan.rows), estimates)


def tally(sets: Sequence[ComparedSet]) -> str:
    """Say how often other methods are better or worse than the lattice beyond noise."""
    marks = Counter(chain.from_iterable(one.marks for one in sets))
    return (
        f"Of {marks.total()} comparisons of another method with the lattice, {marks['▼']} show it worse beyond noise "
        f"and {marks['▲']} better; of methods that are equal, about {marks.total() / 40:.0f} would be marked each way."
    )


def outcome(sets: Sequence[ComparedSet]) -> StudyOutcome:
    """Return the comparison on some data sets as a study."""
    return StudyOutcome(
        name=NAME,
        title="Beside other methods",
        question="Would another method that is trained on the same rows answer better?",
        tables=[StudyTable(one.header[0], ["method", *one.header[1:]], one.lines, note=_NOTE) for one in sets],
        findings=[],
        figures={f"{NAME}-{number}": one.figure() for number, one in enumerate(sets, 1)},
        data={
            one.name: {
                method: {title(column): asdict(e) for column, e in own.items() if math.isfinite(e.value)}
                for method, own in one.found.items()
            }
            for one in sets
        },
    )


def study(layout: Layout) -> StudyOutcome:
    """Compare on the main data set of a plan."""
    main = layout.plan.main
    return outcome([compare(main, FeatureSet.open(layout.features(main)))])


@contextmanager
def opened(path: Path) -> Iterator[FeatureSet]:
    """Open a FeatureSet, or make one of a file for as long as it is needed."""
    if (path / MANIFEST).is_file():
        yield FeatureSet.open(path)
        return
    with tempfile.TemporaryDirectory() as work:
        # nothing is deleted here, so all rows are for training
        settings = [f"features.source.path={path.resolve()}", "features.calibration.size=0"]
        features.run(load_params(None, settings), Path(work) / "set")
        yield FeatureSet.open(Path(work) / "set")


def _refuse_missing(path: Path) -> None:
    if not path.exists():
        raise UsageError(
            "there is no such file",
            key="DATA",
            value=path,
            hint="name files that `mbd features` reads, or FeatureSet folders; put quotes around a name with blanks",
        )


def run(data: Sequence[Path], folder: Path = ROOT / NAME) -> list[ComparedSet]:
    """Compare on each of `data`, print the tables, and write the report."""
    sets = []
    for path in data:
        _refuse_missing(path)
    for path in data:
        with opened(path) as found:
            sets.append(compare(path.stem, found))
        click.echo(table(sets[-1].header, sets[-1].lines) + "\n")
    click.echo(tally(sets) + "\n")
    write_outcome(outcome(sets), folder)
    click.echo(f"look at {folder / 'report.md'}")
    return sets


def written(page: str, parts: Sequence[str]) -> str:
    """Return the page with these parts between its two marks."""
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    inside = "\n\n".join(parts)
    return f"{before}{MARKS[0]}\n{inside}\n{MARKS[1]}{after}"


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--write", type=click.Path(path_type=Path, exists=True), help="A page that has the marks of the tables.")
def main(data: tuple[Path, ...], write: Path | None) -> None:
    """Compare lattice and joint with other methods on files or FeatureSets."""
    sets = run(data)
    if write:
        inside = [*(table(one.header, one.lines) for one in sets), tally(sets)]
        write_file(write, written(write.read_text(encoding="utf-8"), inside).encode())


if __name__ == "__main__":
    run_command(main, "python -m studies.peers")
