import cv2
import numpy as np
import pytest

from trt_ros.errors import TensorMismatchError
from trt_ros.families.depth import DepthHead
from trt_ros.vision.letterbox import Letterbox


@pytest.mark.parametrize('shape', [(1, 28, 42), (1, 1, 28, 42), (1, 28, 42, 1)])
@pytest.mark.parametrize('image_wh', [(42, 28), (97, 53), (20, 10)])
def test_depth_is_resized_to_the_image_as_opencv_does(shape, image_wh):
    cells = np.random.default_rng(0).uniform(0.5, 80, shape).astype(np.float32)
    letterbox = Letterbox.fit(image_wh, (28, 42), 'stretch')
    values = DepthHead('depth', shape[-1] != 1)({'depth': cells}, letterbox).values
    expected = cv2.resize(cells.reshape(28, 42), image_wh, interpolation=cv2.INTER_LINEAR)
    assert values.dtype == np.float32
    assert np.abs(values - expected).max() < 1e-3  # OpenCV on Arm: 1.3e-4.


def test_letterbox_padding_is_removed():
    cells = np.full((1, 1, 64, 64), 99, np.float32)
    cells[..., 16:48, :] = 3.5
    letterbox = Letterbox.fit((200, 100), (64, 64), 'letterbox')
    values = DepthHead('depth')({'depth': cells}, letterbox).values
    assert (values.shape, values.min(), values.max()) == ((100, 200), 3.5, 3.5)


def test_a_cell_that_is_not_finite_is_not_hidden():
    cells = np.ones((1, 4, 4), np.float32)
    cells[0, 1, 1] = np.nan
    values = DepthHead('d')({'d': cells}, Letterbox.fit((8, 8), (4, 4), 'stretch')).values
    assert np.isnan(values[2:4, 2:4]).all() and values[6, 6] == 1


def test_an_output_of_two_channels_is_no_depth():
    with pytest.raises(TensorMismatchError):
        DepthHead('d')({'d': np.zeros((1, 2, 4, 4))}, Letterbox.fit((4, 4), (4, 4), 'stretch'))
