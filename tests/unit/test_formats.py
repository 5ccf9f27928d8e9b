"""Rounding, native order, certificate: golden vectors T1-T4 of the NPU notes, and properties."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from ling3.linear.formats import (
    certificate,
    certified,
    choose_tile,
    correction,
    dequantise,
    from_bf16,
    pack_w4,
    pack_w8,
    quantise,
    quantise_certified,
    round_up,
    to_bf16,
    unpack_w4,
    unpack_w8,
)


def formula(n: int, k: int, rule: str) -> NDArray[np.int8]:
    """Weights [N, K] by a formula in k and n, as the golden vectors give them."""
    values = eval(rule, {"n": np.arange(n)[:, None], "k": np.arange(k)[None, :]})
    return np.asarray(values).astype(np.int8)


quick = settings(max_examples=25, deadline=None)

T1 = formula(128, 64, "(k + 2 * n) % 15 - 7")
T2 = formula(128, 64, "(29 * k + 7 * n) % 255 - 127")
T3 = formula(64, 512, "(5 * k + 3 * n + k // 7) % 16 - 8")
T4 = np.full((64, 512), -8, np.int8)


def random_matrix(n: int, k: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, k), dtype=np.float32)


# Golden vectors


def test_t1_native_image_of_four_bit_weights() -> None:
    image = pack_w4(T1).tobytes()
    assert len(image) == 4096
    assert image[:4].hex() == "a9cbed0f"
    assert zlib.crc32(image) == 0xE1043465


def test_t2_native_image_of_eight_bit_weights() -> None:
    assert zlib.crc32(pack_w8(T2).tobytes()) == 0x53D94064


def test_t3_native_image() -> None:
    image = pack_w4(T3).tobytes()
    assert len(image) == 16384
    assert zlib.crc32(image) == 0xE330C51B


def test_t3_correction() -> None:
    assert correction(T3, 512)[0, 0] == -2904


def test_t3_certificate() -> None:
    assert certificate(T3, 512).tolist() == [[15587, 15305]]


def test_t4_is_refused_by_the_certificate() -> None:
    assert not certified(certificate(T4, 512))


def test_t4_halved_is_certified() -> None:
    assert certified(certificate(T4, 256))


# Native order


@given(arrays(np.int8, (128, 64), elements=st.integers(-8, 7)))
@quick
def test_w4_packing_is_undone_by_unpacking(values: NDArray[np.int8]) -> None:
    assert np.array_equal(unpack_w4(pack_w4(values)), values)


@given(arrays(np.int8, (64, 64)))
@quick
def test_w8_packing_is_undone_by_unpacking(values: NDArray[np.int8]) -> None:
    assert np.array_equal(unpack_w8(pack_w8(values)), values)


def test_the_shapes_of_packed_weights() -> None:
    values = np.zeros((192, 96), np.int8)
    assert pack_w4(values).shape == (3, 3, 64, 16)
    assert pack_w8(values).shape == (6, 3, 32, 32)


# Rounding


@given(arrays(np.float32, (3, 40), elements=st.floats(-1e6, 1e6, width=32)), st.sampled_from([None, 32]))
@quick
def test_w8_misses_by_at_most_half_a_step(w: NDArray[np.float32], tile: int | None) -> None:
    q = quantise(w, "w8", tile)
    step = np.repeat(q.scale.T, q.tile, axis=1)[:3, :40]
    miss = np.abs(dequantise(q.values, q.scale)[:3, :40] - w)
    assert (miss <= 0.501 * step).all()


@given(arrays(np.float32, (2, 64), elements=st.floats(-100, 100, width=32)))
@quick
def test_w4_is_never_worse_than_the_plain_range(w: NDArray[np.float32]) -> None:
    q = quantise(w, "w4")
    error = ((dequantise(q.values, q.scale)[:2].astype(np.float64) - w) ** 2).sum(axis=1)
    step = np.maximum(np.abs(w).max(axis=1, keepdims=True).astype(np.float64) / 7, 1e-30)
    plain = ((np.rint(w / step) * step - w) ** 2).sum(axis=1)
    assert (error <= plain * 1.001 + 1e-6).all()


@given(arrays(np.float32, (2, 64), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
@quick
def test_rounding_is_symmetric_and_finite_for_every_finite_matrix(w: NDArray[np.float32]) -> None:
    for fmt, levels in (("w4", 7), ("w8", 127)):
        q = quantise(w, fmt)  # type: ignore[arg-type]
        assert np.abs(q.values.astype(np.int32)).max() <= levels
        assert np.isfinite(q.scale).all()
        assert (q.scale > 0).all()


def test_multiples_of_one_step_are_exact() -> None:
    w = np.arange(-127, 129, dtype=np.float32).clip(-127, 127).reshape(1, 256) * np.float32(0.25)
    q = quantise(w, "w8")
    assert np.array_equal(dequantise(q.values, q.scale)[:1], w)


def test_a_row_of_zeros_and_one_of_dust_become_zeros_with_scale_one() -> None:
    w = np.zeros((2, 32), np.float32)
    w[1] = 1e-40
    q = quantise(w, "w4")
    assert not q.values.any()
    assert q.scale[0, :2].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_refused(bad: float) -> None:
    w = random_matrix(4, 32)
    w[2, 7] = bad
    with pytest.raises(ValueError, match="not finite"):
        quantise(w, "w4")


def test_padding_is_zero_weights() -> None:
    q = quantise(random_matrix(70, 50), "w4")
    assert q.values.shape == (128, 64)
    assert q.scale.shape == (1, 128)
    assert not q.values[70:].any()
    assert not q.values[:, 50:].any()


def test_every_tile_has_its_own_scale() -> None:
    w = np.concatenate([np.full((64, 32), 0.7), np.full((64, 32), 70.0)], axis=1).astype(np.float32)
    q = quantise(w, "w8", 32)
    assert q.scale.shape == (2, 64)
    np.testing.assert_allclose(q.scale[:, 0], [0.7 / 127, 70.0 / 127], rtol=1e-6)


@pytest.mark.parametrize("fmt", ["w4", "w8"])
def test_rows_are_rounded_alike_in_any_slice(fmt: str) -> None:
    w = random_matrix(192, 96)
    whole = quantise(w, fmt)  # type: ignore[arg-type]
    part = quantise(w[64:128].copy(), fmt)  # type: ignore[arg-type]
    assert np.array_equal(part.values, whole.values[64:128])
    assert np.array_equal(part.scale, whole.scale[:, 64:128])


# K tiles and certificates


@pytest.mark.parametrize(
    ("k", "wanted", "longest", "expected"),
    [
        (1536, None, 2048, 1536),
        (4608, None, 2048, 1536),
        (2048, 512, 2048, 512),
        (1536, 512, 2048, 512),
        (1536, 256, 2048, 256),
        (1536, 1535, 2048, 768),
        (96, 64, 2048, 32),
        (32, None, 2048, 32),
    ],
)
def test_the_widest_equal_tile_is_chosen(k: int, wanted: int | None, longest: int, expected: int) -> None:
    assert choose_tile(k, wanted, longest) == expected


@given(st.integers(1, 200), st.integers(32, 4096), st.integers(32, 4096))
@quick
def test_tiles_divide_k_in_multiples_of_32_within_the_limits(blocks: int, wanted: int, longest: int) -> None:
    tile = choose_tile(32 * blocks, wanted, longest)
    assert (32 * blocks) % tile == 0
    assert tile % 32 == 0
    assert tile <= min(wanted, longest)


def test_columns_that_would_overflow_get_a_shorter_tile() -> None:
    """All weights 7: a part of K may hold at most 585 of them, so 2048 is cut in four."""
    q = quantise_certified(np.ones((64, 2048), np.float32))
    assert q.tile == 512
    assert certificate(q.values, 512).tolist() == [[7 * 7 * 512, 8 * 7 * 512]] * 4


def test_ordinary_columns_keep_the_full_tile() -> None:
    assert quantise_certified(random_matrix(64, 1024) * 0.02).tile == 1024


@given(arrays(np.int8, (4, 64), elements=st.integers(-8, 7)), arrays(np.int8, 64, elements=st.integers(-128, 127)))
@quick
def test_the_correction_completes_the_product_of_split_activations(w: NDArray[np.int8], a: NDArray[np.int8]) -> None:
    weights, high, low = w.astype(np.int32), a.astype(np.int32) >> 4, (a.astype(np.int32) & 15) - 8
    split = 16 * weights @ high + weights @ low + correction(w, 64)[0]
    assert np.array_equal(split, weights @ a.astype(np.int32))


@given(arrays(np.int8, (4, 96), elements=st.integers(-8, 7)), arrays(np.int8, 96, elements=st.integers(-8, 7)))
@quick
def test_no_product_of_nibbles_exceeds_the_certificate(w: NDArray[np.int8], a: NDArray[np.int8]) -> None:
    products = w.astype(np.int32) * a.astype(np.int32)
    for tile, (upper, lower) in enumerate(certificate(w, 32)):
        sums = products[:, 32 * tile : 32 * tile + 32].sum(axis=1)
        assert sums.max() <= upper
        assert sums.min() >= -lower


# bfloat16


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.0, 0x3F80), (-2.5, 0xC020), (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82), (1 + 2**-8 + 2**-20, 0x3F81)],
)
def test_bfloat16_rounds_to_nearest_even(value: float, bits: int) -> None:
    assert to_bf16(np.array([value], np.float32)).tolist() == [bits]


def test_bfloat16_bits_survive_float32() -> None:
    bits = np.array([b for b in range(1 << 16) if b & 0x7F80 != 0x7F80], np.uint16)
    assert np.array_equal(to_bf16(from_bf16(bits)), bits)


def test_round_up() -> None:
    assert [round_up(n, 64) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]
