"""Several processes with a training in each of them."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from tempfile import gettempdir
from typing import Any

from mbd import tombstones

_LONGEST_FOLDER = 70
"""a fork server listens on a socket in the temporary folder, whose path may have 107 characters in all"""
_for_good = ExitStack()


@contextmanager
def process_map(processes: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Within: a `map` over so many processes, in which purged files are refused as here; with one, Python's own."""
    if processes == 1:
        yield map
        return
    # A fork of this process would copy locks that its threads hold.
    context = get_context("forkserver" if len(gettempdir()) <= _LONGEST_FOLDER else "spawn")
    context.set_forkserver_preload(["mbd.training.lattice.networks"])  # once for all of them
    with ProcessPoolExecutor(processes, context, _start, (tombstones.listed(),)) as pool:
        yield pool.map


def _start(purged: frozenset[str]) -> None:
    _for_good.enter_context(tombstones.used(lambda: purged))
