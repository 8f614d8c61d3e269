"""What all tasks share: their errors and their log, the parameters that reach them, and their artifacts.

Artifacts are verified on their way in and out, and encrypted where crypto-shredding is enabled: with
`shredding.enabled` no artifact holds a model in plain. A task writes the model into a private folder; from there it
goes into the artifact as `NAME.mbdx`, under the keys of its modalities. A task that reads the artifact gets its plain
form in a private folder, verified against its `step.json`. Private folders (`shredding.temporary`) are removed when the
task ends, however it ends. A deletion record that names persons is encrypted under the lineage key, always.
"""

import errno
import json
import logging
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, ParamSpec, Protocol, TypeVar

import yaml
from cryptography.exceptions import InvalidTag

from mbd import __version__, logs
from mbd.errors import DataError, ExitCode, MbdError, UsageError, describe_exit
from mbd.files import write_file
from mbd.formats.deletion import DELETION
from mbd.formats.features import FeatureLocation
from mbd.formats.shredding import KeyName
from mbd.outputs import read_step
from mbd.params import Params, load_params, params_digest, to_yaml
from mbd.params.deletion import refuse_weak_audit
from mbd.params.operations import CertificateSettings, ShreddingSettings
from mbd.params.resolve import in_container
from mbd.remote_errors import retry_transient
from mbd.shredding.keys import Keyring
from mbd.shredding.private_folder import private_folder
from mbd.shredding.vault import encrypt_folder
from mbd.steps.step import StepContext, step_context
from mbd.trust.commitments import read_lineage_key

Given = ParamSpec("Given")
Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_TERMINATION_MESSAGE = Path("/dev/termination-log")
_RESOLVED = re.compile(r"# all parameters: sha256 ([0-9a-f]{64}), mbd (\S+)\n")


class Artifact(Protocol):
    """What a task sees of a Kubeflow artifact."""

    path: str
    metadata: dict[str, Any]


