"""RMS norm against float64 (M-11)."""

from __future__ import annotations

import numpy as np
import numpy_network
from hypothesis import given, settings
from hypothesis import strategies as st

from ling3.linear.pool import Pool
from ling3.model.norm import rms_norm

POOL = Pool(1)


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 200), st.floats(1e-6, 1e-2), st.floats(1e-5, 1e5), st.integers(0, 2**32))
def test_rms_norm(rows: int, width: int, eps: float, size: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, width), np.float32) * np.float32(size)
    weight = random.standard_normal(width, np.float32)
    wanted = numpy_network.rms(x.astype(np.float64), weight.astype(np.float64), eps)
    np.testing.assert_allclose(rms_norm(POOL, x, weight, eps), wanted, rtol=1e-5, atol=1e-12)


def test_row_of_zeros_stays_zero() -> None:
    assert rms_norm(POOL, np.zeros((1, 4), np.float32), np.ones(4, np.float32), 1e-6).tolist() == [[0, 0, 0, 0]]
