"""`python -m studies [NAME …]`: run studies with all the cells they need, and say what to look at.

make study                      all, on synthetic data
make study NAME=ablation        one
make study DATA=FILE.npz        on your own data (REVOKED=voice: the modality that is deleted)
"""

import os
from pathlib import Path

import click

from mbd.cli import run_command
from mbd.errors import UsageError
from studies.layout import Layout
from studies.plan import read_plan, using
from studies.run import read_stages, run_stages

ALL = "page"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--data", type=click.Path(path_type=Path), help="An .npz file; synthetic data if not given.")
@click.option("--revoked", help="The modality that is deleted [default: audio].")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Cells at a time.")
def main(names: tuple[str, ...], data: Path | None, revoked: str | None, jobs: int) -> None:
    """Make the paper's tables and figures: all of them, or those with these names."""
    with using(data, revoked):
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
