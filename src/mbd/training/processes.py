"""Several processes: a training in each of them, or passes over rows that they share."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mbd import tombstones
from mbd.blocks import Map
from mbd.tensors import Array, scratch

_LONGEST_FOLDER = 70
"""a fork server listens on a socket in the temporary folder, whose path may have 107 characters in all"""
_for_good = ExitStack()


@contextmanager
def side_by_side(
    processes: int, preload: str = "mbd.training.lattice.networks", threads: int | None = None
) -> Iterator[Map]:
    """Within: a `map` over so many processes, in which purged files are refused as here; with one, Python's own.

    `preload` is imported once for all of them; with `threads`, each has so many for products and factorisations.
    """
    if processes == 1:
        yield map
        return
    # A fork of this process would copy locks that its threads hold.
    context = get_context("forkserver" if len(gettempdir()) <= _LONGEST_FOLDER else "spawn")
    context.set_forkserver_preload([preload])
    with ProcessPoolExecutor(processes, context, _start, (tombstones.listed(), threads)) as pool:
        yield pool.map


def _start(purged: frozenset[str], threads: int | None) -> None:
    _for_good.enter_context(tombstones.used(lambda: purged))
    _for_good.enter_context(threadpool_limits(threads))


@dataclass(frozen=True)
class Workers:
    """What passes over rows run on: a `map`, and arrays that all processes can write to."""

    count: int = 1
    mapped: Map = map
    folder: Path | None = None

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Return an array of zeros."""
        return scratch(shape, dtype, self.folder)


@contextmanager
def workers(processes: int) -> Iterator[Workers]:
    """Within: so many processes of one thread each, for passes over rows; one is this process itself."""
    if processes == 1:
        yield Workers()
        return
    with (
        TemporaryDirectory(prefix="mbd-rows-") as folder,
        side_by_side(processes, "mbd.training.lattice", threads=1) as mapped,
    ):
        yield Workers(processes, mapped, Path(folder))
