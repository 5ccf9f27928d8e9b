"""The state of one sequence, and copies of it (M-4, M-30, E-119).

A recurrent state cannot be rewound, so returning to an earlier position needs a copy. A `State` is
complete and valid for ever; a `Checkpoint` leaves the latent rows in the decoder's own cache and is valid until
a row below its position is written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ling3.model.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A light restore point of one decoder's sequence. `owner` tells whose latent cache it relies on, `clock` which
    writes to that cache it has seen."""

    position: int
    matrices: NDArray[np.float32]
    history: NDArray[np.float32]
    owner: object
    clock: int

    @property
    def bytes(self) -> int:
        return self.matrices.nbytes + self.history.nbytes


@dataclass(frozen=True, slots=True)
class State:
    """A self-contained copy. `latents: [MLA layers, position, 576]`; `signature` names the only model it fits."""

    position: int
    matrices: NDArray[np.float32]
    history: NDArray[np.float32]
    latents: NDArray[Any]
    signature: str

    @property
    def bytes(self) -> int:
        return self.matrices.nbytes + self.history.nbytes + self.latents.nbytes + len(self.signature)


class SequenceState:
    """Buffers of one sequence of up to `context` positions.

    matrices: [KDA layers, H, D, D] float32; history: [KDA layers, taps - 1, 3P] float32, raw projections, oldest
    first; latents: [MLA layers, context, 576], bfloat16 bits or float32.
    """

    def __init__(self, g: Geometry, context: int, latent_type: type[np.uint16] | type[np.float32], signature: str):
        kda, mla = g.mixers.count("kda"), g.mixers.count("mla")
        self.context = context
        self.signature = signature
        self.position = 0
        self.matrices = np.zeros((kda, g.heads, g.kda_head_dim, g.kda_head_dim), np.float32)
        self.history = np.zeros((kda, g.conv_taps - 1, 3 * g.kda_width), np.float32)
        self.latents: NDArray[Any] = np.zeros((mla, context, g.latent_width), latent_type)
        self._owner = object()
        self._written = np.zeros(context, np.int64)
        self._clock = 0

    def advance(self, rows: int) -> None:
        """Note that `rows` new positions have been evaluated."""
        self._clock += 1
        self._written[self.position : self.position + rows] = self._clock
        self.position += rows

    def reset(self) -> None:
        """Back to position 0. Latent rows stay: nothing reads a row before it is written."""
        self.position = 0
        self.matrices[:] = 0.0
        self.history[:] = 0.0

    def save_checkpoint(self) -> Checkpoint:
        return Checkpoint(self.position, self.matrices.copy(), self.history.copy(), self._owner, self._clock)

    def restore_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Raises ValueError for a checkpoint of another decoder, or if a latent row that it needs was overwritten."""
        if checkpoint.owner is not self._owner:
            raise ValueError("the checkpoint belongs to another decoder")
        if self._written[: checkpoint.position].max(initial=0) > checkpoint.clock:
            raise ValueError(f"the checkpoint at {checkpoint.position} is stale: earlier rows were overwritten")
        self._restore(checkpoint.position, checkpoint.matrices, checkpoint.history)

    def save(self) -> State:
        latents = self.latents[:, : self.position].copy()
        return State(self.position, self.matrices.copy(), self.history.copy(), latents, self.signature)

    def restore(self, state: State) -> None:
        """Raises ValueError for a state of another model or one longer than this context."""
        if state.signature != self.signature:
            raise ValueError(f"the state belongs to {state.signature}, this decoder is {self.signature}")
        if state.position > self.context:
            raise ValueError(f"the state holds {state.position} positions, the context {self.context}")
        self.latents[:, : state.position] = state.latents
        self._clock += 1
        self._written[: state.position] = self._clock
        self._restore(state.position, state.matrices, state.history)

    def _restore(self, position: int, matrices: NDArray[np.float32], history: NDArray[np.float32]) -> None:
        self.matrices[:] = matrices
        self.history[:] = history
        self.position = position
