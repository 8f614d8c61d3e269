"""How many CPU threads models compute with."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def compute_threads(count: int) -> Iterator[None]:
    """Within: torch, BLAS and OpenMP use at most `count` threads for one computation, whichever thread asks for it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(limits=count):
            yield
    finally:
        torch.set_num_threads(before)
