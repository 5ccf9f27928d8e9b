"""An endless, never repeating stream of batches for one process."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from tokenizers import Tokenizer
from torch import Tensor

from .chat_format import render
from .dialogue import Writer
from .network import BLOCK
from .small_talk import SmallTalk
from .vocabulary import END_OF_TURN, PADDING, token_id

ROWS = 2048
LONGEST = 768
CHUNK = 3000


def learned_positions(ids: list[int], role_end: int, opening: list[int]) -> list[bool]:
    """True for the tokens of assistant turns, their end included, after `opening` (ids of `<role>ASSISTANT</role>`)."""
    marks = [False] * len(ids)
    inside = False
    for at in range(len(ids)):
        if inside:
            marks[at] = True
            inside = ids[at] != role_end
        elif ids[at + 1 - len(opening) : at + 1] == opening:
            inside = True
    return marks


class Batches:
    """Batches of conversations of about the same length: ids and learned positions, both [B, T], B * T about ROWS."""

    def __init__(self, tokenizer: Tokenizer, talk: SmallTalk, seed: int) -> None:
        self.tokenizer = tokenizer
        self.writer = Writer(seed, talk)
        self.role_end = token_id(tokenizer, END_OF_TURN)
        self.padding = token_id(tokenizer, PADDING)
        self.opening = tokenizer.encode("<role>ASSISTANT</role>").ids

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from self._chunk()

    def _chunk(self) -> Iterator[tuple[Tensor, Tensor]]:
        conversations = (self.writer.conversation() for _ in range(CHUNK))
        texts = [render(talk.messages, talk.tools, talk.thinking) for talk in conversations]
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        rows = sorted((row for row in rows if len(row) <= LONGEST), key=len)
        groups: list[list[list[int]]] = [[]]
        for row in rows:
            if groups[-1] and self._length(row) * (len(groups[-1]) + 1) > ROWS:
                groups.append([])
            groups[-1].append(row)
        self.writer.rng.shuffle(groups)
        for group in groups:
            length = self._length(group[-1])
            ids = torch.full((len(group), length), self.padding)
            learned = torch.zeros(len(group), length, dtype=torch.bool)
            for at, row in enumerate(group):
                ids[at, : len(row)] = torch.tensor(row)
                learned[at, : len(row)] = torch.tensor(learned_positions(row, self.role_end, self.opening))
            yield ids, learned

    @staticmethod
    def _length(row: list[int]) -> int:
        return -(-len(row) // BLOCK) * BLOCK
