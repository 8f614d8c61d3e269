"""What all commands share: groups, parameters, options and arguments, declared once, and how results are printed."""

import difflib
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mbd import logs

if TYPE_CHECKING:
    from mbd.history.history import History
    from mbd.params import Params
    from mbd.params.tree import ReaderParams
    from mbd.storage.store import Store
    from mbd.trust.trust_file import Trust


_LOG = logging.getLogger(__name__)
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
PATH = click.Path(path_type=Path)


def _line(text: str) -> str:
    from mbd.records import valid_line

    try:
        return valid_line(text) if text else text
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


LINE = click.types.FuncParamType(_line)
LINE.name = "text"
_JSON, _FIRST_TIME = "mbd.json", "mbd.first_time"


def flag(name: str, text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """Return an option without a value."""
    return click.option(name, is_flag=True, help=text, **more)


def several(name: str, dest: str, metavar: str | None, text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """Return an option that may be repeated, whose values are the argument `dest`."""
    return click.option(name, dest, multiple=True, metavar=metavar, help=text, **more)


def folder(name: str, text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """Return an option for a folder."""
    return click.option(name, type=FOLDER, help=text, **more)


def path(name: str, text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """Return an option for a file or a folder."""
    return click.option(name, type=PATH, help=text, **more)


def number(
    name: str, text: str, least: int = 1, most: int | None = None, **more: Any
) -> Callable[[Decorated], Decorated]:
    """Return an option for a whole number; its default, if it has one, is shown."""
    return click.option(name, type=click.IntRange(least, most), show_default="default" in more, help=text, **more)


def reason(text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """Return the option `--reason TEXT`."""
    return click.option("--reason", type=LINE, help=text, **({"required": True} | more))


def store(otherwise: str = "store.url") -> Callable[[Decorated], Decorated]:
    """Return the option `--store URL`; `otherwise` says what counts without it."""
    text = f"Object store, file://FOLDER, s3://BUCKET[/PREFIX], https://HOST[/PREFIX] [default: {otherwise}]."
    return click.option("--store", metavar="URL", help=text)


def trust(otherwise: str) -> Callable[[Decorated], Decorated]:
    """Return the option `--trust FILE`; `otherwise` says what counts without it."""
    text = f"Trust file, obtained independently of the certificate [default: {otherwise}]."
    return click.option("--trust", type=FILE, help=text)


def features(name: str = "features", *, required: bool = True, **more: Any) -> Callable[[Decorated], Decorated]:
    """Return the option `--features DIR`."""
    text = "FeatureSet folder, as `mbd features` wrote it" + ("; repeatable." if more.get("multiple") else ".")
    return click.option("--features", name, type=FOLDER, required=required, **{"help": text, **more})


def model(
    text: str = "Model folder.", name: str = "model", *, required: bool = True, **more: Any
) -> Callable[[Decorated], Decorated]:
    """Return the option `--model DIR`."""
    return click.option("--model", name, type=FOLDER, required=required, help=text, **more)


def out(what: str, *, required: bool = True) -> Callable[[Decorated], Decorated]:
    """Return the option `--out DIR`, for the folder that `what` is written to."""
    return folder("--out", f"Folder to write {what} to.", required=required)


def _remember(key: str) -> dict[str, Any]:
    """Return the settings of a flag that the running command remembers under a key, and does not get as an argument."""

    def remember(context: click.Context, _: click.Parameter, given: bool) -> None:
        context.meta[key] = given

    return {"expose_value": False, "callback": remember}


CERTIFICATE = click.argument("certificate")
FIRST_TIME = flag(
    "--first-time",
    "This machine has never signed the log of the store: compare it with all signed checkpoints there, and sign.",
    **_remember(_FIRST_TIME),
)
"""of commands that sign the log"""
JSON = flag("--json", "Print the result as JSON.", **_remember(_JSON))
MODALITIES = several("--modality", "modalities", "MODALITY", "Modality to delete; repeatable.", required=True)
STORE = store()
TRUST = trust("MBD_TRUST, or trust.json in the user's configuration folder")
"""of commands that only verify"""
ISSUER_TRUST = trust("certificate.trust")
"""of commands that sign, or that their operator runs"""
YES = flag("--yes", "Do not ask for confirmation.")


def _set_level(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        logs.configure(logging.WARNING if option.name == "quiet" else logging.DEBUG)


def _set_format(context: click.Context, option: click.Parameter, given: logs.LogFormat | None) -> None:
    if given:
        logs.configure(form=given)


def log_options(*, hidden: bool) -> Callable[[Decorated], Decorated]:
    """Return `-q`, `-v` and `--log-format`: shown by `mbd --help`, and accepted after a command as well."""
    more: dict[str, Any] = {"expose_value": False, "hidden": hidden}
    quiet = click.option(
        "-q", "--quiet", is_flag=True, callback=_set_level, help="Log warnings and errors only.", **more
    )
    verbose = click.option("-v", "--verbose", is_flag=True, callback=_set_level, help="Log details, too.", **more)
    text, forms = "Format of log lines, which go to standard error [default: text].", click.Choice(["text", "json"])
    form = click.option("--log-format", type=forms, callback=_set_format, help=text, **more)
    return lambda command: quiet(verbose(form(command)))


def wants_json() -> bool:
    """Return whether the running command was given `--json`."""
    return bool(click.get_current_context().meta.get(_JSON))


def print_result(result: object, text: str | None = None) -> None:
    """Print a command's result to standard output: as JSON, or as text for a terminal.

    A stage of DVC is one of many, so there only the first paragraph of the text is printed.

    Args:
        result: a record, a dataclass, or JSON's own types.
        text: the same in words, unless `--json` is given; None: there is JSON alone.
    """
    if text is not None and not wants_json():
        click.echo(logs.visible(text.partition("\n\n")[0] if _in_stage() else text))
        return
    from pydantic_core import to_jsonable_python

    from mbd.files import to_json

    click.echo(logs.visible(to_json(to_jsonable_python(result))), nl=False)


def report_written(what: str, where: Path | str, look_at: str = "") -> None:
    """Log what a command has made, where it is, and the file in it to open first; of a DVC stage its file says so."""
    if not _in_stage():
        _LOG.info("%s written to %s%s", what, where, f"; open {Path(where) / look_at}" if look_at else "")


def _in_stage() -> bool:
    """Return whether DVC runs the command."""
    return "DVC_STAGE" in os.environ


def suggest(*command: object) -> None:
    """Log the command line that one would enter next; what the user has to choose is in capital letters.

    Parameters that were given are given again, but for those of the data's source: the next step needs the same ones. A
    DVC stage is followed by the next stage, so there nothing is suggested.
    """
    file, settings = given("params_file"), [s for s in given("settings") if not s.startswith("features.")]
    same = (*(["--params", file] if file else []), *repeated("--set", settings))
    if not _in_stage():
        _LOG.info("next: mbd %s", shlex.join(map(str, (*command, *same))))


def given(option: str) -> Any:  # noqa: ANN401 -- of any option
    """Return an option of the running command."""
    return click.get_current_context().params[option]


def repeated(option: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return `option` before each of `values`, as on a command line."""
    return tuple(part for value in values for part in (option, value))


def existing_store(params: "Params | ReaderParams", url: str | None) -> "Store":
    """Return the store at `url` (default: `store.url`), to read from it.

    Raises:
        UsageError: there is no such store.
    """
    from mbd.storage import open_existing

    return open_existing(url or params.store.url, params.store, key="--store" if url else "store.url")


def trusted_keys(file: Path | None = None) -> "Trust":
    """Return the trusted keys of a verifier: those in `file`, or where :data:`TRUST` says."""
    from mbd.trust.trust_file import read_trust, require_trust

    return read_trust(require_trust(file))


def read_log(params: "Params", store: str | None, trust: Path | None) -> "History":
    """Return what the log of the store at a URL (default: `store.url`) says, by the trust file of a verifier."""
    from mbd.history.replay import read_history

    return read_history(existing_store(params, store), trusted_keys(trust))


Command = Callable[..., Any]
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


def params_options(command: Command) -> Command:
    """Add `--params FILE` and repeated `--set a.b=value`: `params_file` and `settings`."""
    file = click.option("--params", "params_file", type=PATH, help="Parameters [default: ./params.yaml].")
    settings = several("--set", "settings", "A.B=VALUE", "Set one parameter; repeatable.")
    return log_options(hidden=True)(file(settings(command)))


def with_params(command: Command, load: str = "mbd.params:load_params", *, json: bool = True) -> Command:
    """Add `--json`, `--params FILE` and repeated `--set a.b=value`; the command gets the parameters as `params`."""

    @wraps(command)
    def wrapped(params_file: Path | None, settings: tuple[str, ...], **options: Any) -> None:
        from pkgutil import resolve_name

        from mbd.steps.step import step_context

        context = click.get_current_context()
        settings += ("certificate.first_time=true",) if context.meta.get(_FIRST_TIME) else ()
        params = resolve_name(load)(params_file, settings)
        if context.invoked_subcommand:  # which has parameters and a context of its own
            return
        name = context.command_path.removeprefix(context.find_root().command_path).strip()
        with step_context(params, name.replace(" ", "-"), warn=_LOG.warning):
            command(params=params, **options)

    return JSON(params_options(wrapped)) if json else params_options(wrapped)


with_params_only = partial(with_params, json=False)
"""for commands that run on, or that print nothing but text"""
with_reader_params = partial(with_params, load="mbd.params.tree:load_reader_params")
"""for commands that only read a store"""
