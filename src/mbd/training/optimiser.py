"""SGD with momentum, or AdamW; the rates warm up linearly and then fall as a cosine to zero. P^m has one of its own."""

import math
from collections.abc import Collection, Mapping
from inspect import unwrap
from typing import TypeVar

import torch
from torch import Tensor, nn

from mbd.model.joint import to_array
from mbd.params.learning import TrainingSettings
from mbd.tensors import Array
from mbd.training.distributed import ProcessGroup

_Kind = TypeVar("_Kind", bound=torch.optim.Optimizer)


def rate_factor(step: int, steps: int, warmup: int) -> float:
    """Return what the rates are multiplied by in `step` (from 0) of `steps`."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


def _uncompiled(kind: type[_Kind]) -> type[_Kind]:
    """Return it without the marks that import torch's compiler, to keep it out: that takes as long as torch itself."""
    plain = {name: unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad", "step")}
    return type(kind.__name__, (kind,), {**plain, "step": torch.no_grad()(plain["step"])})


_SGD, _AdamW = _uncompiled(torch.optim.SGD), _uncompiled(torch.optim.AdamW)


class Optimiser:
    """The optimiser of one network; its state is that of torch's, because the rate depends on the step alone."""

    def __init__(
        self, network: nn.Module, training: TrainingSettings, steps: int, properties: Collection[str] = ()
    ) -> None:
        """Take the parameters of `network` that are trained; those named in `properties` have a rate of their own."""
        self._parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self._training, self._steps = training, steps
        rates: dict[str, tuple[float, float, list[Tensor]]] = {
            "matrices": (training.learning_rate, training.weight_decay, []),
            "vectors": (training.learning_rate, 0.0, []),
            "properties": (training.property_learning_rate, 0.0, []),
        }
        for name, parameter in self._parameters.items():
            kind = "properties" if name in properties else "matrices" if parameter.ndim > 1 else "vectors"
            rates[kind][2].append(parameter)
        self._rates = [rate for rate, _, parameters in rates.values() if parameters]
        groups = [{"params": ps, "lr": rate, "weight_decay": decay} for rate, decay, ps in rates.values() if ps]
        self._torch: torch.optim.Optimizer = (
            _SGD(groups, momentum=training.momentum, fused=True)
            if training.optimiser == "sgd"
            else _AdamW(groups, fused=True)
        )

    def zero(self) -> None:
        """Forget all gradients."""
        self._torch.zero_grad()

    def step(self, number: int, group: ProcessGroup) -> None:
        """Take step `number` (from 0) down the gradients that are there, of which each process has its share."""
        group.add_gradients(self._parameters.values())
        nn.utils.clip_grad_norm_(self._parameters.values(), self._training.clip_norm)
        factor = rate_factor(number, self._steps, self._training.warmup_steps)
        for settings, rate in zip(self._torch.param_groups, self._rates, strict=True):
            settings["lr"] = rate * factor
        self._torch.step()

    def momentum(self) -> dict[str, Array]:
        """Return the state of every parameter that has one, as `KEY/PARAMETER`."""
        return {
            f"{key}/{name}": to_array(value)
            for name, p in self._parameters.items()
            for key, value in self._torch.state[p].items()
            if value is not None
        }

    def restore(self, momentum: Mapping[str, Array]) -> None:
        """Continue with this state."""
        for path, value in momentum.items():
            key, _, name = path.partition("/")
            parameter = self._parameters[name]
            self._torch.state[parameter][key] = torch.tensor(value, device=parameter.device)
