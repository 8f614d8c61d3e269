"""What all tasks share: parameters as a file, the step's command, and artifacts that are what their step wrote."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, Protocol, TypeVar

from mbd.cli import group
from mbd.errors import DataError, MbdError
from mbd.files import STEP_FILE, file_digests, read_json, write_file
from mbd.params import Params, load_params

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Artifact(Protocol):
    """What a task sees of a Kubeflow artifact."""

    path: str
    metadata: dict[str, Any]


def task(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let an error that a user can act on end the task with its exit code, without a traceback."""

    @wraps(function)
    def wrapped(*arguments: Given.args, **named: Given.kwargs) -> Result:
        try:
            return function(*arguments, **named)
        except MbdError as error:
            say(f"error: {error}")
            sys.exit(error.exit_code)

    return wrapped


def say(what: str) -> None:
    """Write to the task's log, which is its output."""
    print(what, file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def settled(params: str) -> Iterator[tuple[str, Params]]:
    """Give the parameters as a file and as values."""
    with TemporaryDirectory(prefix="mbd-params-") as folder:
        file = Path(folder) / "params.yaml"
        write_file(file, params)
        yield str(file), load_params(file)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while; empty values are left out."""
    before = dict(os.environ)
    os.environ.update({name: value for name, value in values.items() if value})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def mbd(params: str, *arguments: str) -> None:
    """Run a command of the command line in this process."""
    command, *rest = arguments
    words = [command, rest.pop(0)] if rest and not rest[0].startswith("-") else [command]
    group.main([*words, "--params", params, *rest], prog_name="mbd", standalone_mode=False)


def each(option: str, values: Sequence[str]) -> list[str]:
    """Return an option once for each value."""
    return [part for value in values for part in (option, value)]


def verify(folder: Path) -> None:
    """Compare a step's folder with what its `step.json` lists."""
    try:
        listed = read_json(folder / STEP_FILE)["outputs"]["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError("the artifact is not the output of a step", file=folder, hint="run the step again") from error
    found = file_digests(folder)
    if different := sorted(name for name in {*listed, *found} if listed.get(name) != found.get(name)):
        raise DataError(
            "the artifact is not what the step wrote",
            file=folder / different[0],
            value=f"sha256 {found.get(different[0], 'missing')}, written {listed.get(different[0], 'not')}",
            hint="run the step again",
        )


def numbers(tree: object, prefix: str = "") -> dict[str, float]:
    """Return all numbers of nested JSON by dotted name, as Kubeflow shows metrics."""
    if isinstance(tree, Mapping):
        return {k: v for name, part in tree.items() for k, v in numbers(part, f"{prefix}{name}.").items()}
    if isinstance(tree, bool) or not isinstance(tree, int | float):
        return {}
    return {prefix.removesuffix("."): float(tree)}
