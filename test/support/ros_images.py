"""Image messages of the tests of the nodes."""

from __future__ import annotations

import numpy as np
from rclpy.qos import DurabilityPolicy, QoSProfile

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
RED, GREEN = (255, 0, 0), (0, 255, 0)


def half_and_half(left, right, image_wh=(64, 48)):
    pixels = np.zeros((image_wh[1], image_wh[0], 3), np.uint8)
    pixels[:, : image_wh[0] // 2], pixels[:, image_wh[0] // 2 :] = left, right
    return pixels


def pixels_of(image):
    dtype, channels = {
        'mono8': ('u1', 1),
        'mono16': ('<u2', 1),
        '32FC1': ('<f4', 1),
        'bgr8': ('u1', 3),
    }[image.encoding]
    assert image.step == image.width * channels * np.dtype(dtype).itemsize
    shape = (image.height, image.width, channels)[: 3 if channels > 1 else 2]
    return np.frombuffer(bytes(image.data), dtype).reshape(shape)
