"""Write the pages that follow from the code: commands.md, parameters.md, tables in other pages, schemas.

Run `python docs/generate.py` after a change of a command, parameter, record or package; a test finds stale pages.
"""

import ast
import inspect
import math
import re
import sys
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
import yaml
from pydantic.fields import FieldInfo

from mbd.cli import _EPILOG, group
from mbd.formats.deletion import DeletionRecord
from mbd.formats.features import Manifest
from mbd.formats.layout import Receipt
from mbd.formats.leakage import LeakageRecord
from mbd.formats.model import ModelRecord
from mbd.formats.purge import PurgeRecord
from mbd.formats.request import DeletionRequest
from mbd.formats.statement import DELETION_TYPE, DeletionStatement
from mbd.formats.strength import BOUNDS
from mbd.formats.verdict import VERDICTS
from mbd.params import Params
from mbd.params.base import Settings
from mbd.params.deletion import AttacksSettings
from mbd.records import Record, describe_fields, json_schema
from mbd.serving.problems import TITLES, TYPE

HERE = Path(__file__).parent
WIDTH = 100
COLUMN = 84
"""what a page shows of a line of code on a screen"""
_WHOLE_NUMBERS_OF_JSON = 2**53
_PLAIN = {int: "integer", float: "number", str: "text", bool: "true | false", type(None): "null", Any: "value"}
NOTE = "<!-- written by `python docs/generate.py` -->\n"


def commands_page() -> str:
    """Return what every command does and takes; what its options mean is in its `--help`."""
    context = _context(group, "mbd", None)
    parts = [
        NOTE,
        "# Commands\n",
        "What each command does and takes. Options without brackets are required. Most commands also take\n"
        "`--params PATH` (default: ./params.yaml), `--set A.B=VALUE` (repeatable) and `--json`.\n",
        f"{inspect.cleandoc(_EPILOG)}\n",
        *_synopses(group, context, 2),
    ]
    return "\n".join(parts)


def parameters_page() -> str:
    """Return every parameter with its default and its meaning, a list for each section."""
    parts = [
        NOTE,
        "# Parameters\n",
        "`params.yaml` holds them all; `--set a.b=value` sets one for a single command, `mbd params` prints what is in "
        "force.\nEach is listed with its default, what else it takes, and its meaning. Numbers begin at 0 or 1 where "
        "no lower bound is listed.\nValues are YAML. A key that is not here is an error.\n",
        *_tables(Params(), "", {}),
    ]
    return "\n".join(parts)


def architecture_page() -> str:
    """Return the page as it is, with its table of packages as tests/test_architecture.py has them."""
    return _with_table("architecture.md", "packages", _packages())


def attacks_page() -> str:
    """Return the page as it is, with the bounds that an audit has to keep."""
    return _with_table("attacks.md", "bounds", _audit_bounds())


def auditor_page() -> str:
    """Return the page as it is, with the table of verdicts."""
    return _with_table("guide-auditor.md", "verdicts", _verdicts())


def serving_page() -> str:
    """Return the page as it is, with the kinds of problems."""
    return _with_table("serving.md", "problems", _problems())


def _problems() -> Iterator[str]:
    yield "| status | `type` | `title` |\n| --- | --- | --- |"
    for status, (kind, title) in TITLES.items():
        yield f"| {status} | `{TYPE}{kind}` | {title} |"


def _verdicts() -> Iterator[str]:
    yield "| first line | exit code | what it means | what to do |\n| --- | ---: | --- | --- |"
    for verdict, rules in VERDICTS.items():
        yield f"| `{verdict.upper()}` | {rules.exit_code:d} | {rules.sentence} | {rules.to_do} |"


def _with_table(name: str, marker: str, lines: Iterator[str]) -> str:
    page, table = (HERE / name).read_text(encoding="utf-8"), "\n".join(lines)
    between = rf"(<!-- {marker} -->\n).*(<!-- /{marker} -->)"
    return re.sub(between, lambda mark: f"{mark[1]}{table}\n{mark[2]}", page, flags=re.DOTALL)


def _audit_bounds() -> Iterator[str]:
    yield "| parameter | default | for a certificate |\n| --- | --- | --- |"
    for name, (least, most) in BOUNDS.items():
        limits = f"at least {least:g}" if math.isinf(most) else f"{least:g} to {most:g}"
        default = _yaml(AttacksSettings().model_dump(mode="json")[name])
        yield f"| `attacks.{name}` | `{default}` | {limits} |"


def certificate_schema() -> str:
    """Return the JSON Schema of what is signed in a certificate."""
    return json_schema(DeletionStatement, **{"$id": DELETION_TYPE})


SCHEMAS: dict[str, type[Record]] = {
    "deletion": DeletionRecord,
    "leakage": LeakageRecord,
    "manifest": Manifest,
    "model": ModelRecord,
    "purge": PurgeRecord,
    "receipt": Receipt,
    "request": DeletionRequest,
}


PAGES = {
    "commands.md": commands_page,
    "parameters.md": parameters_page,
    "architecture.md": architecture_page,
    "attacks.md": attacks_page,
    "guide-auditor.md": auditor_page,
    "serving.md": serving_page,
    "schemas/certificate.schema.json": certificate_schema,
    **{f"schemas/{name}.schema.json": partial(json_schema, record) for name, record in SCHEMAS.items()},
}


