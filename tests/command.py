"""`mbd` as a user types it, with its exit codes and messages, but without the start of a process."""

from contextlib import chdir
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from mbd.cli import main


class _Program(click.Command):
    def main(self, *_: Any, **given: Any) -> Any:
        main(given["args"])


def run_mbd(*arguments: str | Path, cwd: Path | None = None) -> Result:
    """Run a command of `mbd`; what it does not handle itself is raised here."""
    with chdir(cwd or Path.cwd()):
        return CliRunner().invoke(_Program("mbd"), [*map(str, arguments)], catch_exceptions=False)
