"""The console as the command line runs it, around an engine that answers by rule; run by test_console_pty.

Usage: console_app.py (full|plain|piped) REQUEST_LOG
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import termios
import threading
import time
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import ling3

FACE, REQUEST_LOG = sys.argv[1], Path(sys.argv[2])
if FACE == "plain":
    sys.modules["prompt_toolkit"] = None  # type: ignore[assignment]  # as if it were not installed

# The console needs the engine's request types alone; the package would load every kernel with them.
_engine = types.ModuleType("ling3.engine")
_engine.__path__ = [str(folder / "engine") for folder in map(Path, ling3.__path__)]
sys.modules["ling3.engine"] = _engine

from ling3.console import input_kind, open_console, open_piped_prompt  # noqa: E402
from ling3.engine.request import ChatRequest, FinishReason, Reply, Sink  # noqa: E402
from ling3.errors import RequestError  # noqa: E402
from ling3.text.output import Channel, Piece  # noqa: E402


class ScriptedEngine:
    """Answers by the first word of the last message; everything else is echoed."""

    def run(self, request: ChatRequest, sink: Sink) -> Reply:
        with REQUEST_LOG.open("a", encoding="utf-8") as log:
            log.write(json.dumps([dict(message) for message in request.messages]) + "\n")
        text = str(request.messages[-1]["content"])
        word = text.split()[0]
        if word == "busy":
            raise RequestError(429, "engine_busy", "another request is running")
        if word == "crash":
            raise ValueError("a broken invariant")
        if not sink.begin("chat-1", 1_700_000_000):
            return _reply("", "", "canceled")
        pieces: list[tuple[Channel, str]]
        if word in ("slow", "brief"):
            pieces = [("content", f"tick{number} ") for number in range(1000 if word == "slow" else 20)]
        elif word == "stuck":
            sink.write(Piece("content", "stuck now"), 1)
            time.sleep(60)
            pieces = []
        elif word == "think":
            pieces = [("reasoning", "let me see"), ("content", "forty-two")]
        elif word == "attack":
            pieces = [("content", "A\x1b"), ("content", "]0;owned\x07B"), ("content", "\x9b31mC")]
        elif word == "wide":
            pieces = [("content", character) for character in "北京是中国的首都" * 4]
        else:
            pieces = [("content", f"echo<{text}>")]
        for sequence, (channel, piece) in enumerate(pieces, 1):
            if not (sink.alive() and sink.write(Piece(channel, piece), sequence)):
                return _reply("", "", "canceled")
            if word in ("slow", "brief"):
                time.sleep(0.02)
        content = "".join(piece for channel, piece in pieces if channel == "content")
        reasoning = "".join(piece for channel, piece in pieces if channel == "reasoning")
        return _reply(content, reasoning, "stop")

    def cancel(self, request_id: str = "", /) -> bool:
        return False


def _reply(content: str, reasoning: str, finish_reason: FinishReason) -> Reply:
    usage: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    metrics: dict[str, Any] = {"ttft_ms": 12.3, "decode_tokens_per_second": 45.67}
    return Reply("chat-1", 1_700_000_000, content, reasoning, (), finish_reason, usage, metrics)


quitting = False


def request_quit(*_: object) -> None:
    global quitting
    quitting = True


def chat() -> int:
    console = open_console(ScriptedEngine(), request_quit=request_quit)
    signal.signal(signal.SIGINT, lambda *_: None if console.interrupt() else request_quit())
    signal.signal(signal.SIGUSR1, lambda *_: print("a log line", file=sys.stderr))
    thread = threading.Thread(target=console.run, daemon=True)
    thread.start()
    while not quitting:
        time.sleep(0.02)
    console.close()
    thread.join(1)
    with suppress(OSError):  # the terminal may be gone
        os.write(1, b"process ends\n")
    return 0


def answer_piped() -> int:
    prompt = open_piped_prompt(ScriptedEngine())
    signal.signal(signal.SIGINT, lambda *_: prompt.interrupt())
    return prompt.run()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, request_quit)
    if input_kind(0) == "terminal" and os.getsid(0) == os.getpid():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.exit(answer_piped() if FACE == "piped" else chat())
