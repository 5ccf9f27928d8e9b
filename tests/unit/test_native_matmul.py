"""W4 and W8 products: exact sums in every variant, floats bit for bit, and refusals that name the argument."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_reference import Ints, one_group, pack_w4, pack_w8, scaled, sums
from numpy.typing import NDArray

from ling3 import _native
from ling3._native import Pool

ACCUMULATE: dict[str, Any] = {"w4": _native.w4_accumulate, "w8": _native.w8_accumulate}
MATMUL: dict[str, Any] = {"w4": _native.w4_matmul, "w8": _native.w8_matmul}
PACK: dict[str, Any] = {"w4": pack_w4, "w8": pack_w8}
COLUMNS = {"w4": 64, "w8": 32}
RANGE = {"w4": (-8, 7), "w8": (-128, 127)}


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(2)


def random_weights(kind: str, n: int, k: int, seed: int = 1) -> Ints:
    least, most = RANGE[kind]
    return np.random.default_rng(seed).integers(least, most + 1, (n, k))


def random_rows(rows: int, k: int, seed: int = 2) -> NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-128, 128, (rows, k)).astype(np.int8)


@pytest.mark.parametrize("variant", _native.variants())
@pytest.mark.parametrize("kind", ["w4", "w8"])
@pytest.mark.parametrize(
    ("blocks", "k", "tiles"),
    [(1, 32, 1), (3, 96, 3), (2, 160, 1), (1, 256, 1), (1, 512, 2), (2, 1536, 1), (1, 1536, 6)],
)
def test_sums_are_exact(pool: Pool, variant: str, kind: str, blocks: int, k: int, tiles: int) -> None:
    n = blocks * COLUMNS[kind]
    values = random_weights(kind, n, k)
    weights = PACK[kind](values)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33):
        q, acc = random_rows(rows, k), np.empty((rows, tiles, n), np.int32)
        ACCUMULATE[kind](pool, weights, q, acc, variant)
        assert (acc == sums(values, q, tiles)).all()


@pytest.mark.parametrize("variant", _native.variants())
@pytest.mark.parametrize("kind", ["w4", "w8"])
@pytest.mark.parametrize("weight", [0, 1])
@pytest.mark.parametrize("activation", [-128, -127, 127])
def test_the_largest_sums_do_not_saturate(pool: Pool, variant: str, kind: str, weight: int, activation: int) -> None:
    value, k = RANGE[kind][weight], 2048
    weights = PACK[kind](np.full((COLUMNS[kind], k), value))
    for rows in (1, 8):
        acc = np.empty((rows, 1, COLUMNS[kind]), np.int32)
        ACCUMULATE[kind](pool, weights, np.full((rows, k), activation, np.int8), acc, variant)
        assert (acc == value * activation * k).all()


@pytest.mark.parametrize("variant", _native.variants())
def test_golden_vectors_of_the_npu_come_out(pool: Pool, variant: str) -> None:
    m, k, n = np.arange(3)[:, None], np.arange(64), np.arange(128)[:, None]
    # T1: 4-bit operands, the sums fit int16.
    acc = np.empty((3, 1, 128), np.int32)
    _native.w4_accumulate(pool, pack_w4((k + 2 * n) % 15 - 7), ((3 * k + 5 * m) % 16 - 8).astype(np.int8), acc, variant)
    assert (acc[0, 0, 0], acc[0, 0, 1], acc[2, 0, 127]) == (36, 212, 156)
    assert zlib.crc32(acc.astype("<i2").tobytes()) == 0x7490FC56
    # T2: bytes; the checksum is of the native order [N/4, M, 4].
    q = ((37 * k + 11 * m) % 255 - 127).astype(np.int8)
    _native.w8_accumulate(pool, pack_w8((29 * k + 7 * n) % 255 - 127), q, acc, variant)
    assert (acc[0, 0, 0], acc[2, 0, 127]) == (-8894, 1596)
    native = acc.reshape(3, 32, 4).transpose(1, 0, 2)
    assert zlib.crc32(np.ascontiguousarray(native).astype("<i4").tobytes()) == 0x41000E4E
    # T3: 4-bit weights, 8-bit activations.
    k, n = np.arange(512), np.arange(64)[:, None]
    acc = np.empty((2, 1, 64), np.int32)
    q = ((37 * k + 11 * m[:2]) % 255 - 127).astype(np.int8)
    _native.w4_accumulate(pool, pack_w4((5 * k + 3 * n + k // 7) % 16 - 8), q, acc, variant)
    assert (acc[0, 0, 0], acc[1, 0, 63]) == (8956, 9680)
    assert zlib.crc32(acc.astype("<i4").tobytes()) == 0x0AAA3DFD


class Experts:
    """Three experts of 128 outputs and K = 192 in three tiles, and rows for them."""

    n, k, tiles = 128, 192, 3

    def __init__(self, kind: str, rows: int) -> None:
        rng = np.random.default_rng(7)
        self.values = np.stack([random_weights(kind, self.n, self.k, seed) for seed in range(3)])
        self.weights = np.stack([PACK[kind](values) for values in self.values])
        self.scale = rng.random((3, self.tiles, self.n), np.float32)
        self.q = random_rows(rows, self.k)
        self.a_scale = rng.random((rows, self.tiles), np.float32)

    def expected(self, expert: int, rows: slice) -> NDArray[np.float32]:
        return scaled(sums(self.values[expert], self.q[rows], self.tiles), self.scale[expert], self.a_scale[rows])

    def run(self, kind: str, pool: Pool, experts: list[int], offsets: list[int], columns: int) -> NDArray[np.float32]:
        y = np.full((len(self.q), columns), np.nan, np.float32)
        groups = np.array(experts, np.int32), np.array(offsets, np.int32)
        MATMUL[kind](pool, self.weights, self.scale, self.q, self.a_scale, *groups, y)
        return y


@pytest.mark.parametrize("kind", ["w4", "w8"])
def test_each_group_meets_its_expert_and_padding_columns_are_dropped(pool: Pool, kind: str) -> None:
    case = Experts(kind, 14)
    y = case.run(kind, pool, [2, 0, 1, 2], [0, 1, 1, 11, 14], 101)
    assert (y[0:1] == case.expected(2, slice(0, 1))[:, :101]).all()
    assert (y[1:11] == case.expected(1, slice(1, 11))[:, :101]).all()
    assert (y[11:] == case.expected(2, slice(11, 14))[:, :101]).all()


@pytest.mark.parametrize("kind", ["w4", "w8"])
def test_a_row_is_the_same_alone_and_in_company(pool: Pool, kind: str) -> None:
    case = Experts(kind, 40)
    together = case.run(kind, pool, [1], [0, 40], 128)
    alone = case.run(kind, pool, [1] * 40, list(range(41)), 128)
    assert together.tobytes() == alone.tobytes()


@pytest.mark.parametrize("kind", ["w4", "w8"])
def test_results_are_the_same_bits_for_every_number_of_threads(kind: str) -> None:
    case = Experts(kind, 70)
    results = {case.run(kind, Pool(threads), [0, 2], [0, 3, 70], 128).tobytes() for threads in (1, 2, 4)}
    assert len(results) == 1


def test_no_rows_and_no_groups_are_nothing_to_do(pool: Pool) -> None:
    case = Experts("w4", 0)
    assert case.run("w4", pool, [], [0], 128).shape == (0, 128)
    assert case.run("w4", pool, [1], [0, 0], 128).shape == (0, 128)


def test_mapped_weights_are_read_where_they_lie(pool: Pool, tmp_path: Path) -> None:
    case = Experts("w4", 3)
    expected = case.run("w4", pool, [1], [0, 3], 128)
    (tmp_path / "weights").write_bytes(b"\0" * 64 + case.weights.tobytes())
    mapped = np.memmap(tmp_path / "weights", np.uint8, "r", 64, case.weights.shape)
    assert not mapped.flags.writeable
    case.weights = mapped
    assert case.run("w4", pool, [1], [0, 3], 128).tobytes() == expected.tobytes()


# A checksum over the results of every format, to compare processes with different variants.
CHECKSUM = """
import zlib
import numpy as np
from ling3 import _native
rng, pool = np.random.default_rng(3), _native.Pool(1)
offsets, experts = np.array([0, 1, 12], np.int32), np.array([1, 0], np.int32)
y, total = np.empty((12, 64), np.float32), 0
q, a = rng.integers(-128, 128, (12, 256)).astype(np.int8), rng.random((12, 2), np.float32)
scale, x = rng.random((2, 2, 64), np.float32), rng.standard_normal((12, 256), np.float32)
for call, weights in (
    (_native.w4_matmul, rng.integers(0, 256, (2, 1, 8, 64, 16)).astype(np.uint8)),
    (_native.w8_matmul, rng.integers(-128, 128, (2, 2, 8, 32, 32)).astype(np.int8)),
):
    call(pool, weights, scale, q, a, experts, offsets, y)
    total = zlib.crc32(y, total)
