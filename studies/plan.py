"""`studies/params.yaml`: which data, seeds and settings are measured, and the same for a file of one's own."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from mbd.errors import DataError, UsageError
from mbd.files import locked, write_file

PLAN = Path("studies/params.yaml")
SYNTHETIC = "synthetic"
_OWN = "_npz"
_WAS = " #was"  # a temporary line of the plan; the original line follows this mark


class StudyBudget(BaseModel):
    """The sequences of deletions whose budget is added up and sampled."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    samples: int
    deletions: int
    epsilons: tuple[float, ...]


class StudyPlan(BaseModel):
    """What is measured; names refer to parameters, see `settings`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    source: str
    """what the features are made of, for DVC to watch"""
    main: str
    compared: tuple[str, ...]
    revoked: str
    seeds: tuple[int, ...]
    backbones: tuple[str, ...]
    variants: tuple[str, ...]
    deletions: tuple[str, ...]
    calibrations: tuple[int, ...]
    scans: tuple[str, ...]
    budget: StudyBudget
    settings: dict[str, dict[str, Any]]

    def options(self, *names: str) -> list[str]:
        """Return the `--set` options that `names` refer to."""
        settings = {key: value for name in names for key, value in self.settings[name].items()}
        return [part for key, value in settings.items() for part in ("--set", f"{key}={_text(value)}")]


def read_plan(file: Path = PLAN) -> StudyPlan:
    """Read the plan; a DataError names what is wrong with it."""
    try:
        return StudyPlan.model_validate(yaml.safe_load(file.read_text("utf-8")))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"the plan of the studies cannot be read: {error}", file=file) from error


def called(name: str) -> str:
    """Return what readers call the data of the plan `name`."""
    return "synthetic data" if name == SYNTHETIC else f"{name.removesuffix(_OWN)}.npz"


def command_about(name: str, command: str) -> str:
    """Return the command that measures the data of the plan `name`, given the one for synthetic data."""
    return command if name == SYNTHETIC else f"{command} DATA={called(name)}"


@contextmanager
def using(data: Path | None, revoked: str | None = None, file: Path = PLAN) -> Iterator[None]:
    """Within: the plan is about the file `data` and the modality `revoked`; afterwards it is what it was."""
    with _alone(file.parent):
        try:
            use_data(data, revoked, file)  # also takes back what a run that was killed has left
            yield
        finally:
            use_data(None, file=file)


def use_data(data: Path | None, revoked: str | None = None, file: Path = PLAN) -> None:
    """Let the plan be about the file `data`, or about what it was before; the file is written only if it changes."""
    before = file.read_text("utf-8")
    text = re.sub(rf"(?m)^.*{_WAS}\n", "", before)
    text = re.sub(rf"(?m)^.*{_WAS} (.*)$", r"\1", text)
    lines: dict[str, str | list[Any]] = {}
    if data:
        if not data.is_file():
            raise UsageError("there is no such file", key="DATA", value=data, hint="give the path of an .npz file")
        name = re.sub(r"[^A-Za-z0-9_]+", "_", data.stem) + _OWN  # no other setting is called so
        path = str(data.resolve())
        text += f"  {name}: {json.dumps({'features.source.kind': 'npz', 'features.source.path': path})}{_WAS}\n"
        lines = {"name": name, "source": path, "main": name, "compared": [name], "calibrations": [5000]}
    if revoked:
        lines["revoked"] = revoked
    for key, value in lines.items():
        text = _with(text, key, value)
    if text != before:
        write_file(file, text)


def _with(text: str, key: str, value: str | list[Any]) -> str:
    """Return the text of a plan with another value of `key`, and the line that stood there behind it."""
    return re.sub(rf"(?m)^{key}: .*$", lambda line: f"{key}: {json.dumps(value)}{_WAS} {line[0]}", text, count=1)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, wait=False))
        except BlockingIOError as error:
            raise UsageError("other studies are running", file=folder, hint="wait until they are done") from error
        yield


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
