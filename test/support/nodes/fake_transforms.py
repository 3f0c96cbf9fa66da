"""The detections_3d node with transforms that need no tf2: a quarter turn, and 1 m forward."""

from functools import partial
import sys

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.nodes.detections_3d import Detections3DNode
from trt_ros.ros.process import run_node
from trt_ros.ros.transforms import Transform


class FakeTransforms:
    """From the optical frame to one with x forward, y left and z up; none at second 99."""

    def __init__(self, node):
        self.node = node

    def close(self):
        pass

    def lookup(self, target_frame, header):
        if header.stamp.sec == 99:
            raise BadFrameError('no transform', f'No transform to {target_frame!r}.')
        return Transform(np.array([-0.5, 0.5, -0.5, 0.5]), np.array([1.0, 0.0, 0.0]))


if __name__ == '__main__':
    sys.exit(run_node(partial(Detections3DNode, open_transforms=FakeTransforms)))
