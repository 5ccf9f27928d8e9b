"""From logits to a token (E-106, E-107)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ling3.engine.request import Sampling

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Settings:
    """Sampling settings with every value decided; a run can be replayed from them (E-68)."""

    temperature: float
    top_p: float
    top_k: int
    repeat_penalty: float
    seed: int

    @classmethod
    def decide(cls, wanted: Sampling, defaults: Sampling) -> Settings:
        """The request's values, else the package's, else plain sampling; a fresh seed if none was given."""
        seed = wanted.seed if wanted.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
        return cls(
            temperature=_first(wanted.temperature, defaults.temperature, 1.0),
            top_p=_first(wanted.top_p, defaults.top_p, 1.0),
            top_k=_first(wanted.top_k, defaults.top_k, 0),
            repeat_penalty=_first(wanted.repeat_penalty, defaults.repeat_penalty, 1.0),
            seed=seed & 0xFFFFFFFF,
        )


def _first(wanted: N | None, default: N | None, last: N) -> N:
    """The first that was given."""
    return wanted if wanted is not None else default if default is not None else last


def defaults_of(generation: dict[str, Any]) -> Sampling:
    """Sampling defaults from a package's generation settings (M-83, D-7); unusable values are left out."""

    def number(name: str, low: float, high: float) -> float | None:
        value = generation.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            return None
        return float(value)

    top_k = number("top_k", 0, 1 << 31)
    greedy = generation.get("do_sample") is False
    return Sampling(
        temperature=0.0 if greedy else number("temperature", 0.0, 2.0),
        top_p=number("top_p", 1e-6, 1.0),
        top_k=None if top_k is None else int(top_k),
        repeat_penalty=number("repetition_penalty", 1e-6, 100.0),
    )


_ROUNDING = 1e-12
"""What sums of weights may be off by: eight of ten equal tokens are enough for a top_p of 0.8."""
_LARGEST = np.finfo(np.float64).max / 4
"""Above any logit, and small enough that the difference of two is finite."""


class Sampler:
    """Draws the tokens of one run. `masked`: ids that must never be drawn (M-62)."""

    def __init__(self, settings: Settings, vocab_size: int, prompt: Iterable[int], masked: NDArray[np.int64]) -> None:
        self._settings = settings
        self._masked = masked
        self._random = np.random.RandomState(settings.seed)  # MT19937 seeded as 32 bits, stable by NumPy's policy
        self._seen = np.zeros(vocab_size, np.bool_)
        self._seen[list(prompt)] = True

    def draw(self, logits: NDArray[np.float32]) -> int:
        """The next token; it counts as seen from now on. `logits` is not changed.

        Raises ValueError if no finite logit is left.
        """
        s = self._settings
        z = logits.astype(np.float64)
        z[~np.isfinite(z)] = -np.inf
        z[self._masked] = -np.inf
        with np.errstate(over="ignore"):  # extreme settings are allowed, and end in weights of 0
            if s.repeat_penalty != 1.0:
                seen = z[self._seen]
                penalised = np.where(seen > 0, seen / s.repeat_penalty, seen * s.repeat_penalty)
                z[self._seen] = np.minimum(penalised, _LARGEST)
            token = int(z.argmax())
            if z[token] == -np.inf:
                raise ValueError("the model gave no finite logits")
            if s.temperature > 0.0:
                token = self._choose(z)
        self._seen[token] = True
        return token

    def _choose(self, z: NDArray[np.float64]) -> int:
        s = self._settings
        candidates = np.flatnonzero(z > -np.inf)
        if 0 < s.top_k < len(candidates):
            threshold = np.partition(z, len(z) - s.top_k)[len(z) - s.top_k]
            candidates = np.flatnonzero(z >= threshold)
        # Largest first, of equal logits the lowest id first: a tie at the edge is cut the same way each time.
        candidates = candidates[np.argsort(-z[candidates], kind="stable")]
        if s.top_k > 0:
            candidates = candidates[: s.top_k]
        cumulative = np.cumsum(np.exp((z[candidates] - z[candidates[0]]) / s.temperature))
        if s.top_p < 1.0:
            enough = s.top_p * cumulative[-1] * (1.0 - _ROUNDING)
            cumulative = cumulative[: int(np.searchsorted(cumulative, enough)) + 1]
        point = self._random.random_sample() * cumulative[-1]
        return int(candidates[min(int(np.searchsorted(cumulative, point, side="right")), len(cumulative) - 1)])
