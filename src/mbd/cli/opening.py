"""Encrypted folders on the command line: a command gets the plain form of every folder that it reads."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from mbd.params import Params

READ = {"features", "model", "models", "before", "after", "reference", "against", "deletion"}
"""options that name FeatureSets and models that a command reads"""


@contextmanager
def opened_options(params: "Params", options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Within: the options, with plain folders in place of encrypted ones."""
    given = {name: value for name, value in options.items() if name in READ and isinstance(value, Path | tuple)}
    if not params.shredding.enabled and not any(_encrypted(folder) for folder in _folders(given)):
        yield options
        return
    from mbd.shredding.vault import opened
    from mbd.shredding.workspace import remove_abandoned

    remove_abandoned(params.shredding.temporary)
    with ExitStack() as stack:

        def plain(folder: Path) -> Path:
            return stack.enter_context(opened(folder, params.shredding, lambda text: click.echo(text, err=True)))

        yield options | {
            name: tuple(map(plain, value)) if isinstance(value, tuple) else plain(value)
            for name, value in given.items()
        }


def _folders(options: dict[str, Any]) -> Iterator[Path]:
    for value in options.values():
        yield from value if isinstance(value, tuple) else (value,)


def _encrypted(folder: Path) -> bool:
    # as mbd.shredding.vault, which is loaded only where it is needed
    return folder.is_dir() and any(folder.rglob("*.mbdx"))
