"""The stored networks of `data/`: checkpoint folders and the logits that `transformers` gave for them.

`tests/reference/make_vectors.py` wrote them; `ids` are the tokens, `logits` those after each of `positions`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from packages import byte_tokenizer_json

from ling3.convert import convert
from ling3.linear.formats import from_bf16
from ling3.model.decoder import Decoder
from ling3.model.tensor_file import TensorFile

DATA = Path(__file__).parent / "data"
NAMES = ("grouped", "trailing_tied")
PROMPTS = (1, 15, 16, 17, 127, 128, 129, 300)
"""Lengths of the prompts that end at one of `positions`."""
STEPS = 3
"""Single tokens behind each prompt, at `positions` as well."""


@dataclass(frozen=True)
class StoredNetwork:
    """One network: its folder, the tokens, and logits by position."""

    folder: Path
    ids: NDArray[np.int64]
    logits: dict[int, NDArray[np.float32]]

    def wanted(self, prompt: int) -> NDArray[np.float32]:
        """Logits after a prompt and after each step behind it: [1 + STEPS, vocab]."""
        return np.stack([self.logits[position] for position in range(prompt - 1, prompt + STEPS)])

    def evaluate(self, decoder: Decoder, prompt: int) -> NDArray[np.float32]:
        """The same from a decoder, the prompt in one call and every step in one of its own."""
        decoder.reset()
        after_prompt = decoder.eval_batch(self.ids[:prompt].tolist())
        return np.stack([after_prompt, *(decoder.eval(int(t)) for t in self.ids[prompt : prompt + STEPS])])

    def deviation(self, decoder: Decoder) -> float:
        """The largest absolute difference of a logit over all prompts; infinite if one is not finite."""
        differences = [np.abs(self.evaluate(decoder, n) - self.wanted(n)).max() for n in PROMPTS]
        return float(np.nan_to_num(np.array(differences), nan=np.inf).max())

    def convert(self, out: Path) -> Path:
        """Make a float32 package, after adding the texts that the stored folder lacks."""
        source = out.with_suffix(".source")
        shutil.copytree(self.folder, source, ignore=shutil.ignore_patterns("expected.*"))
        (source / "tokenizer.json").write_bytes(byte_tokenizer_json())
        convert(source, out, weights="f32")
        return out

    def tensors(self) -> Callable[[str], NDArray[np.float64]]:
        """Look-up of tensors under their public names, without `.weight`."""
        file = TensorFile.open(self.folder / "model.safetensors")

        @cache
        def find(name: str) -> NDArray[np.float64]:
            spellings = (name, name.replace(".o_proj", ".dense"), name.replace(".A_log", ".forget_gate.A_log"))
            stored = next(key for one in spellings for key in (one, f"{one}.weight") if key in file.tensors)
            values = file.array(stored)
            return np.asarray(from_bf16(values) if file.tensors[stored].dtype == "BF16" else values, np.float64)

        return find


def load(name: str) -> StoredNetwork:
    """A stored network by name."""
    expected: Any = TensorFile.open(DATA / name / "expected.safetensors")
    positions = expected.array("positions").tolist()
    logits = dict(zip(positions, expected.array("logits"), strict=True))
    return StoredNetwork(DATA / name, expected.array("ids"), logits)
