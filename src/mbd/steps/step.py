"""What every step has in common: what it reads, and what surrounds it. Its output is one of :mod:`mbd.outputs`.

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
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from mbd import tombstones
from mbd.errors import extras_named

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.params.tree import ReaderParams

# what is imported inside functions here is loaded only where it is used: commands have to start fast
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
    with (
        extras_named(),
        tombstones.used(partial(purged_digests, params)),
        _metrics(command, params),
        ExitStack() as stack,
    ):
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


def purged_digests(params: "Params | ReaderParams") -> frozenset[str]:
    """Return the digests that no step may read or write, from the list that `purge.tombstones` names."""
    place = params.purge.tombstones
    if place is None or "://" not in place:
        return tombstones.read_digests(Path(place)) if place else frozenset()
    from mbd.history.tombstones import store_tombstones  # noqa: PLC0415

    return frozenset(target.sha256 for target in store_tombstones(params, place))


def _metrics(command: str, params: "Params | ReaderParams") -> AbstractContextManager[None]:
    if params.monitoring.mode == "none":
        return nullcontext()
    from mbd.steps.metrics_reporting import reporting  # noqa: PLC0415

    return reporting(command, params)
