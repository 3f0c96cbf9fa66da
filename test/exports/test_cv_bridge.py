"""
Encodings that only cv_bridge converts, by the package itself.

That of ROS; or its Python part (cv_bridge/python of ros-perception/vision_opencv) in place of that
of `pip install --no-deps cv-bridge`, which has no C++, no 16 bits, and no padded rows itself.
"""

from inspect import getsource

import cv2
import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('cv_bridge', reason='it is under test: pip install --no-deps cv-bridge')

from cv_bridge.boost.cv_bridge_boost import CV_MAT_CNWrap

from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr import ImageView
from trt_ros.ros.frames import _through_cv_bridge, to_frame
from trt_ros.vision.frame import ENCODINGS, to_color

pytestmark = pytest.mark.skipif(
    CV_MAT_CNWrap(cv2.CV_8UC2) != 2, reason='that of PyPI has the types of OpenCV 4'
)

WIDTH, HEIGHT = 6, 4
RNG = np.random.default_rng(0)


def image(encoding: str, pixels: np.ndarray, padding: int = 0, is_bigendian: int = 0) -> ImageView:
    pixels = pixels.astype(pixels.dtype.newbyteorder('>' if is_bigendian else '<'))
    rows = np.pad(pixels.reshape(HEIGHT, -1).view(np.uint8), ((0, 0), (0, padding)))
    return ImageView(
        (1, 2),
        'camera',
        height=HEIGHT,
        width=WIDTH,
        encoding=encoding,
        is_bigendian=is_bigendian,
        step=rows.shape[1],
        data=rows.reshape(-1),
    )


@pytest.mark.parametrize('padding', [0, 12])
@pytest.mark.parametrize('encoding', ['bgr8', 'rgb8', 'rgba8', 'bgra8'])
def test_its_colors_are_ours(encoding, padding):
    from cv_bridge import CvBridge

    pixels = RNG.integers(0, 256, (HEIGHT, WIDTH, 4 if 'a' in encoding else 3)).astype(np.uint8)
    view = image(encoding, pixels, padding)
    ours = to_color(to_frame(view), 'rgb')
    if padding and 'step' not in getsource(CvBridge.imgmsg_to_cv2):
        pytest.skip('that of PyPI ignores the padding of rows')
    found = _through_cv_bridge(view)
    assert found.encoding == 'bgr8'
    np.testing.assert_array_equal(to_color(found, 'rgb'), ours)


@pytest.mark.parametrize('is_bigendian', [0, 1])
@pytest.mark.parametrize('encoding', ['rgb16', 'bgr16', 'rgba16', 'bgra16'])
def test_16_bits_become_8_or_are_refused_with_the_reason(encoding, is_bigendian):
    assert encoding not in ENCODINGS
    channels = 4 if 'a' in encoding else 3
    pixels = RNG.integers(0, 65536, (HEIGHT, WIDTH, channels)).astype(np.uint16)
    try:
        found = to_color(to_frame(image(encoding, pixels, 0, is_bigendian)), 'rgb')
    except BadFrameError as error:
        assert 'cv_bridge cannot convert' in str(error) and 'Publish one of' in str(error)
        return
    order = [0, 1, 2] if encoding[0] == 'r' else [2, 1, 0]
    assert np.abs(found - pixels[..., order] / 65535 * 255).max() <= 1.0


@pytest.mark.parametrize('encoding', ['64FC7', '32SC1', 'no encoding', ''])
def test_others_are_refused_with_the_reason(encoding):
    view = image(encoding, np.zeros((HEIGHT, WIDTH), np.int32))
    with pytest.raises(BadFrameError, match=r'(?s)cv_bridge cannot convert.*Publish one of'):
        to_frame(view)
