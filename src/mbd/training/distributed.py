"""One training by several processes (`torchrun`), with the loss curve of one.

Every process draws the whole batch and works on its own rows of it. What a loss needs of the other rows crosses over
with its gradient: sums (the batch mean μ̄) and rows (the negatives of NCE). Each process holds its share of the loss, so
the shares, and their gradients, add up to those of the whole batch.
"""

import atexit
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of one training; alone, everything is the identity."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    def part(self, rows: int) -> slice:
        """Return which of `rows` rows are this process's: equal shares, the last ones smaller or empty."""
        share = -(-rows // self.size)
        return slice(min(self.rank * share, rows), min((self.rank + 1) * share, rows))

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over the processes, with its gradient."""
        return tensor if self.size == 1 else _Sum.apply(tensor)  # type: ignore[no-untyped-call]

    def gather(self, tensor: Tensor, rows: int) -> Tensor:
        """Return the rows of all processes (`rows` in all) in their order, with their gradient."""
        if self.size == 1:
            return tensor
        part, more = self.part(rows), tensor.shape[1:]
        before, behind = (tensor.new_zeros((count, *more)) for count in (part.start, rows - part.stop))
        return self.sum(torch.cat([before, tensor, behind]))

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace every gradient by its sum over the processes."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        if self.size == 1 or not gradients:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def smallest(self, number: int, device: torch.device) -> int:
        """Return the smallest of the numbers that the processes give."""
        if self.size == 1:
            return number
        tensor = torch.tensor(number, device=device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
        return int(tensor)


def join_group() -> ProcessGroup:
    """Join the group that torchrun has announced in the environment, once for each process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return ProcessGroup()
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(dist.destroy_process_group)
    return ProcessGroup(dist.get_rank(), size, int(os.environ.get("LOCAL_RANK", "0")))


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:  # noqa: ANN401
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ANN401
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total
