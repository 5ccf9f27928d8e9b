"""The decoder: token ids in, logits out, and the state of one sequence (E-119, M-11).

Arithmetic depends on positions only: not on threads, and not on how a prompt is cut into calls as
long as the cuts inside fall on multiples of 128 (E-92).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ling3.linear.pool import Pool, default_threads
from ling3.model.geometry import Geometry
from ling3.model.kda import KdaMixer
from ling3.model.mla import MlaMixer
from ling3.model.moe import Dense, Moe
from ling3.model.norm import rms_norm
from ling3.model.package import Package
from ling3.model.state import Checkpoint, SequenceState, State

BLOCK = 128
"""Longest prefill block; blocks end at absolute positions that are multiples of it."""


@dataclass(frozen=True)
class Layer:
    """One decoder layer: norm, mixer, norm, feed-forward. `index` counts layers of the mixer's kind."""

    norm_mixer: NDArray[np.float32]
    mixer: KdaMixer | MlaMixer
    index: int
    norm_mlp: NDArray[np.float32]
    mlp: Dense | Moe


class Decoder:
    """A model with the state of one sequence. One thread at a time may use it."""

    def __init__(self, package: Package, context: int = 4096, threads: int | None = None) -> None:
        """`context`: most positions it can hold; `threads`: of its pool, None = what the machine offers."""
        self.geometry = g = package.geometry
        self.context = context
        self.pool = Pool(threads or default_threads())
        self._embedding = package.linear("embedding")
        self._head = self._embedding if g.tied_head else package.linear("head")
        self._norm = package.vector("norm")
        self._layers = _load_layers(package, g)
        # float32 packages are the reference form and keep float32 latents; 16 bits otherwise (D-3)
        latent_type = np.float32 if self._embedding.format == "f32" else np.uint16
        self._state = SequenceState(g, context, latent_type, _signature(package, latent_type))
        half = g.qk_rope_head_dim // 2
        self._frequencies = g.rope_theta ** (-np.arange(half, dtype=np.float64) / half)

    @property
    def position(self) -> int:
        """Positions evaluated since the last reset."""
        return self._state.position

    def eval(self, token: int) -> NDArray[np.float32]:
        """Evaluate one token: logits, float32 `[vocab]`."""
        return self._logits(self._evaluate([token]))

    def eval_batch(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Evaluate tokens in blocks: the logits after the last one, float32 `[vocab]`."""
        return self._logits(self._evaluate(tokens))

    def eval_batch_state(self, tokens: Sequence[int]) -> None:
        """Evaluate tokens for their effect on the state alone."""
        self._evaluate(tokens)

    def reset(self) -> None:
        self._state.reset()

    def save_checkpoint(self) -> Checkpoint:
        return self._state.save_checkpoint()

    def restore_checkpoint(self, checkpoint: Checkpoint) -> int:
        """Returns the position. Raises ValueError if the checkpoint is stale."""
        self._state.restore_checkpoint(checkpoint)
        return self.position

    def save_state(self) -> State:
        return self._state.save()

    def restore_state(self, state: State) -> int:
        """Returns the position. Raises ValueError if the state does not fit this decoder."""
        self._state.restore(state)
        return self.position

    def state_signature(self) -> str:
        """Names model and numeric path; a state is good only where it was made (E-119)."""
        return self._state.signature

    def _evaluate(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Run all blocks of `tokens`; the residual row of the last token, `[1, hidden]`."""
        ids = np.asarray(tokens, np.int64)
        if ids.size == 0:
            raise ValueError("no tokens to evaluate")
        if ids.min() < 0 or ids.max() >= self.geometry.vocab_size:
            raise ValueError(f"token ids must lie in 0..{self.geometry.vocab_size - 1}")
        if self.position + ids.size > self.context:
            raise ValueError(f"{ids.size} tokens at position {self.position} exceed the context of {self.context}")
        while ids.size:
            block = ids[: BLOCK - self.position % BLOCK]
            ids = ids[block.size :]
            x = self._run_block(block)
        return x[-1:]

    def _run_block(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        g, pool, state = self.geometry, self.pool, self._state
        x = self._embedding.rows(ids)
        angles = self._angles(state.position, ids.size)
        for layer in self._layers:
            normed = rms_norm(pool, x, layer.norm_mixer, g.norm_eps)
            if isinstance(layer.mixer, KdaMixer):
                matrices, history = state.matrices[layer.index], state.history[layer.index]
                x += layer.mixer(pool, normed, state.position, matrices, history)
            else:
                x += layer.mixer(pool, normed, state.position, angles, state.latents[layer.index])
            x += layer.mlp(pool, rms_norm(pool, x, layer.norm_mlp, g.norm_eps))
        state.advance(ids.size)
        return x

    def _logits(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._head(self.pool, rms_norm(self.pool, x, self._norm, self.geometry.norm_eps)).reshape(-1)

    def _angles(self, position: int, rows: int) -> NDArray[np.float32]:
        """Cosine and sine of position times frequency, from doubles: [rows, rope / 2, 2] (M-32)."""
        angle = np.arange(position, position + rows, dtype=np.float64)[:, None] * self._frequencies
        angles: NDArray[np.float32] = np.stack([np.cos(angle), np.sin(angle)], axis=2).astype(np.float32)
        return angles


def _load_layers(package: Package, g: Geometry) -> list[Layer]:
    layers = []
    count = {"kda": 0, "mla": 0}
    for i, kind in enumerate(g.mixers):
        prefix = f"layers.{i}."
        mixer = KdaMixer.load(package, prefix, g) if kind == "kda" else MlaMixer.load(package, prefix, g)
        mlp = Dense.load(package, prefix + "dense.") if g.is_dense(i) else Moe.load(package, prefix, g)
        norms = package.vector(prefix + "norm_mixer"), package.vector(prefix + "norm_mlp")
        layers.append(Layer(norms[0], mixer, count[kind], norms[1], mlp))
        count[kind] += 1
    return layers


def _signature(package: Package, latent_type: type[np.generic]) -> str:
    """`1` is the version of the state's layout and of the kernels' rounding."""
    return f"ling3-state/1 {package.identity} {np.dtype(latent_type).name}"
