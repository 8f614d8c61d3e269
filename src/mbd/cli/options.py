"""The options and arguments that several commands take, each declared once, and how results are printed."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mbd import logs

if TYPE_CHECKING:
    from mbd.certificate.trust import Trust
    from mbd.params import Params
    from mbd.storage.store import Store

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)

JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
TRUST = click.option(
    "--trust",
    type=FILE,
    help="Trust file, obtained independently of the certificate [default: certificate.trust].",
)
CERTIFICATE = click.argument("certificate")
MODALITIES = click.option(
    "--modality", "modalities", required=True, multiple=True, metavar="MODALITY", help="Modality to delete; repeatable."
)
YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def store(otherwise: str = "store.url") -> Callable[[Decorated], Decorated]:
    """Return the option `--store URL`; `otherwise` says what counts without it."""
    text = f"Object store, file://FOLDER or s3://BUCKET[/PREFIX] [default: {otherwise}]."
    return click.option("--store", metavar="URL", help=text)


STORE = store()


def features(name: str = "features", *, required: bool = True, **more: Any) -> Callable[[Decorated], Decorated]:  # noqa: ANN401
    """Return the option `--features DIR`."""
    text = "FeatureSet folder, as `mbd features` wrote it" + ("; repeatable." if more.get("multiple") else ".")
    return click.option("--features", name, type=FOLDER, required=required, **{"help": text, **more})


def model(
    what: str = "Model folder.",
    name: str = "model",
    *,
    required: bool = True,
    **more: Any,  # noqa: ANN401
) -> Callable[[Decorated], Decorated]:
    """Return the option `--model DIR`."""
    return click.option("--model", name, type=FOLDER, required=required, help=what, **more)


def out(what: str, *, required: bool = True) -> Callable[[Decorated], Decorated]:
    """Return the option `--out DIR`, for the folder that `what` is written to."""
    return click.option("--out", type=FOLDER, required=required, help=f"Folder to write {what} to.")


def _set_level(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        logs.configure(logging.WARNING if option.name == "quiet" else logging.DEBUG)


def _set_format(context: click.Context, option: click.Parameter, given: logs.LogFormat | None) -> None:
    if given:
        logs.configure(form=given)


def log_options(*, hidden: bool) -> Callable[[Decorated], Decorated]:
    """Return `-q`, `-v` and `--log-format`: shown by `mbd --help`, and accepted after a command as well."""
    more: dict[str, Any] = {"expose_value": False, "hidden": hidden}
    options = (
        click.option("-q", "--quiet", is_flag=True, callback=_set_level, help="Log warnings and errors only.", **more),
        click.option("-v", "--verbose", is_flag=True, callback=_set_level, help="Log details, too.", **more),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            callback=_set_format,
            help="Format of log lines, which go to standard error [default: text].",
            **more,
        ),
    )

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def print_result(result: object, text: str, *, as_json: bool) -> None:
    """Print a command's result to standard output: as JSON, or as text for a terminal.

    Args:
        result: a record, a dataclass, or JSON's own types.
        text: the same in words.
        as_json: which of them to print.
    """
    if not as_json:
        click.echo(text)
        return
    from pydantic_core import to_jsonable_python

    from mbd.files import to_json

    click.echo(to_json(to_jsonable_python(result)), nl=False)


def existing_store(params: "Params", url: str | None) -> "Store":
    """Return the store at `url` (default: `store.url`), to read from it.

    Raises:
        UsageError: there is no such store.
    """
    from mbd.errors import UsageError
    from mbd.storage import folder_of, open_store

    chosen = url or params.store.url
    if chosen.startswith("file://") and not folder_of(chosen).is_dir():
        raise UsageError(
            "there is no store at this address",
            key="--store" if url else "store.url",
            value=chosen,
            hint="check the address; `mbd publish` and `mbd request submit` create a store",
        )
    return open_store(chosen, params.store)


def trusted_keys(params: "Params", file: Path | None = None) -> "Trust":
    """Return the trusted keys in `file` (default: `certificate.trust`)."""
    from mbd.certificate.trust import read_trust

    return read_trust(file or Path(params.certificate.trust))
