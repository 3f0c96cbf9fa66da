"""Options that make no sense, and shapes for dynamic inputs."""

import pytest

from trt_ros.engine.builder.profiles import (
    largest_batch,
    metadata_hw,
    resolve_profiles,
    sizes_without_effect,
)
from trt_ros.engine.options import BuildOptions, ShapeRange
from trt_ros.errors import ModelError, ParameterError
from trt_ros.tensors import TensorSpec


def spec(*shape, name='x'):
    return TensorSpec(name, shape, 'float32', 'input')


def settle(*inputs, asked=(), metadata=None, input_size=(), batch=1):
    return resolve_profiles(
        inputs, asked, metadata=metadata or {}, input_size=input_size, batch=batch
    )


@pytest.mark.parametrize(
    ('inputs', 'best'),
    [
        (spec(-1, 3, 8, 8), (1, 3, 8, 8)),
        (spec(-1, 3, -1, -1), (1, 3, 640, 640)),
        (spec(1, -1, -1, 3), (1, 640, 640, 3)),
        (spec(-1, -1, -1, -1), (1, 3, 640, 640)),
        (spec(-1, 9), (1, 9)),
    ],
)
def test_batch_and_size_of_images_have_defaults(inputs, best):
    ((only,),) = settle(inputs)
    assert only == ShapeRange('x', best, best, best)


def test_dynamic_batch_ranges_from_1_to_requested_maximum_the_largest_of_all_profiles():
    ((image, sizes),) = settle(spec(-1, 3, 8, 8), spec(-1, 2, name='sizes'), batch=8)
    assert image == ShapeRange('x', (1, 3, 8, 8), (8, 3, 8, 8), (8, 3, 8, 8))
    assert sizes == ShapeRange('sizes', (1, 2), (8, 2), (8, 2))
    ((fixed,),) = settle(spec(1, 3, -1, -1), input_size=(8, 16), batch=8)
    assert fixed == ShapeRange('x', (1, 3, 8, 16), (1, 3, 8, 16), (1, 3, 8, 16))
    assert settle(spec(1, 3, 8, 8), batch=8) == ()
    small, large = (ShapeRange('x', (1, 3), (1, 3), (n, 3)) for n in (2, 8))
    assert largest_batch((spec(-1, 3),), ((small,), (large,))) == 8
    assert largest_batch((spec(4, 3),), ()) == 4
    assert largest_batch((spec(),), ()) == 1


def test_size_comes_from_option_then_metadata_then_640():
    def best(imgsz, **options):
        ((image,),) = settle(spec(1, 3, -1, -1), metadata={'imgsz': imgsz}, **options)
        return image.best

    assert best('[320, 416]') == (1, 3, 320, 416)
    assert best('[320, 416]', input_size=(8, 16)) == (1, 3, 8, 16)
    assert best('nonsense') == (1, 3, 640, 640)


def test_profiles_of_unknown_other_or_too_large_inputs_are_refused():
    with pytest.raises(ParameterError, match=r'names the unknown input y(?s:.*)x \(\?\)'):
        settle(spec(-1), asked=((ShapeRange('y', (1,), (1,), (1,)),),))
    with pytest.raises(ParameterError, match=r'profile shape \(1, 4\) does not match the input x'):
        settle(spec(-1, 3), asked=((ShapeRange('x', (1, 4), (1, 4), (1, 4)),),))
    fixed = TensorSpec('x', (1, 3, 2**31, 2**31), 'float32', 'input')
    dynamic = TensorSpec('x', (1, 3, -1, -1), 'float32', 'input')
    for each, metadata in ((fixed, {}), (dynamic, {'imgsz': '[1000000000, 1000000000]'})):
        with pytest.raises(ModelError, match=r'The input x .* is too large'):
            resolve_profiles([each], (), metadata=metadata, input_size=())


def test_inputs_that_a_profile_lacks_have_their_defaults():
    asked = ShapeRange('x', (1, 1), (1, 5), (1, 9))
    inputs = spec(-1, -1), spec(-1, 3, name='z')
    assert settle(*inputs, asked=((asked,),), batch=4) == (
        (asked, ShapeRange('z', (1, 3), (4, 3), (4, 3))),
    )
    with pytest.raises(ParameterError, match=r'z \(1, \?\) float32 has dynamic(?s:.*)capacity='):
        settle(inputs[0], spec(1, -1, name='z'), asked=((asked,),))


@pytest.mark.parametrize(
    ('low', 'best', 'high'),
    [((2,), (1,), (3,)), ((1,), (3,), (2,)), ((0,), (1,), (1,)), ((1,), (1, 1), (1,))],
)
def test_rejects_profile_that_is_not_a_range(low, best, high):
    with pytest.raises(ParameterError, match='Invalid profile'):
        ShapeRange('x', low, best, high)


@pytest.mark.parametrize(
    ('values', 'said'),
    [
        ({'precision': 'int8'}, 'precision'),
        ({'io_dtypes': 'x'}, 'io_dtypes'),
        ({'hardware_compatible': 'x'}, 'hardware_compatible'),
        ({'optimization_level': 6}, 'optimization_level'),
        ({'weight_streaming_budget_mib': -1}, 'weight_streaming_budget_mib'),
        ({'avg_timing_iterations': 0}, 'avg_timing_iterations is 0'),
        ({'input_size': (0, 4)}, 'input_size'),
        ({'fp32': ('Conv',)}, 'fp32 has no effect with precision'),
        ({'tactics': ('0xab=5',)}, 'tactics has no effect'),
        (
            {'tactics': ('0xab=5',), 'editable_timing_cache': True, 'timing_cache': False},
            'tactics has no effect',
        ),
    ],
)
def test_options_out_of_range_or_without_effect_are_refused(values, said):
    with pytest.raises(ParameterError, match=said):
        BuildOptions(**values)


@pytest.mark.parametrize(
    'imgsz',
    [
        '',
        '640',
        '[1e999, 1e999]',
        '[nan, 1]',
        '[0, 0]',
        '[-1, 640]',
        '[' * 5000,
        '9' * 5000,
        '["a", "b"]',
        '{}',
        '\0',
    ],
)
def test_invalid_image_size_in_metadata_is_ignored(imgsz):
    assert metadata_hw({'imgsz': imgsz}) is None


@pytest.mark.parametrize(
    ('shape', 'said'),
    [
        ((1, 3, 8, 8), ['batch 4: the batch size', 'input_size: the image size']),
        ((-1, 3, 8, 8), ['input_size: the image size']),
        ((1, 3, -1, 8), ['batch 4: the batch size']),
        ((-1, 3, -1, -1), []),
        ((-1, 8), ['input_size: the image size']),
    ],
)
def test_sizes_that_no_input_has_are_reported(shape, said):
    found = sizes_without_effect([spec(*shape)], BuildOptions(batch=4, input_size=(8, 8)))
    assert [line.removesuffix(' of the model is fixed') for line in found] == said
    assert sizes_without_effect([spec(*shape)], BuildOptions()) == []
