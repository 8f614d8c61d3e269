"""From a file and `--set a.b=value` to a tree of values, and from a tree to settings.

Commands that only read a store load a few sections: those who verify load nothing about models and training.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from mbd.errors import UsageError
from mbd.params.base import Settings
from mbd.params.operations import (
    CertificateSettings,
    MonitoringSettings,
    PurgeSettings,
    ShreddingSettings,
    StoreSettings,
)
from mbd.records import first_problem

if TYPE_CHECKING:
    from mbd.params.resolve import Params

DEFAULT_FILE = Path("params.yaml")
_LIST = "`mbd params` lists all of them"
S = TypeVar("S", bound=Settings)
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""ValueError: bytes that are no text, or a date such as 2026-99-99; RecursionError: a thousand brackets"""


def read_tree(file: Path | None, settings: Iterable[str] | Mapping[str, object]) -> tuple[dict[str, Any], Path | None]:
    """Return what `file` (or `./params.yaml` if there is one) and `a.b=value` settings say, and the file."""
    if file is None and DEFAULT_FILE.is_file():
        file = DEFAULT_FILE
    tree = _read(file) if file else {}
    for key, value in settings.items() if isinstance(settings, Mapping) else map(_parse, settings):
        _set(tree, key, value)
    return tree, file


def validate_tree(tree: dict[str, Any], file: Path | None, kind: type[S]) -> S:
    """Return the settings that a tree says; a UsageError for what is unknown or wrong."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        for unknown in error.errors(include_url=False):
            if unknown["type"] == "extra_forbidden":
                key = ".".join(map(str, unknown["loc"]))
                hint = _nearest(key, list(known_keys(kind)))
                raise UsageError("there is no such parameter", file=file, key=key, hint=hint) from error
        problem, key, value = first_problem(error)
        hint = f"`mbd params` prints every parameter with its meaning ({error.error_count()} to correct)"
        raise UsageError(problem, file=file, key=key, value=value, hint=hint) from error
    except UsageError as error:  # from a registry: it has the key
        error.file = error.file or file
        raise


def known_keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every parameter and section."""
    for name, field in section.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            yield from known_keys(field.annotation, f"{prefix}{name}.")


def _read(file: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"the parameters cannot be read: {error.strerror}",
            file=file,
            hint="give another file with --params",
        ) from error
    except _NOT_YAML as error:
        raise UsageError(f"the parameters are not YAML: {error}", file=file) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UsageError("the parameters must be a mapping of sections", file=file, value=type(tree).__name__)
    return tree


def _parse(setting: str) -> tuple[str, object]:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UsageError("a setting has the form a.b=value", key="--set", value=setting)
    try:
        return key, yaml.safe_load(text)
    except _NOT_YAML as error:
        raise UsageError(f"the value is not YAML: {error}", key=key, value=text) from error


def _set(tree: dict[str, Any], key: str, value: object) -> None:
    *sections, last = key.split(".")
    for section in sections:
        below = tree.get(section, {})
        if not isinstance(below, dict):
            raise UsageError(f"{section} is not a section", key=key, hint=_LIST)
        tree[section] = tree = dict(below)  # a caller's own stays as it is
    tree[last] = value


def _nearest(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    last = key.rpartition(".")[2]
    close += [k for k in known if k.rpartition(".")[2] == last][:1]
    return f"did you mean {close[0]}?" if close else _LIST


class ReaderParams(Settings):
    """Sections of :class:`~mbd.params.Params`."""

    certificate: CertificateSettings = CertificateSettings()
    store: StoreSettings = StoreSettings()
    purge: PurgeSettings = PurgeSettings()
    shredding: ShreddingSettings = ShreddingSettings()
    monitoring: MonitoringSettings = MonitoringSettings()


def load_reader_params(file: Path | None = None, settings: Iterable[str] = ()) -> "ReaderParams | Params":
    """Return what :func:`~mbd.params.load_params` does; where nothing else is set, of these sections alone."""
    tree, file = read_tree(file, settings)
    if set(tree) <= set(ReaderParams.model_fields):
        return validate_tree(tree, file, ReaderParams)
    from mbd.params.resolve import Params  # noqa: PLC0415 -- all other sections

    return validate_tree(tree, file, Params)
