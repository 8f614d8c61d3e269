"""The same inputs give the same bytes: deterministic kernels and a fixed number of threads.

A sum taken by another number of threads is rounded in another order, so the number is part of the recipe. The bytes
hold for one kind of processor and one version of torch. Everything random comes from :mod:`mbd.randomness`, nothing
from torch.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from mbd.errors import UsageError


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """Within: deterministic kernels only, on `threads` CPU threads; afterwards everything is as it was."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may choose among kernels
    settings: Any = torch.utils.deterministic
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
    torch.set_num_threads(threads)
    # as torch.use_deterministic_algorithms(True), which imports torch's compiler: that takes as long as torch itself
    torch.set_deterministic_debug_mode("error")
    settings.fill_uninitialized_memory = False  # nothing here reads memory that was not written; filling it takes time
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])
        settings.fill_uninitialized_memory = before[2]


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


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """Return the device to train on; of several GPUs, the one of this process."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "there is no GPU that torch can use",
            key="training.device",
            value=wanted,
            hint="set training.device=auto or cpu",
        )
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", local_rank)
