"""Options of a start: one frozen dataclass, one table, one left-to-right scan (E-8 to E-15, D-1, D-2)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ling3.errors import StartError

CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072, 262144)
NATIVE_CONTEXT = 131072
DEFAULT_PACKAGE = "ling3-tiny-w4.l3r"
RESERVE_MIB = 1536
BASE_MIB = 4608
"""Resident MiB of the full `w4` package with everything but its latent cache (E-14)."""
LATENT_BYTES = 6912
"""Bytes of latent cache per position of the full model (D-3)."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the command line decides. `model` None: search (D-2); `threads` None: what the machine offers."""

    model: Path | None = None
    host: str = "127.0.0.1"
    port: int = 9091
    log: Path = Path("metrics.jsonl")
    context: int = 4096
    backend: str = "auto"
    mla_backend: str = "auto"
    threads: int | None = None
    thinking: bool = False
    console: bool = True
    check: bool = False
    session_cache_mib: int = 256
    max_body_mib: int = 32


@dataclass(frozen=True, slots=True)
class Immediate:
    """An option that prints and ends the program with exit code 0."""

    text: str


def estimate_mib(context: int) -> float:
    """Estimated resident MiB of the full model at a context length (E-14)."""
    return BASE_MIB + context * LATENT_BYTES / (1 << 20)


def list_contexts() -> str:
    """The table of `--list-contexts` (E-12)."""
    lines = []
    for n in CONTEXTS:
        line = (
            f"{n // 1024}K: estimated_model_rss_gib={estimate_mib(n) / 1024:g} "
            f"suggested_available_memory_gib={(estimate_mib(n) + RESERVE_MIB) / 1024:g}"
        )
        lines.append(line + (" experimental_extrapolation_beyond_native_128K" if n > NATIVE_CONTEXT else ""))
    return "\n".join(lines)


def _integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 20 and low <= int(text) <= high):
            raise ValueError(f"must be an integer from {low} to {high}")
        return int(text)

    return read


_mib = _integer(0, (1 << 44) - 1)
"""As bytes it must fit 64 bits (E-8)."""


def _choice(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return text

    return read


def _path(text: str) -> Path:
    if not text:
        raise ValueError("must name a file")
    return Path(text)


def _switch(text: str) -> bool:
    return _choice("on", "off")(text) == "on"


def _context(text: str) -> int:
    for n in CONTEXTS:
        if text in (f"{n // 1024}K", f"{n // 1024}k", str(n)):
            return n
    raise ValueError("must be one of " + ", ".join(f"{n // 1024}K" for n in CONTEXTS))


@dataclass(frozen=True, slots=True)
class Option:
    """One public option: the field it sets, how its value is read (None: a switch), and its help."""

    field: str
    read: Callable[[str], Any] | None
    value: str
    help: str
    constant: Any = None


OPTIONS: dict[str, Option] = {
    "--model": Option("model", _path, "FILE", f"package (./{DEFAULT_PACKAGE}, the data folder's, the bundled demo)"),
    "--host": Option("host", str, "IPV4", "address to listen on (127.0.0.1)"),
    "--port": Option("port", _integer(1, 65535), "N", "port to listen on (9091)"),
    "--log": Option("log", _path, "FILE", "metrics log, one JSON line per answer (metrics.jsonl)"),
    "--context": Option("context", _context, "4K..256K", "most positions of one conversation (4K)"),
    "--backend": Option("backend", _choice("auto", "cpu", "npu"), "NAME", "auto, cpu or npu without fallback (auto)"),
    "--mla-backend": Option("mla_backend", _choice("auto", "cpu", "npu"), "NAME", "unit for attention (auto)"),
    "--threads": Option("threads", _integer(1, 64), "N", "CPU threads (all that may be used, at most 4)"),
    "--thinking": Option("thinking", _switch, "on|off", "think unless a request says otherwise (off)"),
    "--session-cache-mib": Option("session_cache_mib", _mib, "MIB", "budget of snapshots; 0 turns only them off (256)"),
    "--max-body-mib": Option("max_body_mib", _integer(1, 1024), "N", "largest request body (32)"),
    "--no-console": Option("console", None, "", "serve only, also on a terminal", constant=False),
    "--check": Option("check", None, "", "qualify this machine, print every check, exit", constant=True),
}
_HIDDEN = ("--allow-experimental-context",)  # older launchers pass it

VERBS: dict[str, str] = {
    "convert": "make a package from a checkpoint folder",
    "inspect": "show what a package holds, verify its hashes",
}


def usage() -> str:
    """The text of `--help` (E-11)."""
    verbs = [f"  ling3 {name:<10} {text}" for name, text in VERBS.items()]
    rows = [(f"{name} {option.value}".strip(), option.help) for name, option in OPTIONS.items()]
    rows += [
        ("--list-contexts", "print context lengths with their memory, exit"),
        ("--version", "print the version, exit"),
        ("--help", "print this, exit"),
    ]
    return "\n".join(
        [
            "ling3 [OPTIONS]          serve, and chat when run on a terminal",
            "... | ling3 [OPTIONS]    answer one prompt from standard input",
            *verbs,
            "",
            "Options (defaults in brackets):",
            *(f"  {left:<26} {right}" for left, right in rows),
            "",
            "Target: RK3588, tested with RKNPU driver 0.9.8; any other Linux runs on its CPU.",
            "Qualification and memory estimates are advisory. The API is text-only OpenAI chat completions.",
        ]
    )


def parse_options(arguments: Sequence[str], version: str) -> Config | Immediate:
    """Scan options left to right; the last of a repeated option wins. StartError names the option at fault."""
    config = Config()
    immediates: dict[str, Callable[[], str]] = {
        "--help": usage,
        "-h": usage,
        "--list-contexts": list_contexts,
        "--version": lambda: version,
    }
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        if name in immediates:
            return Immediate(immediates[name]())
        if name in _HIDDEN:
            continue
        option = OPTIONS.get(name)
        if option is None:
            kind = "option" if name.startswith("-") else "command"
            raise StartError(f"unknown {kind} {name or repr(name)}; ling3 --help lists them")
        if option.read is None:
            config = replace(config, **{option.field: option.constant})
            continue
        if not rest:
            raise StartError(f"option {name} needs a value ({option.value})")
        text = rest.pop(0)
        try:
            config = replace(config, **{option.field: option.read(text)})
        except ValueError as error:
            raise StartError(f"option {name} {error}; got {text!r}") from None
    return config


def find_model(config: Config, bundled: Path) -> tuple[Path, bool]:
    """The package to load, and whether it is the bundled demonstration model (D-2)."""
    if config.model is not None:
        return config.model, False
    data = Path(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"))
    for path in (Path(DEFAULT_PACKAGE), data / "ling3" / DEFAULT_PACKAGE):
        if path.is_file():
            return path, False
    return bundled, True
