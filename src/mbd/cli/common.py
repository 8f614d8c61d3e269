"""What all commands share: the parameter options, folders, and how errors end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]
FOLDER = click.Path(file_okay=False, path_type=Path)


def with_params(command: Command) -> Command:
    """Add `--params FILE` and repeated `--set a.b=value`; the command gets them as one argument `params`."""

    def wrapped(params_file: Path | None, settings: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
        from mbd.params import load_params

        command(params=load_params(params_file, settings), **options)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__dict__.update(command.__dict__)
    file = click.option(
        "--params",
        "params_file",
        type=click.Path(path_type=Path),
        help="Parameters [default: ./params.yaml].",
    )
    settings = click.option(
        "--set", "settings", multiple=True, metavar="A.B=VALUE", help="Set one parameter; repeatable."
    )
    return file(settings(wrapped))
