"""Kernels for instructions that this CPU may lack, in emulation, and all kernels under the sanitizers.

Run: pytest -m isa tests/unit/test_native_isa.py (needs libsimde-dev); pytest -m slow for the sanitizers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernel_program import build, check

x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the emulated kernels are x86 kernels")


@pytest.mark.isa
@x86_64
def test_emulated_avx512_and_avx2_agree_with_the_index_formulas(tmp_path: Path) -> None:
    program = build(tmp_path, "LING3_SIMDE=ON")
    assert check([str(program)]) == ["avx512", "avx2", "scalar"]


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_pool_and_kernels_are_clean_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    flags = f"-fsanitize={sanitizer} -fno-sanitize-recover=all -g -O1"
    program = build(tmp_path, "CMAKE_BUILD_TYPE=Debug", f"CMAKE_CXX_FLAGS={flags}")
    assert check([str(program)])[-1] == "scalar"
