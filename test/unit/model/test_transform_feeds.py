"""Inputs that are transforms: their bindings and numbers."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.bindings import parse_bindings
from trt_ros.model.feeds import FEEDS
from trt_ros.tensors import TensorSpec

TURN, MOVE = Rotation.from_euler('xyz', [0.1, -0.7, 2.0]), np.array([1.0, 2.0, 3.0])
X, Y, Z, W = TURN.as_quat()
MATRIX = np.eye(4)
MATRIX[:3, :3], MATRIX[:3, 3] = TURN.as_matrix(), MOVE


def feed(text, shape):
    (binding,) = parse_bindings((f'k={text}',))
    return FEEDS[binding.kind].bind(binding, TensorSpec('k', shape, 'float32', 'input'), ())


@pytest.mark.parametrize(
    ('fields', 'want'),
    [
        ('', MATRIX.ravel()),
        ('#matrix', MATRIX.ravel()),
        ('#matrix[0,1,3]', MATRIX.ravel()[[0, 1, 3]]),
        ('#translation', MOVE),
        ('#translation[z]', MOVE[2:]),
        ('#rotation', [X, Y, Z, W]),
        ('#translation,rotation[w,x,y,z]', [*MOVE, W, X, Y, Z]),
    ],
)
@pytest.mark.parametrize('batch', [1, -1])
def test_an_input_gets_the_fields_of_each_frame(fields, want, batch):
    one = feed(f'tf:base_link,camera{fields}', (batch, len(want)))
    assert one.numbers(TURN.as_matrix(), MOVE, TURN.as_quat()) == pytest.approx(want)
    assert (one.target, one.frames) == ('base_link', ('camera',))
    several = feed(f'tf:base_link, front ,left/optical.2{fields}', (batch, 2, len(want)))
    assert several.frames == ('front', 'left/optical.2')


@pytest.mark.parametrize(
    ('text', 'error', 'problem'),
    [
        ('tf:base_link', ParameterError, 'has no two frames'),
        ('tf:base_link,', ParameterError, 'has no two frames'),
        ('tf:base link,camera', ParameterError, 'has no two frames'),
        ('tf:a,b#rotatoin', ParameterError, "Did you mean 'rotation'"),
        ('tf:a,b#rotation[a]', ParameterError, r"no rotation\['a'\](?s:.*)rotation\[x,"),
        ('tf:a,b#matrix[16]', ParameterError, 'no matrix'),
        ('tf:a,b#translation', TensorMismatchError, 'bound to 3 numbers'),
        ('tf:a,b,c', TensorMismatchError, 'bound to 32 numbers(?s:.*)16 numbers of each'),
        ('tf:a,b?held=true', ParameterError, 'held'),
        ('tf:a,b?initial=1,2', TensorMismatchError, r'came as \(2\)'),
    ],
)
def test_rejects_bindings_that_do_not_fit(text, error, problem):
    with pytest.raises(error) as caught:
        feed(text, (1, 4, 4))
    assert caught.match(problem)
