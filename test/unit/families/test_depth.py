import cv2
import numpy as np
import pytest

from support.descriptions import head
from trt_ros.vision.letterbox import Letterbox


def decode(cells, letterbox):
    outputs = {'depth': cells}
    return head('depth', outputs, hw=letterbox.input_hw)(outputs, letterbox).values


@pytest.mark.parametrize('shape', [(1, 28, 42), (1, 1, 28, 42), (1, 28, 42, 1)])
@pytest.mark.parametrize('image_wh', [(42, 28), (97, 53), (20, 10)])
def test_depth_is_resized_to_the_image_as_opencv_does(shape, image_wh):
    cells = np.random.default_rng(0).uniform(0.5, 80, shape).astype(np.float32)
    letterbox = Letterbox.fit(image_wh, (28, 42), 'stretch')
    values = decode(cells, letterbox)
    expected = cv2.resize(cells.reshape(28, 42), image_wh, interpolation=cv2.INTER_LINEAR)
    assert values.dtype == np.float32
    assert np.abs(values - expected).max() < 1e-3  # OpenCV on Arm: 1.3e-4.


def test_a_cell_that_is_not_finite_is_not_hidden():
    cells = np.ones((1, 4, 4), np.float32)
    cells[0, 1, 1] = np.nan
    values = decode(cells, Letterbox.fit((8, 8), (4, 4), 'stretch'))
    assert np.isnan(values[2:4, 2:4]).all() and values[6, 6] == 1
