"""`studies/params.yaml`: which data, seeds and settings are measured, and the same for a file of one's own."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from mbd.errors import DataError, UsageError
from mbd.files import write_file

PLAN = Path("studies/params.yaml")
SYNTHETIC = "synthetic"
_OWN = "_npz"


class Budget(BaseModel):
    """The sequences of deletions whose budget is added up and sampled."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    samples: int
    deletions: int
    epsilons: tuple[float, ...]


class Plan(BaseModel):
    """What is measured; names stand for parameters, see `settings`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    main: str
    compared: tuple[str, ...]
    revoked: str
    seeds: tuple[int, ...]
    backbones: tuple[str, ...]
    variants: tuple[str, ...]
    deletions: tuple[str, ...]
    calibrations: tuple[int, ...]
    scans: tuple[str, ...]
    budget: Budget
    settings: dict[str, dict[str, Any]]

    def options(self, *names: str) -> list[str]:
        """Return the `--set` options that `names` stand for."""
        settings = {key: value for name in names for key, value in self.settings[name].items()}
        return [part for key, value in settings.items() for part in ("--set", f"{key}={_text(value)}")]


def read_plan(file: Path = PLAN) -> Plan:
    """Read the plan; a DataError names what is wrong with it."""
    try:
        return Plan.model_validate(yaml.safe_load(file.read_text("utf-8")))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"the plan of the studies cannot be read: {error}", file=file) from error


@contextmanager
def using(data: Path | None, revoked: str | None = None, file: Path = PLAN) -> Iterator[None]:
    """Within: the plan is about the file `data` and the modality `revoked`; afterwards it is what it was."""
    if read_plan(file).name.endswith(_OWN):  # left by a run that was killed
        use_data(None, file=file)
    before = file.read_text("utf-8")
    try:
        if data or revoked:
            use_data(data, revoked, file)
        yield
    finally:
        if file.read_text("utf-8") != before:
            write_file(file, before)


def use_data(data: Path | None, revoked: str | None = None, file: Path = PLAN) -> None:
    """Let the plan be about the file `data`, or about synthetic data again; the file is written only if it changes."""
    text = re.sub(r"(?m)^  \w+: {features\.source\.kind: npz, .*\n", "", file.read_text("utf-8"))
    if data is None:
        lines = {"name": SYNTHETIC, "main": "mosi", "compared": "[mosi, mosei, iemocap]"}
        lines["calibrations"] = "[2000, 5000, 10000]"
    else:
        if not data.is_file():
            raise UsageError("there is no such file", key="DATA", value=data, way_out="give the path of an .npz file")
        name = re.sub(r"[^A-Za-z0-9_]+", "_", data.stem) + _OWN  # no other setting is called so
        text += f'  {name}: {{features.source.kind: npz, features.source.path: "{data.resolve()}"}}\n'
        lines = {"name": name, "main": name, "compared": f"[{name}]", "calibrations": "[5000]"}
    if revoked:
        lines["revoked"] = revoked
    elif data is None:
        lines["revoked"] = "audio"
    for key, value in lines.items():
        text = re.sub(rf"(?m)^{key}: [^#\n]*?(?=( #|$))", f"{key}: {value}", text, count=1)
    if text != file.read_text("utf-8"):
        write_file(file, text)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
