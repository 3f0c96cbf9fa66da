"""Encodings that only cv_bridge knows, with a stand-in for it."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip('rclpy')

from trt_ros.errors import BadFrameError
from trt_ros.ros.cdr import ImageView
from trt_ros.ros.images import to_frame
from trt_ros.vision.frame import to_colour

DEPTHS = np.array([[0.0, 0.5, 1.0]], np.float32)
IMAGE = ImageView(
    (1, 2), 'camera', height=1, width=3, encoding='32FC1', is_bigendian=0, step=12,
    data=DEPTHS.view(np.uint8).reshape(-1))


@pytest.fixture
def cv_bridge(monkeypatch):
    """Install a cv_bridge that makes depths grey, and nothing else."""
    class CvBridge:
        def imgmsg_to_cv2(self, message, desired_encoding):
            assert desired_encoding == 'bgr8'
            if message.encoding != '32FC1':
                raise RuntimeError(f'no conversion from {message.encoding}')
            depths = np.frombuffer(message.data, np.float32).reshape(message.height, message.width)
            return np.repeat((depths * 255).astype(np.uint8)[..., None], 3, axis=2)

    module = ModuleType('cv_bridge')
    module.CvBridge = CvBridge
    monkeypatch.setitem(sys.modules, 'cv_bridge', module)


def test_what_we_cannot_read_is_left_to_cv_bridge(cv_bridge):
    assert to_colour(to_frame(IMAGE), 'rgb').tolist() == [[[0] * 3, [127] * 3, [255] * 3]]


def test_what_cv_bridge_cannot_read_either_is_a_bad_frame(cv_bridge):
    image = ImageView(**{**vars(IMAGE), 'encoding': '64FC7'})
    with pytest.raises(BadFrameError, match=r'(?s)64FC7.*no conversion.*Publish one of'):
        to_frame(image)
