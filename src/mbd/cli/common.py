"""What all commands share: groups of commands, and the parameters."""

import difflib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from mbd.cli.options import log_options

Command = Callable[..., Any]
_LOG = logging.getLogger(__name__)
_NO_LIMIT = 1000


class CommandGroup(click.Group):
    """A group of commands, whose help shows the whole first sentence of each."""

    def sections(self, ctx: click.Context) -> dict[str, Sequence[str]]:
        """Return the names of the commands by the title of their section."""
        return {"Commands": self.list_commands(ctx)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        for title, names in self.sections(ctx).items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, each.get_short_help_str(_NO_LIMIT)) for name, each in commands if each and not each.hidden]
            with formatter.section(title):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; if there is none of this name, the error suggests the nearest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            nearest = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise click.UsageError(error.message + hint, ctx) from error


def with_params(command: Command, load: str = "mbd.params:load_params") -> Command:
    """Add `--params FILE` and repeated `--set a.b=value`; the command gets them as one argument `params`."""

    def wrapped(params_file: Path | None, settings: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
        from pkgutil import resolve_name

        from mbd.steps.step import step_context

        params, context = resolve_name(load)(params_file, settings), click.get_current_context()
        if context.invoked_subcommand:  # which has parameters and a context of its own
            command(params=params, **options)
            return
        with step_context(params, _name(context), warn=_LOG.warning):
            command(params=params, **options)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__dict__.update(command.__dict__)
    file = click.option(
        "--params", "params_file", type=click.Path(path_type=Path), help="Parameters [default: ./params.yaml]."
    )
    settings = click.option(
        "--set", "settings", multiple=True, metavar="A.B=VALUE", help="Set one parameter; repeatable."
    )
    return log_options(hidden=True)(file(settings(wrapped)))


with_reader_params = partial(with_params, load="mbd.params.reader:load_reader_params")
"""for commands that only read a store"""


def _name(context: click.Context) -> str:
    """Return the name of a command below `mbd`, as `certificate-reaudit`."""
    names = list[str]()
    while context.parent:
        names.insert(0, context.info_name or "")
        context = context.parent
    return "-".join(names)
