"""What every step has in common: what it reads, what surrounds it, and an output that appears whole or not at all.

    @reads("model", "reference", data="features")
    def run(params, features, model, …, out):
        with step_run("delete", out, {"deletion": params.deletion}, model=model) as step:
            …                                              # write into step.folder

    with step_context(params, "delete"):
        delete.run(params, features, model, …, out)

A step says which of its arguments are folders that it reads. Within a context it gets the plain form of those that are
encrypted, in a private folder (`shredding.temporary`) that is removed at the end, however that comes; a Kubeflow task
also verifies outputs of earlier steps. Outside of a context folders are read as they are. Within it no step reads or
writes a file that was purged, and Prometheus learns how the command ended.

`step.json` holds the digests of inputs and outputs, the parameters used, versions, and the duration. It is the
one file of a folder that differs between two runs of the same thing, so digests of folders leave it out.
"""

import inspect
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial, wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pydantic import BaseModel

from mbd import __version__, tombstones
from mbd.errors import DataError, extras_named
from mbd.files import (
    STEP_FILE,
    canonical_digest,
    file_digests,
    sha256_file,
    to_json,
    whole_folder,
    write_file,
)

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.params.tree import ReaderParams

# what is imported inside functions here is loaded only where it is used: commands have to start fast
OBSERVERS: ContextVar[tuple[Callable[[Path], object], ...]] = ContextVar("observers", default=())
"""each is called with every folder that a step has written"""
_VERSIONED = ("numpy", "safetensors", "pydantic", "torch", "transformers", "dvc", "kfp")
_version = cache(version)  # reads and parses a file for each package
Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class StepContext:
    """The context of a running step."""

    params: "Params | ReaderParams"
    verify: "Callable[[StepContext, Path], Path]"
    """returns the verified form of the plain output of an earlier step"""
    _stack: ExitStack
    _warn: Callable[[str], object]
    _verified: dict[Path, Path] = field(default_factory=dict)

    def plain(self, folder: Path) -> Path:
        """Return a folder with the plain form of `folder`: itself, or a private one if it is encrypted."""
        if not self.params.shredding.enabled and not (folder.is_dir() and any(folder.rglob("*.mbdx"))):
            return folder
        from mbd.shredding.vault import opened  # noqa: PLC0415

        return self.entered(opened(folder, self.params.shredding, self._warn))

    def read(self, folder: Path) -> Path:
        """Return a folder with the plain, verified form of `folder`, the output of an earlier step."""
        if folder not in self._verified:
            verified = self.verify(self, folder)
            self._verified.update({folder: verified, verified: verified})
        return self._verified[folder]

    def entered(self, folder: AbstractContextManager[Path]) -> Path:
        """Return a folder that is there until the step ends."""
        return self._stack.enter_context(folder)


_CURRENT: ContextVar[StepContext | None] = ContextVar("context", default=None)


@contextmanager
def step_context(
    params: "Params | ReaderParams",
    command: str,
    *,
    warn: Callable[[str], object] = lambda _: None,
    verify: Callable[[StepContext, Path], Path] = StepContext.plain,
) -> Iterator[StepContext]:
    """Surround the command `command`.

    Args:
        params: where tombstones and data keys are, and where metrics go.
        command: the name that metrics have it under, such as `delete` or `certificate-reaudit`.
        warn: called with a sentence when data is left out because its key was destroyed.
        verify: returns the plain form of an earlier step's output, after the checks that are due.

    """
    if params.shredding.enabled:
        from mbd.shredding.private_folder import remove_abandoned  # noqa: PLC0415

        remove_abandoned(params.shredding.temporary)
    with extras_named(), tombstones.used(partial(_tombstones, params)), _metrics(command, params), ExitStack() as stack:
        context = StepContext(params, verify, stack, warn)
        token = _CURRENT.set(context)
        try:
            yield context
        finally:
            _CURRENT.reset(token)


