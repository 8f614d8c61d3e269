"""The command line. The module of a command is loaded when it is used."""

import errno
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from mbd import __version__, logs
from mbd.cli.options import CommandGroup, log_options
from mbd.errors import EXIT_CODES, ExitCode, MbdError, extras_named

SECTIONS = {
    "The steps, in order": (
        "features",
        "train",
        "import",
        "branches",
        "evaluate",
        "predict",
        "delete",
        "attack",
        "compare",
        "certify",
        "publish",
        "purge",
        "register",
    ),
    "For those who rely on the result": ("verify", "guard", "report", "certificate"),
    "For those who run it": ("models", "request", "serve", "keys", "log", "shred", "exporter", "pipeline", "deploy"),
    "To find your way": ("demo", "init", "show", "params", "doctor"),
}
COMMANDS = tuple(name for names in SECTIONS.values() for name in names)
_STEPS = [name for name in SECTIONS["The steps, in order"] if name != "purge"]
_MODULES = dict.fromkeys(_STEPS, "steps") | {
    "guard": "verify",
    "report": "verify",
    "init": "show",
    "params": "show",
    "doctor": "show",
    "deploy": "pipeline",
    "exporter": "serve",
}
"""modules with several commands, called `NAME_command`; others have the name of their command, called `command`"""

_EPILOG = f"""`mbd COMMAND --help` describes a command, `mbd params` every parameter. -q, -v and --log-format may also
follow the command. Results go to standard output, log lines and progress to standard error.

Exit codes: {EXIT_CODES}."""
_LOG = logging.getLogger(__name__)
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
"""what is wrong with the place that is written to, not with the program"""


class _Commands(CommandGroup):
    def sections(self, ctx: click.Context) -> dict[str, Sequence[str]]:
        return dict(SECTIONS)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        logs.configure(logging.INFO, "text")
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = import_module(f"{__name__}.{_MODULES.get(name, name)}")
        command: click.Command = getattr(module, f"{name}_command", None) or module.command
        return command


@click.command(cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@log_options(hidden=False)
@click.version_option(__version__, prog_name="mbd")
def group() -> None:
    """Missing-by-Design: make a trained multimodal model forget a modality, attack the result, prove it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or the command with these arguments."""
    run_command(group, "mbd", arguments)


def run_command(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> None:
    """Run a command that is called `name`; every error ends with its own exit code."""
    logs.configure(logging.INFO, "text")
    try:
        with extras_named():
            command(arguments, prog_name=name, standalone_mode=False)
    except MbdError as error:
        _end(str(error), error.exit_code)
    except OSError as error:
        if error.errno not in _DISK:
            raise
        hint = "free some space, or write elsewhere; nothing half-written is left, so run the command again"
        _end(str(MbdError(f"cannot write: {error.strerror}", file=error.filename, hint=hint)), ExitCode.FAILURE)
    except click.exceptions.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            _end("interrupted; nothing half-written is left, run the command again", ExitCode.INTERRUPTED)
        _end("aborted, nothing was done", ExitCode.FAILURE)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)


def _end(message: str, code: ExitCode) -> NoReturn:
    _LOG.error(message)
    sys.exit(code)