for call, floats in (
    (_native.f32_matmul, rng.standard_normal((2, 64, 256), np.float32)),
    (_native.bf16_matmul, (rng.standard_normal((2, 64, 256), np.float32).view(np.uint32) >> 16).astype(np.uint16)),
):
    call(pool, floats, x, experts, offsets, y)
    total = zlib.crc32(y, total)
print(_native.active_variant(), total)
"""


def run_with_kernel(name: str, program: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LING3_KERNEL": name}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


def test_all_variants_give_the_same_bits_in_every_format() -> None:
    lines = [run_with_kernel(name, CHECKSUM).stdout.split() for name in _native.variants()]
    assert [name for name, _ in lines] == _native.variants()
    assert len({checksum for _, checksum in lines}) == 1


def test_an_unknown_variant_is_refused_with_the_choice() -> None:
    result = run_with_kernel("avx9", "from ling3 import _native; _native.active_variant()")
    message = result.stderr.splitlines()[-1]
    assert message.startswith("ValueError: LING3_KERNEL: kernel variant 'avx9' does not exist")
    assert message.endswith("scalar")


def arguments() -> dict[str, Any]:
    case = Experts("w4", 4)
    return {
        "weights": case.weights,
        "scale": case.scale,
        "q": case.q,
        "a_scale": case.a_scale,
        **one_group(4),
        "y": np.empty((4, 128), np.float32),
    }


def read_only(array: NDArray[np.float32]) -> NDArray[np.float32]:
    array.setflags(write=False)
    return array


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weights", np.zeros((3, 2, 6, 64, 16), np.int8), "a C-contiguous uint8 array with 5 axes is needed"),
        ("weights", np.zeros((2, 6, 64, 16), np.uint8), "with 5 axes is needed, got element type 'B' with 4 axes"),
        ("weights", np.zeros((3, 2, 6, 32, 32), np.uint8), "native tiles"),
        ("weights", np.zeros((3, 2, 0, 64, 16), np.uint8), "native tiles"),
        ("weights", np.zeros((3, 2, 6, 64, 32), np.uint8)[..., ::2], "C-contiguous"),
        ("weights", "text", "C-contiguous uint8 array"),
        ("scale", np.zeros((3, 3, 127), np.float32), r"shape \[3, 3, 128\] is needed, got \[3, 3, 127\]"),
        ("scale", np.zeros((2, 3, 128), np.float32), r"shape \[3, 3, 128\]"),
        ("scale", np.zeros((3, 4, 128), np.float32), "must divide K = 192 into multiples of 32"),
        ("scale", np.zeros((3, 3, 128)), "float32"),
        ("q", np.zeros((4, 160), np.int8), r"shape \[any, 192\] is needed, got \[4, 160\]"),
        ("q", np.zeros((4, 192), np.uint8), "int8"),
        ("a_scale", np.zeros((4, 2), np.float32), r"shape \[4, 3\]"),
        ("experts", np.array([3], np.int32), r"entry 3 is not in 0\.\.\.2"),
        ("experts", np.array([-1], np.int32), "entry -1"),
        ("experts", np.array([0], np.int64), "int32"),
        ("experts", np.array([0, 1], np.int32), r"offsets: shape \[3\]"),
        ("offsets", np.array([1, 4], np.int32), "must start at 0"),
        ("offsets", np.array([0, 5], np.int32), "must end at the number of rows, 4"),
        ("offsets", np.array([0, 3], np.int32), "must end at the number of rows, 4"),
        ("y", np.zeros((4, 129), np.float32), "at most N = 128 columns"),
        ("y", np.zeros((3, 128), np.float32), r"shape \[4, any\]"),
        ("y", read_only(np.zeros((4, 128), np.float32)), "must be writable"),
    ],
)
def test_wrong_arguments_are_refused_by_name(pool: Pool, name: str, value: Any, message: str) -> None:
    pattern = message if message.startswith("offsets") else f"{name}: .*{message}"
    with pytest.raises(ValueError, match=pattern):
        _native.w4_matmul(pool, **arguments() | {name: value})


def test_falling_offsets_are_refused(pool: Pool) -> None:
    groups = {"experts": np.array([0, 1], np.int32), "offsets": np.array([0, 5, 4], np.int32)}
    with pytest.raises(ValueError, match="offsets: must not fall"):
        _native.w4_matmul(pool, **arguments() | groups)


@pytest.mark.parametrize(
    ("acc", "variant", "message"),
    [
        (np.zeros((4, 3, 64), np.int32), "scalar", r"acc: shape \[4, 3, 128\]"),
        (np.zeros((4, 5, 128), np.int32), "scalar", "acc: the number of K tiles must divide K = 192"),
        (np.zeros((4, 3, 128), np.int32), "vliw", "variant: kernel variant 'vliw' does not exist"),
    ],
)
def test_wrong_accumulators_are_refused(pool: Pool, acc: NDArray[np.int32], variant: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.w4_accumulate(pool, arguments()["weights"][0], arguments()["q"], acc, variant)
