"""Counters and noise on the CPU."""

import math

import numpy as np
import pytest

from support.fake_runner import open_fake
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.bindings import parse_bindings
from trt_ros.model.feeds import FEEDS
from trt_ros.model.feeds.base import Given
from trt_ros.model.feeds.numbered import philox
from trt_ros.tensors import TensorSpec, widen

ONES = 0xFFFFFFFF
X = np.array([[10]], np.float32)


def feed(text: str, shape=(1, 1), dtype='float32'):
    (binding,) = parse_bindings((f'k={text}',))
    return FEEDS[binding.kind].bind(binding, TensorSpec('k', shape, dtype, 'input'), ())


def staged(text: str, shape, dtype='float32', run=0):
    return feed(text, shape, dtype).stage(Given(memory=run))[0]


def open_sum(binding):
    """Open a network that adds `k`, by its binding, to x."""
    return open_fake(
        lambda tensors: {'y': tensors['x'] + tensors['k']},
        'x (1, ?); k (1, ?)',
        'y (1, ?)',
        ('x=tensor:x', f'k={binding}'),
    )


@pytest.mark.parametrize('first', [0, 5, -1])
def test_a_counter_counts_the_runs_since_activation_and_since_a_reset(first):
    with open_sum(f'counter:{first}') as pipeline:
        assert 'k: counter of shape (1, 1)' in pipeline.log_lines
        pipeline.warm_up()
        for _ in range(2):
            found = [pipeline({'x': X})['y'].item() - 10 for _ in range(3)]
            assert found == [first, first + 1, first + 2]
            pipeline.reset_state()


def test_noise_is_drawn_in_each_run_and_repeated_after_a_reset():
    with open_sum('noise:normal?seed=7') as pipeline:
        pipeline.warm_up()
        first = [pipeline({'x': 0 * X})['y'].item() for _ in range(4)]
        assert len(set(first)) == 4
        pipeline.reset_state()
        assert [pipeline({'x': 0 * X})['y'].item() for _ in range(4)] == first


@pytest.mark.parametrize(
    ('dtype', 'largest'), [('int8', 127), ('uint8', 255), ('float16', 65504), ('int32', 2**31 - 1)]
)
def test_a_counter_stays_at_the_largest_number(dtype, largest):
    for run in (largest, largest + 1, largest + 1000):
        assert staged('counter:0', (), dtype, run) == largest


@pytest.mark.parametrize(
    ('counter', 'key', 'words'),
    [
        # Known answers of Random123, kat_vectors.
        ((0,) * 4, (0,) * 2, '6627e8d5 e169c58d bc57ac4c 9b00dbd8'),
        ((ONES,) * 4, (ONES,) * 2, '408f276d 41c83b0e a20bc7c6 6d5451fd'),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            'd16cfe09 94fdcceb 5001e420 24126ea1',
        ),
    ],
)
def test_philox_returns_the_published_words(counter, key, words):
    assert ' '.join(f'{word:08x}' for word in philox(counter, key)) == words
    arrays = tuple(np.full(2, each, np.uint64) for each in counter)
    assert [' '.join(f'{w:08x}' for w in each) for each in zip(*philox(arrays, key))] == [
        words
    ] * 2


def moments(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean(dtype=np.float64)), float(values.var(dtype=np.float64))


def largest_distance(values: np.ndarray, cdf) -> float:
    """Return the Kolmogorov-Smirnov statistic, times the root of the number of values."""
    want = np.array([cdf(each) for each in np.sort(values.ravel()).tolist()])
    ranks = np.arange(values.size + 1) / values.size
    found = max((ranks[1:] - want).max(), (want - ranks[:-1]).max())
    return float(found) * math.sqrt(values.size)


@pytest.mark.parametrize('run', [0, 1, 1 << 40])
@pytest.mark.parametrize('seed', [0, 7])
def test_normal_noise_is_normal(run, seed):
    values = staged(f'noise:normal?seed={seed}', (100, 1000), run=run)
    mean, variance = moments(values)
    assert abs(mean) < 0.012 and abs(variance - 1) < 0.018  # 4 standard deviations.
    # Exceeded by one in 1000 samples.
    assert largest_distance(values, lambda x: (1 + math.erf(x / math.sqrt(2))) / 2) < 1.95
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.013
    assert 3.9 < np.abs(values).max() < 5.8


