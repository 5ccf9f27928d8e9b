"""`ling3` as a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
"""A start on a busy machine, kernels compiled for the first time."""


def start(
    folder: Path,
    *arguments: str,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Run `ling3` in a folder of its own; nothing of this user is seen but the compiled kernels."""
    kernels = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    own = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": kernels}
    own |= {"PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "ling3", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=os.environ | own, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE
    )


def run(folder: Path, *arguments: str, stdout: int | IO[bytes] = subprocess.PIPE) -> tuple[int, bytes, list[str]]:
    """Exit code, standard output, lines on standard error."""
    process = start(folder, *arguments, stdout=stdout)
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return process.returncode, out or b"", err.decode().splitlines()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
