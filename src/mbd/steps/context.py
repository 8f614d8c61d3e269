"""What surrounds a step, on the command line and in Kubeflow: tombstones, metrics, and decryption.

    with step_context(params, "delete") as context:
        delete.run(params, context.plain(features), context.plain(model), …)

Within it no step reads or writes a file that was purged, Prometheus learns how the command ended, and encrypted folders
have a plain form. That lies in a private folder (`shredding.temporary`) and is removed at the end, however that comes.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mbd import tombstones

if TYPE_CHECKING:
    from mbd.params import Params
    from mbd.params.reader import ReaderParams

# what is imported inside functions here is loaded only where it is used: commands have to start fast


@dataclass(frozen=True)
class StepContext:
    """The context of a running step."""

    params: "Params | ReaderParams"
    _stack: ExitStack
    _warn: Callable[[str], object]

    def plain(self, folder: Path) -> Path:
        """Return a folder with the plain form of `folder`: itself, or a private one if it is encrypted."""
        if not self.params.shredding.enabled and not (folder.is_dir() and any(folder.rglob("*.mbdx"))):
            return folder
        from mbd.shredding.vault import opened  # noqa: PLC0415

        return self.entered(opened(folder, self.params.shredding, self._warn))

    def entered(self, folder: AbstractContextManager[Path]) -> Path:
        """Return a folder that is there until the step ends."""
        return self._stack.enter_context(folder)


@contextmanager
def step_context(
    params: "Params | ReaderParams", command: str, *, warn: Callable[[str], object] = lambda _: None
) -> Iterator[StepContext]:
    """Surround the command `command`.

    Args:
        params: where tombstones and data keys are, and where metrics go.
        command: the name that metrics have it under, such as `delete` or `certificate-reaudit`.
        warn: called with a sentence when data is left out because its key was destroyed.

    """
    if params.shredding.enabled:
        from mbd.shredding.private_folder import remove_abandoned  # noqa: PLC0415

        remove_abandoned(params.shredding.temporary)
    with tombstones.used(partial(_tombstones, params)), _metrics(command, params), ExitStack() as stack:
        yield StepContext(params, stack, warn)


def _tombstones(params: "Params | ReaderParams") -> frozenset[str]:
    from mbd.purge.tombstone_store import purged_digests  # noqa: PLC0415

    return purged_digests(params)


def _metrics(command: str, params: "Params | ReaderParams") -> AbstractContextManager[None]:
    if params.monitoring.mode == "none":
        return nullcontext()
    from mbd.steps.metrics_reporting import reporting  # noqa: PLC0415

    return reporting(command, params)
