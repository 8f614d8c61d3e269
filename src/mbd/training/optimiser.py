"""SGD with momentum; P^m has a rate of its own; the rates warm up linearly and then fall as a cosine to zero."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mbd.model.joint import to_array
from mbd.params.learning import TrainingSettings
from mbd.tensors import Array
from mbd.training.distributed import ProcessGroup


def rate_factor(step: int, steps: int, warmup: int) -> float:
    """Return what the rates are multiplied by in `step` (from 0) of `steps`."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


class Optimiser:
    """The optimiser of one network; it has no state but the momentum, because the rate depends on the step alone."""

    def __init__(self, network: nn.Module, training: TrainingSettings, steps: int) -> None:
        self._parameters = dict(network.named_parameters())
        self._training, self._steps = training, steps
        rates: dict[str, tuple[float, float, list[Tensor]]] = {
            "matrices": (training.learning_rate, training.weight_decay, []),
            "vectors": (training.learning_rate, 0.0, []),
            "properties": (training.property_learning_rate, 0.0, []),
        }
        for name, parameter in self._parameters.items():
            kind = "properties" if name.endswith(".property") else "matrices" if parameter.ndim > 1 else "vectors"
            rates[kind][2].append(parameter)
        self._rates = [rate for rate, _, parameters in rates.values() if parameters]
        self._sgd = torch.optim.SGD(
            [{"params": ps, "lr": rate, "weight_decay": decay} for rate, decay, ps in rates.values() if ps],
            momentum=training.momentum,
            fused=True,
        )

    def step(self, number: int, loss: Tensor, group: ProcessGroup) -> None:
        """Take step `number` (from 0) down the gradient of `loss`, of which each process has its share."""
        self._sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        group.add_gradients(self._parameters.values())
        nn.utils.clip_grad_norm_(self._parameters.values(), self._training.clip_norm)
        factor = rate_factor(number, self._steps, self._training.warmup_steps)
        for settings, rate in zip(self._sgd.param_groups, self._rates, strict=True):
            settings["lr"] = rate * factor
        self._sgd.step()

    def momentum(self) -> dict[str, Array]:
        """Return the momentum of every parameter that has one."""
        state = {name: self._sgd.state[p].get("momentum_buffer") for name, p in self._parameters.items()}
        return {name: to_array(buffer) for name, buffer in state.items() if buffer is not None}

    def restore(self, momentum: Mapping[str, Array]) -> None:
        """Continue with this momentum."""
        for name, buffer in momentum.items():
            parameter = self._parameters[name]
            self._sgd.state[parameter]["momentum_buffer"] = torch.tensor(buffer, device=parameter.device)
