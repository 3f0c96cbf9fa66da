"""Counters, noise and copies of the GPU equal those of NumPy; the kernels run on the CPU."""

from contextlib import ExitStack
import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from support.memory import FETCHES, array_at, copied, copies_of_all_sizes, fetched
from support.numbers_on_cpu import NumbersOnCpu
from trt_ros.cuda.copies import SMALL_COPY_NBYTES, copy_all, fetch
from trt_ros.cuda.device import open_gpu
from trt_ros.cuda.memory import Account
from trt_ros.model.bindings import parse_bindings
from trt_ros.model.feeds import FEEDS
from trt_ros.model.feeds.base import Given
from trt_ros.runtime.gpu.inputs import INPUTS
from trt_ros.tensors import TensorSpec, numpy_dtype

FLOATS = ('float32', 'float16', 'bfloat16', 'float64')
INTEGERS = ('int8', 'uint8', 'int16', 'int32', 'int64', 'uint64')


@pytest.fixture(scope='module')
def kernels():
    return NumbersOnCpu()


@pytest.fixture
def launch(kernels):
    def launch(function, grid, block, argument, stream):
        kernels.launch(function, grid, block, ctypes.addressof(argument))

    return launch


@pytest.fixture
def assert_equal_runs(launch, cuda):
    """Compare runs of a binding with `Feed.stage`, and what lies behind the input."""

    def assert_equal_runs(text, dtype, shape, runs=3):
        (binding,) = parse_bindings((f'k={text}',))
        spec = TensorSpec('k', shape, dtype, 'input')
        feed = FEEDS[binding.kind].bind(binding, spec, ())
        with open_gpu(0).context, ExitStack() as undo:
            ours = INPUTS[type(feed)]('k', feed, 0, Account(), undo)
            batch = SimpleNamespace(kernels=SimpleNamespace(launch=launch))
            before, after = ours.before(batch, (), None), ours.after(batch)
            found = array_at(ours.memory.ptr, ours.shape(1, {}), numpy_dtype(spec.dtype))
            for _ in range(2):
                ours.reset(0, None)
                memory = feed.initial()
                for _ in range(runs):
                    before(0)
                    want, _ = feed.stage(Given(memory=memory))
                    assert found.tobytes() == want.tobytes()
                    after(0)
                    memory = feed.keep({}, memory, want)

    return assert_equal_runs


@pytest.mark.parametrize('dtype', [*FLOATS, *INTEGERS])
@pytest.mark.parametrize('shape', [(), (3, 5), (-1, 257)])
def test_counters_are_equal(assert_equal_runs, dtype, shape):
    assert_equal_runs('counter:5', dtype, shape)


@pytest.mark.parametrize(
    ('first', 'dtype'),
    [
        (126, 'int8'),
        (254, 'uint8'),
        (-2, 'int64'),
        ((1 << 63) - 2, 'int64'),
        (65503, 'float16'),
        (2047, 'float16'),
        ((1 << 24) - 1, 'float32'),
        ((1 << 53) + 1, 'float64'),
        (123456789, 'bfloat16'),
    ],
)
def test_counters_that_the_dtype_rounds_or_ends_are_equal(assert_equal_runs, first, dtype):
    # A counter stays at the largest number, where it ends here after one run.
    assert_equal_runs(f'counter:{first}', dtype, (2,), runs=2)


@pytest.mark.parametrize('dtype', FLOATS)
@pytest.mark.parametrize('distribution', ['normal', 'uniform'])
@pytest.mark.parametrize('shape', [(), (1, 7), (3, 40, 41)])
def test_noise_is_equal(assert_equal_runs, dtype, distribution, shape):
    assert_equal_runs(f'noise:{distribution}?seed={(1 << 63) + 12345}', dtype, shape)


def test_much_noise_is_equal(assert_equal_runs):
    assert_equal_runs('noise:normal?seed=7', 'float32', (1 << 19,), runs=1)


def test_copies_write_their_bytes_alone(launch, cuda):
    copies, nbytes = copies_of_all_sizes(SMALL_COPY_NBYTES)
    # As CUDA allocates it, of addresses that are multiples of 256.
    memory = np.zeros(2 * nbytes + 256, np.uint8)
    first = -memory.ctypes.data % 256
    source, target = (memory[start : start + nbytes] for start in (first, first + nbytes))
    source[:] = np.random.default_rng(1).integers(1, 256, nbytes)
    at = [(target.ctypes.data + to, source.ctypes.data + start, n) for to, start, n in copies]
    with open_gpu(0).context:
        copy_all(SimpleNamespace(launch=launch), at, 0)
    assert target.tobytes() == copied(copies, source).tobytes()
    assert cuda.calls['cudaMemcpyAsync'] == sum(n > SMALL_COPY_NBYTES for *_, n in copies) > 0


@pytest.mark.parametrize(('start', 'to', 'blocks'), FETCHES.values(), ids=FETCHES)
def test_an_image_is_fetched_from_where_its_address_says(launch, start, to, blocks):
    image = np.random.default_rng(1).integers(1, 256, 1 << 18, np.uint8)[start:]
    word, target = np.array([image.ctypes.data], np.uint64), np.zeros(1 << 17, np.uint8)
    fetch(SimpleNamespace(launch=launch), target.ctypes.data + to, word.ctypes.data, blocks, 0)
    want = fetched(image, blocks)
    assert target[to : to + want.size].tobytes() == want.tobytes()
    assert not target[:to].any() and not target[to + want.size :].any()
