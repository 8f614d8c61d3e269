"""The README of the components, from their compiled form: what each takes and gives, and its image.

`python -m components.readme` writes it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kfp.dsl.base_component import BaseComponent

from components import steps

FILE = Path(__file__).parent / "README.md"
COMPONENTS = {name: value for name, value in vars(steps).items() if isinstance(value, BaseComponent)}


def readme() -> str:
    """Return the text of `components/README.md`."""
    head = f"""<!-- written by `python -m components.readme` from the compiled components -->
# Kubeflow components

Each runs in the image `{steps.IMAGE}`, replaced by `platform.image` (or `platform.gpu_image`) in a pipeline.
"""
    return head + "".join(_section(name, component.component_spec) for name, component in COMPONENTS.items())


def _section(name: str, spec: Any) -> str:  # noqa: ANN401 -- kfp has no types
    tables = _table("Input", spec.inputs) + _table("Output", spec.outputs)
    command = f"The same step on the command line: `mbd {_COMMANDS.get(name, name)} --help`."
    return f"\n## {name}\n\n{spec.description}\n\n{tables}{command}\n"


_COMMANDS = {
    "extract": "features",
    "fetch": "models fetch",
    "registered_reference": "models fetch",
    "reference": "train",
    "require_purged": "purge",
    "settings": "params",
    "published": "certificate fetch",
    "reaudit": "certificate reaudit",
}


def _table(title: str, entries: Mapping[str, Any] | None) -> str:
    if not entries:
        return ""
    rows = [f"| `{key}` | {_kind(entry.type)} | {_needed(entry)} |" for key, entry in entries.items()]
    return "\n".join([f"| {title} | Type | |", "| --- | --- | --- |", *rows, "", ""])


def _kind(kind: str) -> str:
    return kind.removeprefix("system.").partition("@")[0]


def _needed(entry: Any) -> str:  # noqa: ANN401
    if not getattr(entry, "optional", False):
        return ""
    return "optional" if entry.default in (None, "") else f"default `{entry.default}`"


if __name__ == "__main__":
    FILE.write_text(readme(), encoding="utf-8")
