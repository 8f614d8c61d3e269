"""The command line, one face of the steps. Each command lives in a module of its own, loaded when it is used."""

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import requires

import click

from mbd import __version__
from mbd.cli.common import CommandGroup
from mbd.errors import ExitCode, MbdError, MissingExtraError

SECTIONS = {
    "The steps, in order": (
        "features",
        "train",
        "evaluate",
        "predict",
        "delete",
        "attack",
        "certify",
        "publish",
        "purge",
    ),
    "For those who rely on the result": ("verify", "guard", "report", "certificate"),
    "For those who run it": ("request", "keys", "log", "shred", "exporter", "pipeline"),
    "To find your way": ("params", "show", "doctor"),
}
COMMANDS = tuple(name for names in SECTIONS.values() for name in names)

_EPILOG = """`mbd COMMAND --help` tells the options of a command, `mbd params` every parameter with its meaning.

Exit codes: 0 done, 1 failure, 2 wrong usage or parameters, 3 refused by the gate, 4 verification failed,
5 bad data."""


class _Commands(CommandGroup):
    def sections(self, ctx: click.Context) -> dict[str, Sequence[str]]:
        return dict(SECTIONS)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"{__name__}.{name}").command
        return command


@click.command(cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mbd")
def group() -> None:
    """Missing-by-Design: make a trained multimodal model forget a modality, attack the result, prove it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or the command with these arguments."""
    run_command(group, "mbd", arguments)


def run_command(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> None:
    """Run a command that is called `name`; every error ends with its own exit code."""
    try:
        command(arguments, prog_name=name, standalone_mode=False)
    except MbdError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "mbd":
            raise
        click.echo(f"error: {MissingExtraError('this command', _extra_with(error.name), error.name)}", err=True)
        sys.exit(ExitCode.FAILURE)
    except click.exceptions.Abort:
        click.echo("interrupted; nothing half-written is left, run it again", err=True)
        sys.exit(ExitCode.FAILURE)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)


def _extra_with(module: str) -> str:
    """Return the extra of this distribution that brings the package of `module`, or all of them."""
    package = module.partition(".")[0].replace("_", "-")
    for requirement in requires("missing-by-design") or []:
        name, _, condition = requirement.partition(";")
        if re.match(rf"{re.escape(package)}\b(?!-)", name) and (extra := re.search(r"extra == [\"'](\w+)", condition)):
            return extra[1]
    return "all"
