"""What all commands share: the parameter options, folders, and how errors end."""

import difflib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mbd.cli.opening import opened_options

if TYPE_CHECKING:
    from mbd.params import Params

Command = Callable[..., Any]
FOLDER = click.Path(file_okay=False, path_type=Path)
_NO_LIMIT = 1000


class CommandGroup(click.Group):
    """A command with commands of its own, whose help tells the whole first sentence of each."""

    def sections(self, ctx: click.Context) -> dict[str, Sequence[str]]:
        """Return the names of the commands under the titles that they are listed by."""
        return {"Commands": self.list_commands(ctx)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        for title, names in self.sections(ctx).items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            told = [
                (name, below.get_short_help_str(_NO_LIMIT)) for name, below in commands if below and not below.hidden
            ]
            with formatter.section(title):
                formatter.write_dl(told)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; of one that does not exist, the nearest is named."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            nearest = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise click.UsageError(error.message + hint, ctx) from error


def with_params(command: Command) -> Command:
    """Add `--params FILE` and repeated `--set a.b=value`; the command gets them as one argument `params`."""

    def wrapped(params_file: Path | None, settings: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
        from mbd import tombstones
        from mbd.params import load_params

        params = load_params(params_file, settings)
        tombstones.use(partial(_tombstones, params))
        with _reporting(params), opened_options(params, options) as plain:
            command(params=params, **plain)

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


def _tombstones(params: "Params") -> frozenset[str]:
    """Return the digests that no step may read or write."""
    from mbd.purge.tombstones import listed

    return listed(params)


def _reporting(params: "Params") -> AbstractContextManager[None]:
    """Return what tells Prometheus how the command that runs now has ended."""
    context, names = click.get_current_context(), list[str]()
    if params.monitoring.mode == "none" or context.invoked_subcommand:
        return nullcontext()
    from mbd.steps.reporting import reporting

    while context.parent:
        names.insert(0, context.info_name or "")
        context = context.parent
    return reporting("-".join(names), params)
