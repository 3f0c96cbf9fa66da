"""Held images, and histories of images, on the CPU."""

from collections import deque

import numpy as np
import pytest

pytest.importorskip('rclpy')

from support.fake_runner import open_echo
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families.registry import TENSORS
from trt_ros.model.bindings import parse_bindings
from trt_ros.model.run_inputs import example_inputs
from trt_ros.nodes.detector import DetectorNode
from trt_ros.tensors import TensorSpec, widen
from trt_ros.vision.frame import Frame


def frame(seed: int, channels: int = 3, encoding: str = 'bgr8') -> Frame:
    pixels = np.random.default_rng(seed).integers(0, 256, (10, 14, channels), np.uint8)
    return Frame.from_pixels(pixels, encoding)


def open_images(bindings, shapes, dtype='float32', families=TENSORS):
    """Open a pipeline whose network returns its inputs, which are kept in a list, too."""
    seen = []
    inputs = [TensorSpec(name, shape, dtype, 'input') for name, shape in shapes.items()]
    return open_echo(inputs, bindings, families, seen.append), seen


@pytest.mark.parametrize('dtype', ['float32', 'float16', 'uint8'])
def test_a_held_image_is_preprocessed_when_it_changes(dtype):
    settings = '' if dtype == 'uint8' else '&mean=0.5&std=0.25'
    bindings = (f'goal=image:goal?held=true{settings}', f'x=image:x?resize=auto{settings}')
    shapes = dict.fromkeys(('goal', 'x'), (-1, 3, 8, 8))
    pipeline, seen = open_images(bindings, shapes, dtype)
    with pipeline:
        assert 'held' not in pipeline.preprocess.resize
        for goal in (frame(1), frame(2)):
            for number in range(3):
                found = pipeline({'goal': goal, 'x': goal if number == 2 else frame(9)})
                assert seen[-1]['goal'] is seen[-1 - number]['goal']
            assert found['goal out'].tobytes() == found['x out'].tobytes()
        pipeline(example_inputs(pipeline.feeds))


@pytest.mark.parametrize(
    ('settings', 'shape'), [('held=true', (1, 3, 8, 8)), ('history=2', (1, 2, 3, 8, 8))]
)
def test_images_become_bfloat16(settings, shape):
    shapes = {'x': shape, 'y': (1, 2)}
    bindings = (f'x=image:x?{settings}&mean=0.5&std=0.25', 'y=tensor:y')
    pipeline, _ = open_images(bindings, shapes, 'bfloat16')
    with pipeline:
        pixels = np.full((8, 8, 3), 51, np.uint8)
        found = pipeline({'x': pixels, 'y': np.zeros((1, 2))})['x out']
        np.testing.assert_allclose(widen(found), (0.2 - 0.5) / 0.25, rtol=4e-3)


def test_a_stack_and_a_fourth_channel_are_held():
    bindings = ('x=tensor:x', 'a=images:left,right?held=true', 'b=image:color,depth?held=true')
    shapes = {'x': (1, 2), 'a': (1, 2, 3, 8, 8), 'b': (1, 4, 8, 8)}
    pipeline, _ = open_images(bindings, shapes)
    with pipeline:
        images = [frame(1), frame(2)]
        color = [frame(1), frame(3, 1, 'mono8')]
        found = pipeline({'x': np.zeros((1, 2), np.float32), 'a': images, 'b': color})
        assert found['a out'][0, 0].tobytes() == found['b out'][0, :3].tobytes()
        with pytest.raises(TensorMismatchError, match="'a' takes 2 images, but got 1"):
            pipeline({'x': np.zeros((1, 2), np.float32), 'a': images[:1], 'b': color})


@pytest.mark.parametrize('shape', [(1, 3, 3, 8, 12), (-1, 3, 8, 12, 3), (3, 3, 8, 12)])
@pytest.mark.parametrize('settings', ['', '&order=newest', '&fill=zeros'])
def test_a_history_of_images_is_the_last_ones(shape, settings):
    bindings = (f'x=image:camera?history=3{settings}', 'last=image:camera')
    one = (1, 8, 12, 3) if shape[-1] == 3 else (1, 3, 8, 12)
    pipeline, _ = open_images(bindings, {'x': shape, 'last': one})
    with pipeline:
        order = 'newest' if 'newest' in settings else 'oldest'
        assert f', history of 3, {order} first' in ' '.join(pipeline.log_lines)
        for _ in range(2):
            past = deque(maxlen=3)
            for number in range(5):
                image = frame(number)
                by_name = {'x': image, 'last': image}
                found = pipeline(by_name if number % 2 else {'camera': image})
                if not past:
                    value = found['last out'][0]
                    past.extend([value if 'zeros' not in settings else 0 * value] * 3)
                past.append(found['last out'][0])
                want = np.stack(list(past)[::-1] if 'newest' in settings else list(past))
                assert found['x out'].reshape(want.shape).tobytes() == want.tobytes()
            pipeline.reset_state()


@pytest.mark.parametrize(
    ('binding', 'error', 'problem'),
    [
        ('x=image:a?history=3', TensorMismatchError, 'stacks 2 images, but is bound to 3'),
        ('x=image:a?history=0', ParameterError, "history of the network input 'x' is '0'"),
        ('x=image:a?order=newest', ParameterError, 'order is set .* but not history'),
        ('x=images:a,b?history=2', ParameterError, "Unknown setting 'history'"),
        ('x=image:a?history=2&held=maybe', ParameterError, "held of .* is 'maybe'"),
    ],
)
def test_rejects_histories_and_held_images_that_do_not_fit(binding, error, problem):
    with pytest.raises(error, match=problem):
        open_images((binding, 'y=tensor:y'), {'x': (1, 2, 3, 8, 8), 'y': (1, 2)})


def test_held_images_are_no_images_of_a_detector():
    inputs = ('x=image:a?held=true', 'y=tensor:y')
    assert parse_bindings(inputs)[0].is_held
    with pytest.raises(TensorMismatchError, match='gets no image') as refused:
        open_images(inputs, {'x': (1, 3, 8, 8), 'y': (1, 2)}, families=DetectorNode.families)
    assert 'not held and no history' in refused.value.remedy
