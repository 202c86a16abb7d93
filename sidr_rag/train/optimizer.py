"""AdamW, its learning rate over time, and the running average of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sidr_rag.train.sections import Optimizer


def make_optimizer(module: nn.Module, settings: Optimizer) -> torch.optim.AdamW:
    """AdamW with three groups: matrices (decayed), vectors, and the constants of the corpus-weighted score."""
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    constants: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        if name.startswith("corpus."):
            constants.append(parameter)
        else:
            (matrices if parameter.ndim > 1 else vectors).append(parameter)
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay, "peak": settings.learning_rate},
        {"params": vectors, "weight_decay": 0.0, "peak": settings.learning_rate},
        {"params": constants, "weight_decay": 0.0, "peak": settings.corpus_learning_rate},
    ]
    used = [group for group in groups if group["params"]]
    # One pass over each parameter: on CPU the plain form takes a sixth of a step that encodes queries alone.
    return torch.optim.AdamW(used, lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)


def rate_at(step: int, total: int, settings: Optimizer) -> float:
    """The learning rate of a step as a share of its peak: linear warm-up, then linear decay to `final_share`.

    Args:
        step: from 0 to total - 1.
        total: optimizer steps of the run.
        settings: warm-up and final share.
    """
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    left = (total - step) / max(1, total - settings.warmup)
    return settings.final_share + (1 - settings.final_share) * left


def set_rate(optimizer: torch.optim.Optimizer, share: float) -> None:
    """Give every group its share of its own peak."""
    for group in optimizer.param_groups:
        group["lr"] = share * group["peak"]


class WeightAverage:
    """The running average of a module's trained parameters: `average = decay * average + (1 - decay) * weights`.

    Early on the decay is lower, (1 + n) / (10 + n) after n updates, so that the start is forgotten soon.

    Args:
        module: whose parameters are averaged.
        decay: 0 keeps no average.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._module, self._decay = module, decay
        self._updates = 0
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self._values = {n: p.detach().clone() for n, p in trained.items()} if decay > 0 else {}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the module's present weights."""
        self._updates += 1
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        for name, parameter in self._module.named_parameters():
            if name in self._values:
                self._values[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the module has the averaged weights."""
        own = {name: p.detach().clone() for name, p in self._module.named_parameters() if name in self._values}
        self._put(self._values)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, values: dict[str, Tensor]) -> None:
        for name, parameter in self._module.named_parameters():
            if name in values:
                parameter.copy_(values[name])

    def state(self) -> dict[str, object]:
        """What `restore` takes."""
        return {"updates": self._updates, "values": self._values}

    def restore(self, state: dict[str, object]) -> None:
        """Go on from an earlier `state()`."""
        updates, values = state["updates"], state["values"]
        assert isinstance(updates, int)
        assert isinstance(values, dict)
        self._updates = updates
        for name, value in values.items():
            self._values[name].copy_(value)
