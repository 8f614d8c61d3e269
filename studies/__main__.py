"""`python -m studies [NAME …]`: run studies with all the cells they need, and say what to look at.

make study                      all, on synthetic data
make study NAME=ablation        one
make study DATA=FILE.npz        on your own data (REVOKED=voice: the modality that is deleted)
make study DATA="A.npz B.npz"   the comparison with other methods (NAME=peers) on each of several files or FeatureSets
"""

import os
import shlex
from pathlib import Path

import click

from mbd.cli import run_command
from mbd.errors import UsageError
from studies import peers
from studies.layout import Layout
from studies.plan import read_plan, using
from studies.run import read_stages, run_stages

ALL = "page"


def paths(text: str) -> list[Path]:
    """Return the paths that a text names: one that is there, else several with blanks between them, quoted as usual."""
    if Path(text).exists():
        return [Path(text)]
    try:
        return [Path(part) for part in shlex.split(text)]
    except ValueError:  # a quotation mark that is part of a name
        return [Path(text)]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--data", multiple=True, help="A file, or several in quotes; synthetic data if not given.")
@click.option("--revoked", help="The modality that is deleted [default: audio].")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Cells at a time.")
def main(names: tuple[str, ...], data: tuple[str, ...], revoked: str | None, jobs: int) -> None:
    """Make the paper's tables and figures: all of them, or those with these names."""
    files = [path for text in data for path in paths(text)]
    if len(files) > 1 or any(path.is_dir() for path in files):
        if set(names) - {peers.NAME}:
            raise UsageError(
                "this study takes one .npz file",
                key="DATA",
                value=", ".join(map(str, files)),
                hint=f"NAME={peers.NAME} takes several files and FeatureSets; name one file for the others",
            )
        peers.run(files)
        return
    with using(files[0] if files else None, revoked):
        _run(names, jobs)


def _run(names: tuple[str, ...], jobs: int) -> None:
    layout, stages = Layout.of(read_plan()), read_stages()
    known = sorted(name for name in stages.needs if "@" not in name)
    if unknown := [name for name in names if name not in known]:
        raise UsageError("there is no such study", key="NAME", value=unknown[0], hint=f"one of {', '.join(known)}")
    ran = run_stages(stages, names or (ALL,), jobs=jobs, logs=layout.root / "logs")
    click.echo(f"{ran} stages ran, the others were up to date")
    for name in names or (ALL,):
        click.echo(
            f"look at {layout.root / 'page' / 'index.html' if name == ALL else layout.study(name) / 'report.md'}"
        )


if __name__ == "__main__":
    run_command(main, "studies")
