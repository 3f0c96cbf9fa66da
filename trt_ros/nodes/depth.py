"""Node that estimates depth from images."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header

from trt_ros.nodes.inference import Camera, InferenceNode, InferenceParameters
from trt_ros.ros.camera_info import CameraInfoStream
from trt_ros.ros.messages import ImageSender
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.decoders.registry import DEPTHS
from trt_ros.vision.frame import Frame
from trt_ros.vision.results import Depth


@dataclass(frozen=True)
class DepthKindParameters:
    """Parameters of the depth values."""

    depth_kind: str = param(
        'relative',
        "Meaning of the network's output: metric is metres, published as in REP 118 with NaN "
        'for invalid pixels; relative is published unchanged.',
        choices=('relative', 'metric'),
        mutable=True,
    )


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class DepthParameters(InferenceParameters, DepthKindParameters, PipelineOptions):
    """Parameters of the depth node, which are also the options of its pipeline."""


class DepthNode(InferenceNode):
    """A node that publishes depth images and the calibration of their camera."""

    Parameters = DepthParameters
    families = DEPTHS

    def __init__(self, name: str = 'depth', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def advertise(self, camera: Camera) -> SimpleNamespace:
        """Create the publishers of a camera's results."""
        return SimpleNamespace(
            depth=ImageSender(self, camera.publisher(Image, 'depth')),
            infos=camera.publisher(CameraInfo, 'camera_info'),
        )

    def activate(self) -> None:
        """Subscribe to camera_info and to the images."""
        for camera in self.cameras:
            camera.outputs.calibration = self.while_active.enter_context(
                closing(CameraInfoStream(self, camera.topic))
            )
        super().activate()

    def publish(
        self, outputs: SimpleNamespace, result: Depth, header: Header, frame: Frame
    ) -> None:
        """Publish the result of one image."""
        depth = outputs.depth.begin(header, frame.wh, '32FC1')
        depth[:] = result.values
        if self.parameters.depth_kind == 'metric':
            depth[~(depth > 0)] = np.nan
        outputs.depth.send()
        info = outputs.calibration.info_for(header, frame.wh)
        if info is not None:
            outputs.infos.publish(info)


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal stops it."""
    return run_node(DepthNode, args)


if __name__ == '__main__':
    sys.exit(main())
