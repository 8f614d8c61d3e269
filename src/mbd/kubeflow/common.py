"""What all tasks share: their errors and their log, the parameters that reach them, and what Kubeflow can show."""

import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, Protocol, TypeVar

import yaml

from mbd import __version__, logs
from mbd.errors import MbdError, UsageError
from mbd.files import write_file
from mbd.formats.features import FeatureReference
from mbd.params import Params, load_params, params_digest, to_yaml
from mbd.steps.context import step_context

Given = ParamSpec("Given")
Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_RESOLVED = re.compile(r"# all parameters: sha256 ([0-9a-f]{64}), mbd (\S+)\n")


class Artifact(Protocol):
    """What a task sees of a Kubeflow artifact."""

    path: str
    metadata: dict[str, Any]


def task(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Write log lines to standard error; an error that a user can act on ends the task with its exit code."""

    @wraps(function)
    def wrapped(*arguments: Given.args, **named: Given.kwargs) -> Result:
        logs.configure(logging.INFO, "text")
        try:
            return function(*arguments, **named)
        except MbdError as error:
            _LOG.error("%s", error)
            sys.exit(error.exit_code)

    return wrapped


def write_params(params: Params) -> str:
    """Return parameters as the text that a pipeline is given: those that differ from the defaults.

    The whole of them is 15 kB, which is too much to read in a list of runs. The first line is the digest of all
    parameters, so that an image with other defaults is noticed.
    """
    head = f"# all parameters: sha256 {params_digest(params)}, mbd {__version__}\n"
    text = head + yaml.safe_dump(params.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    return text if _loaded(text) == params else head + to_yaml(params)


def read_params(text: str, *settings: str) -> Params:
    """Return the parameters in the text of :func:`write_params`, with `a.b=value` settings on top.

    Raises:
        UsageError: they are not valid, or the defaults here are others than those where the text was written.
    """
    params, resolved = _loaded(text), _RESOLVED.match(text)
    if resolved and resolved[1] != params_digest(params):
        raise UsageError(
            "the defaults in this image are not those of the installation that submitted the pipeline",
            key="platform.image",
            value=f"mbd {__version__} here, {resolved[2]} there",
            hint="submit with the version of mbd that is in the image",
        )
    return _loaded(text, *settings) if settings else params


def resolved(
    text: str, model: str = "", method: str = "", epsilon: float = 0.0, overrides: Sequence[str] = ()
) -> Params:
    """Return the parameters of a run from the arguments of its pipeline; an empty argument changes nothing."""
    typed = {"certificate.model": model, "deletion.method": method, "deletion.epsilon": epsilon}
    return read_params(text, *overrides, *(f"{key}={json.dumps(value)}" for key, value in typed.items() if value))


def _loaded(text: str, *settings: str) -> Params:
    with TemporaryDirectory(prefix="mbd-params-") as folder:
        file = Path(folder) / "params.yaml"
        write_file(file, text)
        return load_params(file, settings)


@contextmanager
def running(params: Artifact, command: str) -> Iterator[Params]:
    """Within: the parameters, in the context of a step, which verifies the artifacts that it reads."""
    from mbd.kubeflow.sealing import verify_artifact

    values = load_params(Path(params.path))
    with step_context(values, command, warn=_LOG.warning, verify=verify_artifact):
        yield values


def origin(dataset: Artifact, run: str) -> dict[str, str]:
    """Return what signed statements say of where they come from: the data's revision and the run."""
    reference = FeatureReference.read(Path(dataset.path), "reference to a FeatureSet")
    return {"MBD_DVC_REVISION": reference.commit or "", "MBD_RUN_ID": run}


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


def numbers(tree: object, prefix: str = "") -> dict[str, float]:
    """Return all numbers of nested JSON by dotted name, as Kubeflow shows metrics.

    NaN and infinity are left out: Kubeflow's launcher fails a task that has them in its metadata.
    """
    if isinstance(tree, Mapping):
        return {k: v for name, part in tree.items() for k, v in numbers(part, f"{prefix}{name}.").items()}
    if isinstance(tree, bool) or not isinstance(tree, int | float) or not math.isfinite(tree):
        return {}
    return {prefix.removesuffix("."): float(tree)}