@pytest.mark.parametrize('dtype', ['float32', 'float64', 'float16', 'bfloat16'])
def test_uniform_noise_is_uniform_and_below_1(dtype):
    values = staged('noise:uniform?seed=7', (100, 1000), dtype)
    values = (widen(values) if dtype == 'bfloat16' else values).astype(np.float64)
    assert values.min() >= 0 and values.max() < 1
    # The numbers lie at the lower ends of equal parts.
    half_a_part = {'float16': 2**-12, 'bfloat16': 2**-9}.get(dtype, 0)
    mean, variance = moments(values + half_a_part)
    assert abs(mean - 0.5) < 0.0037 and abs(variance - 1 / 12) < 0.001
    if not half_a_part:
        assert largest_distance(values, lambda x: x) < 1.95


def test_narrow_noise_is_the_rounded_wide_noise_and_that_of_other_runs_another():
    wide = staged('noise:normal?seed=3', (1000,))
    assert np.array_equal(staged('noise:normal?seed=3', (1000,), 'float64'), wide)
    assert np.array_equal(
        staged('noise:normal?seed=3', (1000,), 'float16'), wide.astype(np.float16)
    )
    narrow = widen(staged('noise:normal?seed=3', (1000,), 'bfloat16'))
    np.testing.assert_allclose(narrow, wide, rtol=2**-8)
    found = [
        staged(f'noise:uniform?seed={seed}', (50,), run=run).tobytes()
        for seed in (0, 1, 1 << 32, (1 << 64) - 1)
        for run in (0, 1, 1 << 32)
    ]
    assert len(set(found)) == len(found)
    assert staged('noise:uniform', (50,)).tobytes() == found[0]


@pytest.mark.parametrize(
    ('text', 'said'),
    [
        ('counter:', 'does not begin with an integer'),
        ('counter:one', 'does not begin with an integer'),
        ('counter:1.5', 'does not begin with an integer'),
        (f'counter:{"9" * 5000}', 'does not begin with an integer'),
        ('noise:', "Unknown distribution ''"),
        ('noise:gauss', "Unknown distribution 'gauss'"),
        ('noise:normal?sead=7', "Unknown setting 'sead'"),
        ('noise:normal?seed=-1', "seed of the network input 'k' is '-1'"),
        ('noise:normal?seed=1.5', "seed of the network input 'k' is '1.5'"),
        (f'noise:normal?seed={1 << 64}', 'seed of the network input'),
    ],
)
def test_a_malformed_binding_is_refused(text, said):
    with pytest.raises(ParameterError, match=said) as caught:
        feed(text)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ('text', 'dtype'),
    [
        ('counter:0', 'bool'),
        ('counter:0', 'object'),
        ('counter:128', 'int8'),
        ('counter:-1', 'uint8'),
        ('counter:65505', 'float16'),
        (f'counter:{1 << 63}', 'uint64'),
        ('noise:normal', 'int32'),
        ('noise:uniform', 'bool'),
        ('noise:uniform', 'object'),
    ],
)
def test_an_input_that_cannot_hold_the_numbers_is_refused(text, dtype):
    with pytest.raises(TensorMismatchError, match='cannot hold') as caught:
        feed(text, dtype=dtype)
    assert caught.value.remedy


def test_a_counter_fills_any_shape_and_dtype_and_does_not_count_refused_runs():
    for dtype in ('int8', 'int32', 'int64', 'float16', 'float64'):
        found = staged('counter:3', (2, -1, 3), dtype, run=4)
        assert found.dtype == dtype and found.tolist() == np.full((2, 1, 3), 4).tolist()
    assert widen(staged('counter:3', (2,), 'bfloat16', run=3)).tolist() == [3, 3]
    with open_sum('counter:0') as pipeline:
        with pytest.raises(TensorMismatchError):
            pipeline({'x': np.zeros((2, 2, 2), np.float32)})
        assert pipeline({'x': X})['y'].item() == 10
