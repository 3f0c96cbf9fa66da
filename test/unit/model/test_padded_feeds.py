"""Inputs padded to a capacity, with the masks and counts of their rows, on the CPU."""

import numpy as np
import pytest

from support.fake_runner import open_echo
from support.save_network import save_pool
from trt_ros.errors import CapacityError, ParameterError, TensorMismatchError
from trt_ros.families.registry import TENSORS
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import TensorSpec, as_shaped, widen

PADDED = ('valid=mask:points', 'points=tensor:points?capacity=8', 'count=count:points')


def tensor(name: str, shape, dtype='float32') -> TensorSpec:
    return TensorSpec(name, shape, dtype, 'input')


def open_inputs(bindings, *specs):
    """Open a pipeline whose network returns its inputs as outputs."""
    return open_echo(specs, bindings)


def test_a_padded_run_with_its_mask_and_count_equals_the_unpadded_one(tmp_path):
    path = save_pool(tmp_path / 'pool.onnx')
    plain = OnnxRuntimeRunner.open(path, threads=1)
    rng = np.random.default_rng(0)
    with Pipeline.open(path, backend='onnxruntime', families=TENSORS, inputs=PADDED) as pipeline:
        assert 'tensor points (1, ?, 2) float32, padded to (1, 8, 2)' in pipeline.log_lines
        assert 'valid: mask of the rows of points' in pipeline.log_lines
        assert 'count: count of the rows of points' in pipeline.log_lines
        for count in (*range(1, 9), 3):
            points = rng.normal(size=(1, count, 2)).astype(np.float32)
            valid = np.ones((1, count), bool)
            want = plain.infer({'points': points, 'valid': valid, 'count': np.array([count])})
            found = pipeline({'points': points})
            np.testing.assert_allclose(found['pooled'], want['pooled'], rtol=1e-5)
        assert not pipeline({'points': points[:, :0]})['pooled'].any()
    plain.close()


def test_an_array_above_the_capacity_is_refused(tmp_path):
    path = save_pool(tmp_path / 'pool.onnx')
    with Pipeline.open(path, backend='onnxruntime', families=TENSORS, inputs=PADDED) as pipeline:
        with pytest.raises(CapacityError, match=r'points came as \(1, 9, 2\)') as caught:
            pipeline({'points': np.zeros((1, 9, 2), np.float32)})
        assert caught.value.kind == 'over capacity'
        with pytest.raises(TensorMismatchError, match=r'came as \(1, 3\)(?s:.*)of that shape'):
            pipeline({'points': np.zeros((1, 3), np.float32)})
        with pytest.raises(TensorMismatchError, match=r"is missing(?s:.*)named 'points'"):
            pipeline({})
        with pytest.raises(TensorMismatchError, match='no image or tensor named valid'):
            points = np.zeros((1, 3, 2), np.float32)
            pipeline({'points': points, 'valid': np.ones((1, 3), bool)})
        with pytest.raises(TensorMismatchError, match=r"named point(?s:.*)Did you mean 'points'"):
            pipeline({'points': points, 'point': points})


@pytest.mark.parametrize(
    ('settings', 'want'),
    [
        ('', [1, 2, 0, 0]),
        ('&pad=-1', [1, 2, -1, -1]),
        ('&pad=inf', [1, 2, np.inf, np.inf]),
        ('&pad=7&scale=10&clip=0,15', [10, 15, 7, 7]),
    ],
)
@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
def test_padding_follows_the_arithmetic(settings, want, dtype):
    with open_inputs(f'x=tensor:x?capacity=4{settings}', tensor('x', (-1,), dtype)) as pipeline:
        for value in (np.array([1, 2]), np.array([1, 2], '>f8')):
            found = pipeline({'x': value})['x out']
            assert (widen(found) if dtype == 'bfloat16' else found).tolist() == want
            # The padding is written where the network reads it.
            assert pipeline.feeds['x'].check(value).shape == (2,)


@pytest.mark.parametrize('shape', [(4,), (1, 4), (4, 1), (1, 1, 4)])
def test_an_input_of_a_fixed_size_is_filled(shape):
    bindings = ('x=scan:scan#ranges?pad=inf&scale=2', 'm=mask:x')
    with open_inputs(bindings, tensor('x', shape), tensor('m', (1, 4), 'bool')) as pipeline:
        spec = pipeline.feeds['x'].array
        for count in (0, 2, 4):
            found = pipeline({'x': as_shaped(np.ones(count), spec)})
            assert found['x out'].shape == shape
            assert found['x out'].ravel().tolist() == [2] * count + [np.inf] * (4 - count)
            assert found['m out'].sum() == count
        with pytest.raises(CapacityError):
            pipeline({'x': as_shaped(np.ones(5), spec)})


def test_a_history_of_sequences_is_filled():
    with open_inputs('x=scan:s#ranges?pad=-1&history=2', tensor('x', (1, 2, 3))) as pipeline:
        assert pipeline({'x': np.array([1, 2])})['x out'].tolist() == [[[1, 2, -1]] * 2]
        found = pipeline({'x': np.array([3])})['x out']
        assert found.tolist() == [[[1, 2, -1], [3, -1, -1]]]


