"""An engine around a decoder that plays a script, so that no model and no kernel is needed."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import numpy as np
import orjson
import text_fixtures
from numpy.typing import NDArray

from ling3.engine import ChatRequest, Engine, MetricsLog, Reply
from ling3.model import Decoder
from ling3.text import Piece

ROLE_END = text_fixtures.control_id("<|role_end|>")
END_OF_TEXT = text_fixtures.control_id("<|endoftext|>")
VOCABULARY = text_fixtures.size() + 7
OVERHEAD = 24
"""Tokens of a prompt with one user message, without the message's own."""

GREEDY: dict[str, Any] = {"temperature": 0.0}

Script = Sequence[int] | Callable[[list[int]], Sequence[int]]
MakeBench = Callable[..., "Bench"]


def words(text: str) -> list[int]:
    """The script that says `text`, then ends the turn."""
    return [*text_fixtures.tokens(text), ROLE_END]


def prompt_of(tokens: int) -> list[dict[str, str]]:
    """Messages whose prompt has exactly this many tokens: every digit is one."""
    return [{"role": "user", "content": "7" * (tokens - OVERHEAD)}]


def ask(tokens: int = 30, **fields: Any) -> ChatRequest:
    return ChatRequest(messages=prompt_of(tokens), **fields)


class ScriptedDecoder:
    """Gives the tokens of a script the highest logits, one after the other, then ends the turn.

    `script` may be a function of the prompt. What is called is written to `trace`; `before` is called first with
    that entry, and may block, cancel or raise. Blocks must keep to the rules of the real decoder.
    """

    def __init__(self, script: Script, context: int, trace: list[str]) -> None:
        self.context = context
        self.geometry = SimpleNamespace(vocab_size=VOCABULARY)
        self.tokens: list[int] = []
        self.resets = 0
        self.trace = trace
        self.before: Callable[[str], object] = lambda entry: None
        self.shape: Callable[[NDArray[np.float32]], None] = lambda logits: None
        self._script = script
        self._left: list[int] = []

    @property
    def position(self) -> int:
        return len(self.tokens)

    def reset(self) -> None:
        self.tokens = []
        self.resets += 1

    def eval_batch_state(self, tokens: Sequence[int]) -> None:
        self._take("state", tokens)

    def eval_batch(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        self._take("logits", tokens)
        self._left = list(self._script(self.tokens) if callable(self._script) else self._script)
        return self._next()

    def eval(self, token: int) -> NDArray[np.float32]:
        self._take(f"eval {token} at", [token])
        return self._next()

    def _take(self, name: str, tokens: Sequence[int]) -> None:
        entry = f"{name} {self.position}+{len(tokens)}" if len(tokens) > 1 else f"{name} {self.position}"
        self.trace.append(entry)
        self.before(entry)
        assert tokens and self.position + len(tokens) <= self.context
        assert self.position // 128 == (self.position + len(tokens) - 1) // 128, "a block crosses a boundary"
        self.tokens += tokens

    def _next(self) -> NDArray[np.float32]:
        logits = np.zeros(VOCABULARY, np.float32)
        logits[self._left.pop(0) if self._left else ROLE_END] = 20.0
        self.shape(logits)
        return logits


class RecordingSink:
    """Keeps what it is given. The `gone_at`-th question whether the client is there (from 0) is answered with no."""

    def __init__(self, trace: list[str] | None = None, gone_at: int | None = None) -> None:
        self.trace = [] if trace is None else trace
        self.pieces: list[Piece] = []
        self.sequence: list[int] = []
        self.request_id = ""
        self.created = 0
        self.questions = 0
        self.on_begin: Callable[[], object] = lambda: None
        self.on_write: Callable[[Piece], object] = lambda piece: None
        self.on_alive: Callable[[], object] = lambda: None
        self._gone_at = gone_at

    def begin(self, request_id: str, created: int) -> bool:
        self.trace.append("begin")
        self.request_id, self.created = request_id, created
        self.on_begin()
        return self._here()

    def write(self, piece: Piece, sequence: int) -> bool:
        self.trace.append(f"write {piece.text!r}")
        self.pieces.append(piece)
        self.sequence.append(sequence)
        self.on_write(piece)
        return self._here()

    def alive(self) -> bool:
        self.on_alive()
        return self._here()

    def _here(self) -> bool:
        self.questions += 1
        return self._gone_at is None or self.questions <= self._gone_at


class Bench:
    """An engine on a scripted decoder, and everything that can be seen of it."""

    def __init__(
        self,
        log_path: Path,
        script: Script,
        context: int = 4096,
        echo: IO[str] | None = None,
        generation: dict[str, Any] = GREEDY,
    ) -> None:
        self.trace: list[str] = []
        self.decoder = ScriptedDecoder(script, context, self.trace)
        self.text = text_fixtures.chat_text()
        self.echo = io.StringIO() if echo is None else echo
        self.log_path = log_path
        self.log = MetricsLog(log_path, self.echo)
        self.engine = Engine(cast(Decoder, self.decoder), self.text, generation, "ling3-test", self.log)

    def sink(self, gone_at: int | None = None) -> RecordingSink:
        return RecordingSink(self.trace, gone_at)

    def run(self, request: ChatRequest | None = None, sink: RecordingSink | None = None) -> Reply:
        return self.engine.run(request or ask(), sink or self.sink())

    def close(self) -> None:
        self.log.close()

    def logged(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.log_path.read_bytes().splitlines()]

    def lines(self, prefix: str) -> list[str]:
        """Lines for the operator that begin with `prefix`, without it."""
        assert isinstance(self.echo, io.StringIO)
        return [line.removeprefix(prefix) for line in self.echo.getvalue().splitlines() if line.startswith(prefix)]


class Background:
    """A run on a thread of its own that stands still inside the decoder, at its `at`-th call, until released."""

    def __init__(self, bench: Bench, request: ChatRequest | None = None, sink: RecordingSink | None = None) -> None:
        self.reply: Reply | None = None
        self.error: Exception | None = None
        self._entered, self._release = threading.Event(), threading.Event()
        bench.decoder.before = self._hold

        def play() -> None:
            try:
                self.reply = bench.run(request, sink)
            except Exception as error:
                self.error = error

        self._thread = threading.Thread(target=play)
        self._thread.start()
        assert self._entered.wait(5.0)

    def _hold(self, entry: str) -> None:
        self._entered.set()
        assert self._release.wait(5.0)

    def release(self) -> None:
        self._release.set()

    def finish(self) -> Reply:
        self.release()
        self._thread.join(5.0)
        assert self.error is None and self.reply is not None
        return self.reply
