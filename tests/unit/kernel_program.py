"""Builds `native/test/kernel_check.cpp`, the kernels' own check, with other compilers, emulation or sanitizers."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(folder: Path, *definitions: str) -> Path:
    """The program, built in `folder` by the project's CMake with the given `NAME=VALUE` definitions."""
    cmake = str(Path(sysconfig.get_path("scripts")) / "cmake")
    options = [f"-D{definition}" for definition in ("LING3_MODULE=OFF", *definitions)]
    _run([cmake, "-S", str(ROOT), "-B", str(folder), "-G", "Unix Makefiles", *options])
    _run([cmake, "--build", str(folder), "--target", "kernel_check"])
    return folder / "kernel_check"


def check(command: list[str]) -> list[str]:
    """The variants that the program could check; fails with its report if any result differs."""
    lines = _run(command).splitlines()
    assert lines[-1] == "overall okay: 1"
    first = next(line for line in lines if line.startswith("variants: "))
    return first.split()[1:]


def _run(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    return result.stdout