def test_any_dynamic_dimension_is_padded_and_several_take_a_size_each():
    with open_inputs('x=tensor:x?capacity=1,3', tensor('x', (2, -1, -1), 'int32')) as pipeline:
        found = pipeline({'x': np.array([[[1, 2]], [[3, 4]]])})['x out']
        assert found.tolist() == [[[1, 2, 0]], [[3, 4, 0]]]
        with pytest.raises(TensorMismatchError, match=r'takes x \(2, 1, \?\) int32'):
            pipeline({'x': np.zeros((2, 2, 2), int)})
    with open_inputs('x=tensor:x?capacity=2,3', tensor('x', (-1, -1), 'int32')) as pipeline:
        assert pipeline({'x': np.array([[1, 2]])})['x out'].tolist() == [[1, 2, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ('settings', 'dtype', 'want'),
    [
        ('', 'bool', [True, True, False, False]),
        ('', 'int64', [1, 1, 0, 0]),
        ('', 'bfloat16', [1, 1, 0, 0]),
        ('?pad=1', 'bool', [False, False, True, True]),
        ('?pad=-inf', 'float32', [0, 0, -np.inf, -np.inf]),
    ],
)
@pytest.mark.parametrize('shape', [(4,), (-1,), (-1, -1), (1, 1, -1), (-1, 4), (-1, 1)])
def test_masks_have_the_shape_and_words_of_the_network(settings, dtype, want, shape):
    bindings = ('x=tensor:x?capacity=4', f'm=mask:x{settings}')
    with open_inputs(bindings, tensor('x', (1, -1, 3)), tensor('m', shape, dtype)) as pipeline:
        found = pipeline({'x': np.zeros((1, 2, 3), np.float32)})['m out']
        assert (widen(found) if dtype == 'bfloat16' else found).ravel().tolist() == want
        assert all(size in (-1, each) for size, each in zip(shape, found.shape))


@pytest.mark.parametrize('shape', [(), (1,), (-1, 1)])
def test_counts_are_one_number(shape):
    bindings = ('x=scan:scan#ranges?capacity=4&pad=inf', 'n=count:x')
    with open_inputs(bindings, tensor('x', (1, -1)), tensor('n', shape, 'int8')) as pipeline:
        for count in (0, 4):
            found = pipeline({'x': np.zeros((1, count))})['n out']
            assert found.item() == count and len(found.shape) == len(shape)


@pytest.mark.parametrize(
    ('bindings', 'error', 'problem'),
    [
        (('x=tensor:x?capacity=0',), ParameterError, "capacity of .* is '0'"),
        (('x=tensor:x?capacity=4.5',), ParameterError, 'capacity=64'),
        (('x=tensor:x?capacity=2,3',), ParameterError, r'dynamic dimensions \(\?\) is 1'),
        (('x=tensor:x?capacity=999999999',), ParameterError, 'too large'),
        (('x=tensor:x?capacity=4&pad=a',), ParameterError, 'no number'),
        (('x=tensor:x?pad=1',), ParameterError, 'but not capacity'),
        (('m=tensor:m?capacity=4',), ParameterError, 'Leave capacity out'),
        (('b=tensor:b?capacity=4',), ParameterError, 'capacity=1,64'),
        (('b=tensor:b?capacity=2,3', 'n=count:b'), ParameterError, '2 sizes differ'),
        (('m=mask:y',), ParameterError, "that of 'y', which is not"),
        (('m=mask:xx',), ParameterError, "Did you mean 'x'"),
        (('m=mask:x',), ParameterError, 'whose binding sets capacity'),
        (('m=mask:n', 'n=count:x', 'x=tensor:x?capacity=4'), ParameterError, "that of 'n'"),
        (('m=mask:x', 'x=tensor:x?capacity=5'), TensorMismatchError, 'the mask of 5 rows'),
        (('k=mask:x', 'x=tensor:x?capacity=4'), TensorMismatchError, 'the mask of 4 rows'),
        (('m=count:x', 'x=tensor:x?capacity=4'), TensorMismatchError, 'cannot be a count'),
        (('n=count:x', 'x=tensor:x?capacity=300'), TensorMismatchError, 'change the values'),
        (('n=count:x?pad=1', 'x=tensor:x?capacity=4'), ParameterError, r"that of 'x\?pad=1'"),
        (('n=count:',), ParameterError, 'empty source'),
        (('*=mask:x',), ParameterError, r'Invalid binding'),
    ],
)
def test_rejects_bindings_that_do_not_fit(bindings, error, problem):
    named = {
        each[0]: each
        for each in ('x=tensor:x', 'm=tensor:m', 'b=tensor:b', 'n=tensor:n', 'k=tensor:k')
    }
    named |= {each[0]: each for each in bindings}
    specs = (
        tensor('x', (-1,)),
        tensor('m', (4,), 'bool'),
        tensor('b', (-1, -1)),
        tensor('n', (1,), 'int8'),
        tensor('k', (2, -1)),
    )
    with pytest.raises(error) as caught:
        open_inputs(tuple(named.values()), *specs)
    assert caught.match(problem)
