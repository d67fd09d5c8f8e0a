"""Random draws: published test vectors, distributions, and correlations."""

import numpy as np
import pytest
from scipy import stats

from idleband.kernels.rng import (
    CONTEXTS,
    POLICY,
    STATES,
    STREAMS,
    beta,
    fill_uniform,
    gamma,
    next_word,
    normal,
    normals,
    python_normals,
    stream,
    streams,
    uniform,
)

N = 100_000


def test_words_equal_published_vectors() -> None:
    """The first outputs of SplitMix64 with seed 1234567 and its usual step, as published on Rosetta Code."""
    rng = np.array([1234567, 0x9E3779B97F4A7C15], np.uint64)
    words = [int(next_word(rng)) for _ in range(5)]
    assert words == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_stream_depends_on_seed_replication_and_name() -> None:
    assert (stream(1, 2, STATES) == stream(1, 2, STATES)).all()
    names = [(1, 2, STATES), (2, 2, STATES), (1, 3, STATES), (1, 2, CONTEXTS), (1, 2, POLICY)]
    assert len({tuple(stream(*name).tolist()) for name in names}) == len(names)


def test_streams_of_a_replication_equal_single_streams() -> None:
    rng = np.random.default_rng(0)
    pairs = [(seed, replication) for seed in (0, 1, 11, 2**32 - 1, 2**32, 2**63 - 1) for replication in (0, 1, 999_999)]
    pairs += [(int(rng.integers(2**63)), int(rng.integers(2**32))) for _ in range(100)]
    for seed, replication in [*pairs, (2**70, 3), (5, 2**33)]:
        found = streams(seed, replication)
        assert found.shape == (STREAMS, 2)
        assert [row.tolist() for row in found] == [stream(seed, replication, i).tolist() for i in range(STREAMS)]


def test_normals_of_several_generators_equal_single_draws() -> None:
    one, other = np.array([stream(3, i, POLICY) for i in range(5)]), np.array([stream(3, i, POLICY) for i in range(5)])
    assert normals(one, 7).tolist() == [python_normals(rng, 7) for rng in other]
    assert (one == other).all()


def test_steps_are_odd_and_irregular() -> None:
    for i in range(200):
        step = int(stream(0, i, STATES)[1])
        assert step % 2 == 1
        assert (step ^ (step >> 1)).bit_count() >= 24


def test_fill_uniform_equals_single_draws() -> None:
    a, b = stream(0, 0, STATES), stream(0, 0, STATES)
    out = np.zeros(77)
    fill_uniform(a, out)
    assert out.tolist() == [uniform(b) for _ in range(77)]
    assert (a == b).all()


DRAWS = {
    "uniform": (lambda rng: uniform(rng), stats.uniform()),
    "normal": (lambda rng: normal(rng), stats.norm()),
    "gamma(0.3)": (lambda rng: gamma(rng, 0.3), stats.gamma(0.3)),
    "gamma(1)": (lambda rng: gamma(rng, 1.0), stats.gamma(1.0)),
    "gamma(7.5)": (lambda rng: gamma(rng, 7.5), stats.gamma(7.5)),
    "beta(1, 1)": (lambda rng: beta(rng, 1.0, 1.0), stats.beta(1, 1)),
    "beta(2.5, 40)": (lambda rng: beta(rng, 2.5, 40.0), stats.beta(2.5, 40)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_their_distribution(name: str) -> None:
    """Kolmogorov-Smirnov test at level 1e-6 with a fixed seed."""
    draw, distribution = DRAWS[name]
    rng = stream(0, 0, POLICY)
    sample = np.array([draw(rng) for _ in range(N // 4)])
    assert stats.kstest(sample, distribution.cdf).pvalue > 1e-6


def test_uniform_draws_are_not_correlated() -> None:
    """Correlations at several lags and between two streams are within 5 / sqrt(n) of zero."""
    a, b = np.zeros(N), np.zeros(N)
    fill_uniform(stream(0, 0, STATES), a)
    fill_uniform(stream(0, 1, STATES), b)
    pairs = [(a[:-lag], a[lag:]) for lag in (1, 2, 8, 10, 80)] + [(a, b)]
    for x, y in pairs:
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / np.sqrt(len(x))
    assert a.min() >= 0
    assert a.max() < 1