def reads(*outputs: str, data: str = "") -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Declare what a step reads: the arguments that are outputs of earlier steps, and the one that is a FeatureSet.

    Each is a folder, several folders, or None. A FeatureSet is decrypted only: its manifest has its digests.
    """

    def decorate(step: Callable[Given, Result]) -> Callable[Given, Result]:
        signature = inspect.signature(step)

        @wraps(step)
        def run(*arguments: Given.args, **named: Given.kwargs) -> Result:
            context = _CURRENT.get()
            if context is None:
                return step(*arguments, **named)
            bound = signature.bind(*arguments, **named)
            for name in bound.arguments.keys() & {*outputs, data}:
                read, value = context.plain if name == data else context.read, bound.arguments[name]
                if value is not None:
                    bound.arguments[name] = read(value) if isinstance(value, Path) else tuple(map(read, value))
            return step(*bound.args, **bound.kwargs)

        return run

    return decorate


def read_folder(folder: Path) -> Path:
    """Return the folder that a step would read, given `folder`; for what is no step and reads a step's output."""
    context = _CURRENT.get()
    return folder if context is None else context.read(folder)


def _tombstones(params: "Params | ReaderParams") -> frozenset[str]:
    from mbd.purge.tombstone_store import purged_digests  # noqa: PLC0415

    return purged_digests(params)


def _metrics(command: str, params: "Params | ReaderParams") -> AbstractContextManager[None]:
    if params.monitoring.mode == "none":
        return nullcontext()
    from mbd.steps.metrics_reporting import reporting  # noqa: PLC0415

    return reporting(command, params)


@dataclass
class StepRun:
    """A running step: write into `folder`, and note what belongs into `step.json`."""

    folder: Path
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    known_digests: dict[str, str] = field(default_factory=dict)
    """digests of output files that the step has computed anyway"""
    look_at: str = ""
    """the output file that a person should open first"""
    phases: dict[str, float] = field(default_factory=dict)
    """seconds that parts of the step took, where that is of interest"""

    def read(self, name: str, path: Path) -> None:
        """Record an input file or folder with its digest."""
        if not path.exists():
            raise DataError("there is no such file or folder", file=path, key=f"--{name}", hint="correct its path")
        files = file_digests(path) if path.is_dir() else {path.name: sha256_file(path)}
        tombstones.refuse(files.values(), path, "use what was made after the modality was revoked")
        digest = canonical_digest(files) if path.is_dir() else files[path.name]
        self.inputs[name] = {"path": str(path), "digest": digest}


@contextmanager
def step_run(name: str, out: Path, params: Mapping[str, BaseModel], **inputs: Path) -> Iterator[StepRun]:
    """Run the step `name`: yield a :class:`StepRun`, and on success let its folder become `out`.

    `params` are the sections of the parameters that the step uses, by name.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    with whole_folder(out, name) as folder:
        run = StepRun(folder)
        for key, path in inputs.items():
            run.read(key, path)
        yield run
        used = {section: model.model_dump(mode="json") for section, model in params.items()}
        files = file_digests(folder, run.known_digests)
        tombstones.refuse(files.values(), out, "make it without the revoked modality")
        record = {
            "step": name,
            "inputs": run.inputs,
            "parameters": used,
            "parameters_digest": canonical_digest(used),
            "outputs": {"digest": canonical_digest(files), "files": files},
            "look_at": run.look_at,
            "versions": versions(),
            "started": started.isoformat(timespec="seconds"),
            "duration_seconds": round(time.perf_counter() - clock, 3),
            **({"phases_seconds": {name: round(s, 6) for name, s in run.phases.items()}} if run.phases else {}),
        }
        write_file(folder / STEP_FILE, to_json(record))
    for observe in OBSERVERS.get():
        observe(out)


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of those that results depend on."""
    installed = {"mbd": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in _VERSIONED:
        try:
            installed[package] = _version(package)
        except PackageNotFoundError:
            continue
    return installed
