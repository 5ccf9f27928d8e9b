"""Compiled kernels are found again, and not once any kernel's source has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ling3
from ling3 import _native

PROGRAM = """
import ling3.model.norm
from ling3.linear.pool import compile_entries
print([fresh for _, _, fresh in compile_entries()])
"""


def test_kernels_are_compiled_once_and_again_when_what_they_call_changes(tmp_path: Path) -> None:
    package = Path(ling3.__file__).parent
    copy = tmp_path / "ling3"
    for folder in ("linear", "model"):
        shutil.copytree(package / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("__init__.py", "errors.py"):
        shutil.copy(package / file, copy / file)
    shutil.copy(_native.__file__, copy)
    (copy / "model" / "__init__.py").write_text("")  # the norm alone: it compiles in a moment
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run() -> str:
        arguments = [sys.executable, "-c", PROGRAM]
        return subprocess.run(
            arguments, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert run() == "[True]"
    assert run() == "[False]"
    with (copy / "model" / "scalar.py").open("a") as source:
        source.write("# changed\n")
    assert run() == "[True]"
