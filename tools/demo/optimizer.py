"""Muon for the matrices of the network, AdamW for everything else; the Muon work is shared between the processes."""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist
from torch import Tensor

from .network import Network

MUON_RATE, MUON_MOMENTUM, MUON_DECAY = 0.02, 0.95, 0.05
ADAM_RATE, ADAM_BETAS, ADAM_DECAY = 3e-3, (0.9, 0.95), 0.01


def orthogonal(matrices: Tensor) -> Tensor:
    """Roughly the nearest orthogonal matrices, by five Newton-Schulz steps. matrices: [n, rows, columns]."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.transpose(1, 2) if tall else x


class Optimizer:
    """One update rule for the whole network. `step` expects averaged gradients and works on every process alike."""

    def __init__(self, network: Network, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        groups: dict[torch.Size, list[Tensor]] = defaultdict(list)
        rest = []
        for name, parameter in network.named_parameters():
            matrix = parameter.ndim == 3 and "experts" in name or parameter.ndim == 2 and min(parameter.shape) >= 32
            if matrix and not name.startswith(("word_embeddings", "lm_head")):
                groups[parameter.shape[-2:]].append(parameter)
            else:
                rest.append(parameter)
        self.groups = list(groups.values())
        self.momentum = [torch.zeros_like(self._stack(group)) for group in self.groups]
        self.adam = torch.optim.AdamW(rest, lr=ADAM_RATE, betas=ADAM_BETAS, weight_decay=ADAM_DECAY)

    @staticmethod
    def _stack(group: list[Tensor]) -> Tensor:
        return torch.cat([tensor.detach().reshape(-1, *tensor.shape[-2:]) for tensor in group])

    def step(self, factor: float) -> None:
        """One step with all rates multiplied by `factor`."""
        with torch.no_grad():
            self._step(factor)

    def _step(self, factor: float) -> None:
        for settings in self.adam.param_groups:
            settings["lr"] = ADAM_RATE * factor
        self.adam.step()
        updates = []
        for group, momentum in zip(self.groups, self.momentum, strict=True):
            gradient = self._stack([parameter.grad for parameter in group if parameter.grad is not None])
            momentum.lerp_(gradient, 1 - MUON_MOMENTUM)
            nesterov = gradient.lerp(momentum, MUON_MOMENTUM)
            update = torch.zeros_like(nesterov)
            mine = slice(len(nesterov) * self.rank // self.world, len(nesterov) * (self.rank + 1) // self.world)
            if mine.start < mine.stop:
                update[mine] = orthogonal(nesterov[mine])
            updates.append(update)
        flat = torch.cat([update.flatten() for update in updates])
        dist.all_reduce(flat)
        parts = flat.split([update.numel() for update in updates])
        for group, part in zip(self.groups, parts, strict=True):
            for parameter, update in zip(group, part.split([parameter.numel() for parameter in group]), strict=True):
                rows, columns = parameter.shape[-2:]
                rate = MUON_RATE * factor * max(1.0, rows / columns) ** 0.5
                parameter.mul_(1 - MUON_RATE * factor * MUON_DECAY).sub_(update.view_as(parameter), alpha=rate)