def task(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Make a function a task: its files are its user's alone, it waits for a store that is away, its end is logged.

    Argo as it is installed does not try a step again that has exited. Tasks write whole outputs or none, and what they
    publish is there once however often it is published, so they can be called again.

    An error ends the task with its exit code. Kubeflow makes 1 of every exit code, so its meaning is the last line of
    the log and the message of the container, which Kubernetes shows with the pod.
    """

    @wraps(function)
    def wrapped(*arguments: Given.args, **named: Given.kwargs) -> Result:
        logs.configure(logging.INFO, "text")
        before = os.umask(0o077)  # Argo's executor sets 0
        try:
            return retry_transient(lambda: function(*arguments, **named))
        except Exception as error:
            code, problem = ExitCode.FAILURE, repr(error)
            if isinstance(error, MbdError):
                code, problem = error.exit_code, error.problem
            ending = f"exit code {code:d} ({describe_exit(code)})"
            _LOG.error("%s", error, exc_info=not isinstance(error, MbdError))
            _LOG.error("%s: %s", ending, problem)
            if _TERMINATION_MESSAGE.exists():  # as in a pod
                with suppress(OSError):
                    _TERMINATION_MESSAGE.write_text(f"{ending}: {error}", encoding="utf-8")
            sys.exit(code)
        finally:
            os.umask(before)

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


def write_resolved(
    resolved: Artifact,
    text: str,
    model: str = "",
    method: str = "",
    epsilon: float = 0.0,
    overrides: Sequence[str] = (),
    *,
    audits: bool = False,
) -> None:
    """Write all parameters of a run from the arguments of its pipeline; an empty argument changes nothing.

    Those of a run that `audits` are refused here if no certificate could follow from them, and not after the work.
    """
    typed = {"certificate.model": model, "deletion.method": method, "deletion.epsilon": epsilon}
    settings = (*overrides, *(f"{key}={json.dumps(value)}" for key, value in typed.items() if value))
    params = in_container(read_params(text, *settings))
    if audits:
        refuse_weak_audit(params.attacks)
    write_artifact(params, resolved)


def write_artifact(params: Params, artifact: Artifact) -> None:
    """Write parameters as the artifact that tasks read."""
    write_file(Path(artifact.path), to_yaml(params))
    artifact.metadata |= {"digest": params_digest(params), "model": params.certificate.model}


def _loaded(text: str, *settings: str) -> Params:
    with TemporaryDirectory(prefix="mbd-params-") as folder:
        file = Path(folder) / "params.yaml"
        write_file(file, text)
        return load_params(file, settings)


@contextmanager
def running(params: Artifact, command: str) -> Iterator[Params]:
    """Within: the parameters, in the context of a step, which verifies the artifacts that it reads."""
    values = load_params(Path(params.path))
    with step_context(values, command, warn=_LOG.warning, verify=verify_artifact):
        yield values


def origin(dataset: Artifact, run: str) -> dict[str, str]:
    """Return what signed statements say of where they come from: the data's revision and the run."""
    reference = FeatureLocation.read(Path(dataset.path), "location of a FeatureSet")
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


_SEALED = f"{DELETION}.sealed"


def verify_artifact(context: StepContext, folder: Path) -> Path:
    """Return the folder of an artifact, plain, after checking that its files are what its step wrote."""
    if not folder.is_dir() or not any(folder.iterdir()):
        raise DataError(
            "the artifact has no files",
            file=folder,
            hint="they were removed from the pipeline root, perhaps by a purge, and Kubeflow's cache still names them: "
            "run the pipeline without the cache, or with other arguments",
        )
    plain = context.plain(folder)
    if (plain / _SEALED).is_file():
        plain = context.entered(_with_persons(plain, context.params.certificate))
    read_step(plain)
    return plain


@contextmanager
def sealed(settings: ShreddingSettings, artifact: Artifact) -> Iterator[Path]:
    """Within: the folder for a step to write a model to. What it wrote is verified and becomes the artifact."""
    out = Path(artifact.path)
    if not settings.enabled:
        yield out
        read_step(out)
        return
    with work_folder(settings, "mbd-model-") as private:
        yield private / out.name
        read_step(private / out.name)
        encrypt_folder(private / out.name, out, Keyring.of(settings), settings.lineage)


def hide_persons(settings: CertificateSettings, artifact: Artifact) -> None:
    """Encrypt the deletion record of an artifact, which names persons, under the lineage key."""
    file = Path(artifact.path) / DELETION
    write_file(file.with_name(_SEALED), read_lineage_key(settings).seal(DELETION, file.read_bytes()))
    file.unlink()


@contextmanager
def _with_persons(folder: Path, settings: CertificateSettings) -> Iterator[Path]:
    """Within: a private copy of a folder with its deletion record decrypted."""
    sealed_record = (folder / _SEALED).read_bytes()
    try:
        content = read_lineage_key(settings).unseal(DELETION, sealed_record)
    except (InvalidTag, ValueError) as error:
        raise DataError("the deletion record of the artifact is damaged", file=folder / _SEALED) from error
    with private_folder(gettempdir()) as private:
        shutil.copytree(folder, private / folder.name, ignore=shutil.ignore_patterns(_SEALED))
        write_file(private / folder.name / DELETION, content)
        yield private / folder.name


@contextmanager
def work_folder(settings: ShreddingSettings, prefix: str) -> Iterator[Path]:
    """Within: an empty folder for what must not stay; in memory and private where shredding is enabled."""
    if not settings.enabled:
        with TemporaryDirectory(prefix=prefix) as folder:
            yield Path(folder)
        return
    with private_folder(settings.temporary) as private:
        try:
            yield private
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise UsageError(
                "not enough space for the plaintext",
                key="shredding.temporary",
                value=private.parent.parent,
                hint="name a folder with more space, or give the pod more memory (platform.memory)",
            ) from error


def have_keys(settings: ShreddingSettings, lineage: str, modalities: Iterable[str]) -> None:
    """Check, before the work, that a model of these modalities can be encrypted after it."""
    if not settings.enabled:
        return
    keyring = Keyring.of(settings)
    for modality in modalities:
        keyring.make(KeyName(lineage=settings.lineage or lineage, kind="models", modality=modality))
