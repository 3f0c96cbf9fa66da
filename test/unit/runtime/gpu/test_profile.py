"""Shapes that an engine is built for, by the bindings of its inputs."""

from pathlib import Path

from onnx import TensorProto, helper
import pytest

from support.save_network import save_network, save_pool
from trt_ros.engine.builder.onnx_check import read_network
from trt_ros.engine.builder.profiles import resolve_profiles
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.runtime.gpu.profile import build_options_of
from trt_ros.runtime.options import PipelineOptions

N, SIZE = -1, (8, 12)


def built(path, bindings, batch=1):
    """Return the smallest and largest shapes of the dynamic inputs of an engine."""
    found = build_options_of(
        PipelineOptions(model_path=str(path), inputs=bindings, input_size=SIZE), batch
    )
    inputs, _, metadata = read_network(Path(path))
    profiles = resolve_profiles(
        inputs, found.profiles, metadata=metadata, input_size=found.input_size, batch=found.batch
    )
    return {each.name: (each.low, each.high) for profile in profiles for each in profile}


@pytest.fixture
def shapes_of(tmp_path):
    """Return those of a network with these inputs, and an output like each of them."""

    def shapes_of(bindings, batch=1, **shapes):
        inputs = {
            name: ['n' if size < 0 else size for size in shape] for name, shape in shapes.items()
        }
        inputs = {name: [TensorProto.FLOAT, shape] for name, shape in inputs.items()}
        path = save_network(
            tmp_path / 'network.onnx',
            [helper.make_node('Identity', [name], [f'{name} out']) for name in inputs],
            inputs,
            {f'{name} out': shape for name, shape in inputs.items()},
        )
        return built(path, bindings, batch)

    return shapes_of


@pytest.mark.parametrize(
    ('shape', 'binding', 'want'),
    [
        ((2, N, 8), 'x=state:x out', ((2, 1, 8), (2, 1, 8))),
        ((N, N), 'x=noise:normal', ((1, 1), (1, 1))),
        ((N, 2), 'x=counter:0', ((1, 2), (1, 2))),
        ((N, 5, 2), 'x=tensor:x?history=5', ((1, 5, 2), (1, 5, 2))),
        ((N, N, 2), 'x=tensor:x?capacity=1,64', ((1, 1, 2), (1, 64, 2))),
        ((N,), 'x=scan:scan#ranges?capacity=90', ((1,), (90,))),
        ((N,), 'x=constant:1,2,3', ((3,), (3,))),
        ((1, N), 'x=constant:7', ((1, 1), (1, 1))),
        ((N, 4), 'x=constant:7', ((1, 4), (1, 4))),
        ((N, 3, N, N), 'x=image:front', ((1, 3, *SIZE), (1, 3, *SIZE))),
        ((N, 3, N, N), 'x=image:front?input_size=4,6', ((1, 3, 4, 6), (1, 3, 4, 6))),
        ((N, 3, 8, 12), 'x=images:a,b,c', ((3, 3, *SIZE), (3, 3, *SIZE))),
        ((N, N, 3, N, N), 'x=images:a,b', ((1, 2, 3, *SIZE), (1, 2, 3, *SIZE))),
        ((N, 2, 8, 12, 3), 'x=images:a,b', ((1, 2, *SIZE, 3), (1, 2, *SIZE, 3))),
        ((2, 3, 8, 12), 'x=images:a,b', None),
        ((N, 6, N, N), 'x=images:a,b', ((1, 6, *SIZE), (1, 6, *SIZE))),
        ((N, 3, N, N), 'x=image:front?held=true', ((1, 3, *SIZE), (1, 3, *SIZE))),
        ((N, N, 3, N, N), 'x=image:front?history=2', ((1, 2, 3, *SIZE), (1, 2, 3, *SIZE))),
        ((N, 8, 12, 3), 'x=image:front?history=4', ((4, 8, 12, 3), (4, 8, 12, 3))),
    ],
)
def test_an_engine_is_built_for_the_shapes_of_its_bindings(shapes_of, shape, binding, want):
    found = shapes_of((binding, 'y=tensor:y'), x=shape, y=(1, 4))
    assert found == ({} if want is None else {'x': want})


def test_inputs_without_bindings_have_the_defaults_of_the_builder(shapes_of):
    assert shapes_of((), batch=4, x=(N, 3, N, N)) == {'x': ((1, 3, *SIZE), (4, 3, *SIZE))}
    assert shapes_of((), batch=4, x=(1, 3, 8, 12)) == {}
    bindings = ('x=image:front', 'y=tensor:y')
    found = shapes_of(bindings, batch=4, x=(N, 3, 8, 12), y=(N, 4))
    assert found == {'x': ((1, 3, *SIZE), (4, 3, *SIZE)), 'y': ((1, 4), (4, 4))}


def test_one_binding_may_serve_all_inputs(shapes_of):
    found = shapes_of(('*=tensor:tensors', 'y=state:y out'), x=(N, 3), y=(N, 4), z=(1, 2))
    assert found == {'y': ((1, 4), (1, 4)), 'x': ((1, 3), (1, 3))}
    assert shapes_of(('*=tensor:tensors',), x=(1, 3)) == {}


def test_a_mask_is_as_large_as_the_input_of_its_rows(tmp_path):
    path = save_pool(tmp_path / 'pool.onnx')
    inputs = ('valid=mask:points', 'points=tensor:points?capacity=64', 'count=count:points')
    assert built(path, inputs) == {'points': ((1, 1, 2), (1, 64, 2)), 'valid': ((1, 1), (1, 64))}


@pytest.mark.parametrize(
    ('binding', 'error', 'problem'),
    [
        ('x=tensor:x', ParameterError, r'capacity='),
        ('x=tensor:x?capacity=3,4', ParameterError, 'dimensions .* is 1'),
        ('x=tensor:x?history=3', TensorMismatchError, 'cannot be known'),
        ('x=state:y', ParameterError, "no output 'y'"),
    ],
)
def test_bindings_that_do_not_fit_fail_before_the_build(shapes_of, binding, error, problem):
    with pytest.raises(error) as caught:
        shapes_of((binding, 'y=tensor:y'), x=(1, 3, N), y=(1,))
    assert caught.match(problem)
