"""Several trainings side by side, each in a process of its own."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any

from mbd import tombstones

_for_good = ExitStack()


@contextmanager
def side_by_side(processes: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Within: a `map` over so many processes, in which purged files are refused as here; with one, Python's own."""
    if processes == 1:
        yield map
        return
    context = get_context("forkserver")  # a fork of this process would copy locks that its threads hold
    context.set_forkserver_preload(["mbd.training.lattice.networks"])
    with ProcessPoolExecutor(processes, context, _start, (tombstones.listed(),)) as pool:
        yield pool.map


def _start(purged: frozenset[str]) -> None:
    _for_good.enter_context(tombstones.used(lambda: purged))
