"""Figures of a run (E-112, E-113) and where they are written (E-114)."""

from __future__ import annotations

import resource
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from ling3.engine.sampling import Settings
from ling3.errors import StartError
from ling3.tell import tell


def memory_mib(root: Path = Path("/")) -> dict[str, float]:
    """Memory of process and machine in MiB; a field that cannot be read is 0 (E-3)."""
    status, info = root / "proc/self/status", root / "proc/meminfo"
    return {
        "rss_mib": read_kb(status, "VmRSS:") / 1024,
        "peak_rss_mib": read_kb(status, "VmHWM:") / 1024,
        "swap_mib": read_kb(status, "VmSwap:") / 1024,
        "available_memory_mib": read_kb(info, "MemAvailable:") / 1024,
    }


def read_kb(path: Path, name: str) -> int:
    """The number after the first line that begins with `name`; 0 if there is none."""
    try:
        for line in path.read_text().splitlines():
            if line.startswith(name):
                return int(line[len(name) :].split()[0])
    except (OSError, ValueError, IndexError):
        pass
    return 0


@dataclass
class RunClock:
    """Times and counts of one run while it goes on. All clocks in milliseconds."""

    prompt_tokens: int
    start: float = field(default_factory=lambda: time.monotonic())
    ttft_ms: float | None = None
    prefill_ms: float = 0.0
    prefill_eval_ms: float = 0.0
    prompt_evaluated_tokens: int = 0
    decode_eval_ms: float = 0.0
    decode_eval_count: int = 0
    generated: int = 0
    cache_restore_ms: float = 0.0
    _first: float = 0.0
    _last: float = 0.0
    _faults: tuple[int, int] = field(default_factory=lambda: _page_faults())

    def elapsed_ms(self) -> float:
        return (time.monotonic() - self.start) * 1000

    def sampled(self) -> None:
        """A token was sampled (E-105 step 2)."""
        self._last = time.monotonic()
        if self.ttft_ms is None:
            self._first = self._last
            self.ttft_ms = (self._first - self.start) * 1000
        self.generated += 1

    def usage(self, cached: int | None) -> dict[str, Any]:
        """`cached` None: the request allowed no cache, so no details are given."""
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt_tokens + self.generated,
        }
        if cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage

    def figures(self) -> dict[str, Any]:
        decode_ms = (self._last - self._first) * 1000
        minor, major = _page_faults()
        memory = memory_mib()
        return {
            "ttft_ms": self.ttft_ms,
            "prefill_ms": self.prefill_ms,
            "prefill_eval_ms": self.prefill_eval_ms,
            "prompt_evaluated_tokens": self.prompt_evaluated_tokens,
            "prefill_tokens_per_second": _rate(self.prompt_evaluated_tokens, self.prefill_eval_ms),
            "decode_ms": decode_ms,
            "decode_eval_ms": self.decode_eval_ms,
            "decode_eval_count": self.decode_eval_count,
            "decode_tokens_per_second": _rate(self.generated - 1, decode_ms),
            "decode_compute_tokens_per_second": _rate(self.decode_eval_count, self.decode_eval_ms),
            "total_ms": self.elapsed_ms(),
            "rss_mib": memory["rss_mib"],
            "peak_rss_mib": memory["peak_rss_mib"],
            "queue_ms": 0.0,
            "warmed": True,
            "cache_restore_ms": self.cache_restore_ms,
            "minor_page_faults": minor - self._faults[0],
            "major_page_faults": major - self._faults[1],
        }


def sampling_report(settings: Settings, thinking: bool) -> dict[str, Any]:
    """The settings that a run really used, seed included."""
    return {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k,
        "repeat_penalty": settings.repeat_penalty,
        "seed": settings.seed,
        "enable_thinking": thinking,
    }


class MetricsLog:
    """One JSON line per run, appended and flushed; also on `echo` as `reply_metrics=` where that is given.

    Without `echo`, when a person chats on the same terminal, runs leave no other trace than the file.
    Neither a full disk nor an `echo` that nobody reads any more may cost an answer: what cannot be written is lost.
    """

    def __init__(self, path: Path, echo: IO[str] | None) -> None:
        """Raises StartError naming the path if it cannot be opened."""
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise StartError(f"--log: cannot open {path}: {error.strerror}") from error
        self._echo = echo
        self._torn = False  # the file ends inside a line
        self._lock = threading.Lock()

    def write(self, metrics: dict[str, Any]) -> None:
        """The figures of one run."""
        line = orjson.dumps(metrics)
        with self._lock:
            try:
                self._append(line)
            except OSError as error:
                self.note(f"request_warning: metrics log: {error.strerror}")
            self.note(f"reply_metrics={line.decode()}")

    def note(self, text: str) -> None:
        """A line about a run that only an operator wants to see."""
        if self._echo is not None:
            tell(text, self._echo)

    def close(self) -> None:
        self._file.close()

    def _append(self, line: bytes) -> None:
        """A disk that fills up takes part of a line; the next one then starts on a line of its own."""
        data = b"\n" * self._torn + line + b"\n"
        while data:
            written = self._file.write(data)
            data = data[written:]
            self._torn = bool(data)


def _rate(count: int, ms: float) -> float:
    return 1000.0 * count / ms if count > 0 and ms > 0 else 0.0


def _page_faults() -> tuple[int, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt, usage.ru_majflt