def _packages() -> Iterator[str]:
    sys.path.insert(0, str(HERE.parent))  # the rule is a part of the tests, not of the package
    from tests.test_architecture import LAYERS, NEIGHBOURS, SOURCE, TOOLS, WITHOUT_TORCH  # noqa: PLC0415

    yield "| level | package | what it is | never imports torch |\n| ---: | --- | --- | :---: |"
    for level, names in enumerate(LAYERS, 1):
        for name in sorted(names):
            about = (ast.get_docstring(ast.parse((SOURCE / name / "__init__.py").read_text())) or "").splitlines()[0]
            about = re.sub(r":\w+:`([^`]+)`", r"`\1`", about)
            yield f"| {level} | `{name}` | {_cell(about)} | {'yes' if name in WITHOUT_TORCH else ''} |"
    exceptions = ", ".join(f"`{one}` may import `{other}`" for one, other in sorted(NEIGHBOURS))
    yield f"\nWithin a level: {exceptions}. Tools: {', '.join(f'`{tool}`' for tool in sorted(TOOLS))}."


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    return click.Context(command, parent=parent, info_name=name, **settings)


def _synopses(command: click.Group, context: click.Context, level: int) -> Iterator[str]:
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is None:
            raise RuntimeError(f"{context.command_path} lists {name} and does not have it")
        inner = _context(below, name, context)
        yield f"{'#' * level} {inner.command_path}\n"
        yield f"{inspect.cleandoc(below.help or '').partition(chr(10) * 2)[0]}\n"
        if not isinstance(below, click.Group) or below.invoke_without_command:
            yield f"```text\n{_usage(below, inner)}\n```\n"
        if isinstance(below, click.Group):
            yield from _synopses(below, inner, level + 1)


def _usage(command: click.Command, context: click.Context) -> str:
    """Return a command with all that it takes, in lines of at most `COLUMN`."""
    words = []
    for taken in command.params:
        if getattr(taken, "hidden", False) or taken.opts[0] in ("--params", "--set", "--json"):
            continue
        value = "" if getattr(taken, "is_flag", False) else taken.make_metavar(context).removesuffix("...")
        word = f"{max(taken.opts, key=len)} {value}".rstrip() if isinstance(taken, click.Option) else value.strip("[]")
        words.append((word if taken.required else f"[{word}]") + ("…" if taken.multiple or taken.nargs == -1 else ""))
    lines = [context.command_path]
    for word in words:
        if len(lines[-1]) + len(word) >= COLUMN:
            lines.append("   ")
        lines[-1] += f" {word}"
    return "\n".join(lines)


def _tables(section: Settings, prefix: str, listed: dict[str, str]) -> Iterator[str]:
    fields, texts = type(section).model_fields, describe_fields(type(section))
    below = {name for name in fields if isinstance(getattr(section, name), Settings)}
    if prefix:
        yield f"{'##' if '.' not in prefix.rstrip('.') else '###'} {prefix.rstrip('.')}\n"
        if about := inspect.getdoc(type(section)):
            yield f"{about}\n"
    if (same := listed.setdefault(repr(section), prefix)) != prefix:
        yield f"As `{same.rstrip('.')}`.\n"
        return
    values = section.model_dump(mode="json")
    for name in (leaves := [name for name in fields if name not in below]):
        takes, meaning = _takes(fields[name], values[name]), texts.get(name, "")
        beside = f" ({takes})" if not all(choice in meaning for choice in takes.split(" | ")) else ""
        yield f"- `{prefix}{name}: {_yaml(values[name])}`{beside}: {meaning}"
    yield from [""] if leaves else []
    for name in fields:
        if name in below:
            yield from _tables(getattr(section, name), f"{prefix}{name}.", listed)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _yaml(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("...\n").strip()


def _takes(field: FieldInfo, default: object) -> str:
    """Return what a parameter takes beside values such as its default: kinds, choices and bounds, in words."""
    kind = _kind(field.annotation)
    if default is None:
        kind = "" if kind == "text | null" else kind.removesuffix(" | null")
    elif kind in _PLAIN.values():
        kind = ""
    return ", ".join([*filter(None, [kind]), *_bounds(field.metadata)])


def _kind(annotation: Any) -> str:  # noqa: ANN401
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        words = ", ".join([_kind(inner[0]), *_bounds(getattr(inner[1], "metadata", []))])
    elif origin is Literal:
        words = " | ".join(str(value) for value in inner)
    elif origin in (Union, types.UnionType):
        words = " | ".join(_kind(part) for part in inner)
    elif origin is tuple:
        words = f"[{_kind(inner[0])}]"
    elif origin is dict:
        words = f"{{{_kind(inner[0])}: {_kind(inner[1])}}}"
    else:
        words = _PLAIN.get(annotation) or f"{{{', '.join(annotation.model_fields)}}}"
    return words


def _bounds(metadata: list[Any]) -> Iterator[str]:
    """Yield the bounds of a number, but for the ones that the head of the page states."""
    for bound in metadata:
        for sign, name in {"≥": "ge", ">": "gt", "≤": "le", "<": "lt"}.items():
            value = getattr(bound, name, None)
            if value is not None and value < _WHOLE_NUMBERS_OF_JSON and not (name in ("ge", "gt") and value in (0, 1)):
                yield f"{sign} {value}"


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
        click.echo(f"written: {HERE / name}")


if __name__ == "__main__":
    main()
