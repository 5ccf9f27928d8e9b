"""The aarch64 kernels under qemu, on the board's core and on one without the dot product.

Run: pytest -m aarch64 (needs g++-aarch64-linux-gnu and qemu-user-static).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_program import build, check

pytestmark = pytest.mark.aarch64


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(
        tmp_path_factory.mktemp("aarch64"),
        "CMAKE_SYSTEM_NAME=Linux",
        "CMAKE_SYSTEM_PROCESSOR=aarch64",
        "CMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
        "CMAKE_EXE_LINKER_FLAGS=-static",
    )


# qemu stops at an instruction that the named core lacks, so a wrong compiler option shows as well.
@pytest.mark.parametrize(("cpu", "variants"), [("cortex-a76", ["neon", "scalar"]), ("cortex-a72", ["scalar"])])
def test_kernels_agree_with_the_index_formulas(program: Path, cpu: str, variants: list[str]) -> None:
    assert check(["qemu-aarch64-static", "-cpu", cpu, str(program)]) == variants
