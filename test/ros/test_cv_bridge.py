"""Encodings that only cv_bridge knows, with a stand-in for it."""

import sys
from types import ModuleType

import numpy as np
import pytest

from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr import ImageView
from trt_ros.ros.frames import to_frame
from trt_ros.vision.frame import to_color

VALUES = np.array([[0, 127, 255]], np.int32)
IMAGE = ImageView(
    (1, 2),
    'camera',
    height=1,
    width=3,
    encoding='32SC1',
    is_bigendian=0,
    step=12,
    data=VALUES.view(np.uint8).reshape(-1),
)


@pytest.fixture
def cv_bridge(monkeypatch):
    """Install a cv_bridge that makes integers gray, and nothing else."""

    class CvBridge:
        def imgmsg_to_cv2(self, message, desired_encoding):
            assert desired_encoding == 'bgr8'
            if message.encoding != '32SC1':
                raise RuntimeError(f'no conversion from {message.encoding}')
            values = np.frombuffer(message.data, np.int32).reshape(message.height, message.width)
            return np.repeat(values.astype(np.uint8)[..., None], 3, axis=2)

    module = ModuleType('cv_bridge')
    module.CvBridge = CvBridge
    monkeypatch.setitem(sys.modules, 'cv_bridge', module)


def test_unsupported_encodings_are_left_to_cv_bridge(cv_bridge):
    assert to_color(to_frame(IMAGE), 'rgb').tolist() == [[[0] * 3, [127] * 3, [255] * 3]]


def test_cv_bridge_gets_rows_without_padding(cv_bridge):
    rows = np.array([[0, 127, 255, 9], [255, 127, 0, 9]], np.int32)
    padded = IMAGE._replace(height=2, step=16, data=rows.view(np.uint8).reshape(-1))
    assert to_color(to_frame(padded), 'rgb')[..., 0].tolist() == [[0, 127, 255], [255, 127, 0]]


@pytest.mark.parametrize('encoding', ['16UC1', '32FC1'])
def test_depth_is_refused_although_cv_bridge_would_make_it_gray(cv_bridge, encoding):
    with pytest.raises(BadFrameError, match='is of depth images, not of pictures'):
        to_color(to_frame(IMAGE._replace(encoding=encoding)), 'rgb')


def test_encoding_unsupported_by_cv_bridge_is_a_bad_frame(cv_bridge):
    image = IMAGE._replace(encoding='64FC7')
    with pytest.raises(BadFrameError, match=r'(?s)64FC7.*no conversion.*Publish one of'):
        to_frame(image)
