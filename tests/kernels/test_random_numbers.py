"""Random numbers depend on their key and place and on nothing else, and have their distribution."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from resumerge.kernels import draws
from resumerge.kernels.draws import CHUNK, normals, uniforms

N = 1 << 19
GOLDEN = [0.08941394412083774, -0.022867782020700937, -1.00341124103227, 0.7667297381993358]
PLACES = st.integers(0, 3 * CHUNK)


@given(PLACES, PLACES)
def test_a_range_is_the_same_however_it_is_split(one: int, other: int) -> None:
    whole = normals("key", 0, 3 * CHUNK)
    start, stop = sorted((one, other))
    assert np.array_equal(normals("key", start, stop), whole[start:stop])


def test_another_key_draws_others() -> None:
    assert not np.isin(uniforms("a", 0, 1000), uniforms("b", 0, 1000)).any()


def test_the_numbers_stay_what_they_are() -> None:
    """The bits of finished runs depend on these numbers."""
    found = normals("key", CHUNK - 2, CHUNK + 2).tolist()
    assert found == GOLDEN


def test_normals_are_the_inverse_of_the_distribution() -> None:
    share = np.concatenate([uniforms("key", 0, 20_000), [2.0**-33, 1 - 2.0**-33, 0.075, 0.925]])
    exact = np.array([NormalDist().inv_cdf(p) for p in share])
    assert np.abs(draws._normal(share) - exact).max() < 2e-6


def test_uniforms_are_uniform_and_normals_normal() -> None:
    share, normal = uniforms("some", 0, N), normals("some", 0, N)
    assert share.min() > 0.0 and share.max() < 1.0
    counts = np.histogram(share, 64, (0, 1))[0]
    assert float(((counts - N / 64) ** 2 / (N / 64)).sum()) < 63 + 5 * math.sqrt(2 * 63)
    assert abs(normal.mean()) < 5 / math.sqrt(N)
    assert abs(normal.var() - 1) < 5 * math.sqrt(2 / N)
    assert abs((normal[1:] * normal[:-1]).mean()) < 5 / math.sqrt(N)
