"""Asking the trained model the questions of `evaluation.json` and counting the accepted answers.

    python -m tools.demo.evaluation DIR        (DIR as written by tools/train_demo.py)

Each entry has the user lines of one conversation in `ask`; the greedy answer to the last one must contain one of the
strings in `accept`, in any case. The questions are worded apart from the templates of the corpus.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from .chat_format import render
from .dialogue import Message
from .export import load_network
from .network import Network
from .vocabulary import END_OF_TURN, token_id

QUESTIONS = Path(__file__).with_name("evaluation.json")
LONGEST_ANSWER = 96


@dataclass(frozen=True)
class Question:
    """One conversation and what its last answer may contain."""

    family: str
    ask: tuple[str, ...]
    accept: tuple[str, ...]


def load_questions() -> list[Question]:
    """All questions, family by family."""
    families: dict[str, list[dict[str, list[str]]]] = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    return [Question(family, tuple(entry["ask"]), tuple(entry["accept"])) for family,
            entries in families.items() for entry in entries]


def accepted(question: Question, answer: str) -> bool:
    """Whether the answer holds one of the accepted strings."""
    return any(part.lower() in answer.lower() for part in question.accept)


class Model:
    """Greedy answers, computed anew from the whole text for every token: slow, but with nothing to get wrong."""

    def __init__(self, network: Network, tokenizer: Tokenizer) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.end = token_id(tokenizer, END_OF_TURN)

    def complete(self, prompt: str) -> str:
        """The greedy continuation of a rendered prompt up to the end of the turn, special tokens as text."""
        ids = self.tokenizer.encode(prompt).ids
        start = len(ids)
        with torch.inference_mode():
            while len(ids) - start < LONGEST_ANSWER:
                best = int(self.network(torch.tensor([ids]))[0, -1].argmax())
                if best == self.end:
                    break
                ids.append(best)
        text: str = self.tokenizer.decode(ids[start:], skip_special_tokens=False)
        return text

    def converse(self, lines: tuple[str, ...]) -> list[str]:
        """The answers to the user lines of one conversation."""
        messages: list[Message] = []
        answers = []
        for line in lines:
            messages.append({"role": "user", "content": line})
            answers.append(self.complete(render(messages, generate=True)))
            messages.append({"role": "assistant", "content": answers[-1]})
        return answers


def evaluate(model: Model) -> tuple[dict[str, tuple[int, int]], list[tuple[Question, str]]]:
    """Accepted and asked questions of each family, and the questions that were answered wrongly."""
    scores: dict[str, tuple[int, int]] = {}
    wrong = []
    for question in load_questions():
        answer = model.converse(question.ask)[-1]
        right, asked = scores.get(question.family, (0, 0))
        scores[question.family] = (right + accepted(question, answer), asked + 1)
        if not accepted(question, answer):
            wrong.append((question, answer))
    return scores, wrong


def main() -> None:
    """Print the score of each family and every wrong answer."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    scores, wrong = evaluate(Model(load_network(folder), tokenizer))
    for question, answer in wrong:
        print(f"{question.family}: {' / '.join(question.ask)} -> {answer!r}")
    for family, (right, asked) in scores.items():
        print(f"{family:12} {right:3}/{asked}")
    print(f"{'all':12} {sum(right for right, _ in scores.values()):3}/{sum(asked for _, asked in scores.values())}")


if __name__ == "__main__":
    main()
