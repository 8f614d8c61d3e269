"""The README of a component, from its compiled form: what it takes and gives, and its image.

`python -m components.readme` writes them all.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.parent.name for path in FOLDER.glob("*/component.py")))


def load(name: str) -> Any:  # noqa: ANN401 -- kfp has no types
    """Return the component `name`."""
    return getattr(import_module(f"components.{name}.component"), name)


def readme(name: str) -> str:
    """Return the text of `components/NAME/README.md`."""
    spec = load(name).component_spec
    image = spec.implementation.container.image
    return f"""<!-- written by `python -m components.readme` from the compiled component -->
# {name}

{spec.description}

{_table("Input", spec.inputs)}{_table("Output", spec.outputs)}
Image: `{image}`, replaced by `platform.image` (or `platform.gpu_image`) in a pipeline.
The same step on the command line: `mbd {_COMMANDS.get(name, name)} --help`.
"""


_COMMANDS = {
    "fetch": "models fetch",
    "parameters": "params",
    "registered_reference": "models fetch",
    "reference": "train",
    "train_part": "train",
    "settings": "params",
    "published": "certificate fetch",
    "reaudit": "certificate reaudit",
    "notify": "exporter",
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
    for name in NAMES:
        (FOLDER / name / "README.md").write_text(readme(name), encoding="utf-8")
