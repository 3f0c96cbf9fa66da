"""Node that estimates depth from images."""

from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from rclpy.publisher import Publisher
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError
from trt_ros.families.registry import DEPTHS
from trt_ros.nodes.inference import Camera, InferenceNode, InferenceParameters
from trt_ros.results.depth import Depth
from trt_ros.ros.camera_info import CameraInfoStream, intrinsics_of
from trt_ros.ros.dds.cdr_points import FLOAT32
from trt_ros.ros.messages import ImageSender
from trt_ros.ros.parameters import param
from trt_ros.ros.points import PointSender
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.depth_points import OrganizedPoints, mask_invalid, organized_wh
from trt_ros.vision.frame import Frame, to_color


@dataclass(frozen=True)
class DepthKindParameters:
    """Parameters of the depth values."""

    depth_kind: str = param(
        'relative',
        "Meaning of the network's output: metric is meters, published as in REP 118 with NaN "
        'for invalid pixels; relative is published unchanged.',
        choices=('relative', 'metric'),
        mutable=True,
    )


@dataclass(frozen=True)
class PointParameters:
    """Parameters of the point cloud."""

    point_stride: int = param(
        1,
        'Distance in pixels between the points of ~/points, along rows and columns; 1 has a point '
        'for each pixel.',
        between=(1, 64),
        mutable=True,
    )
    max_range: float = param(
        0.0,
        'Maximum depth in meters of a point in ~/points; 0.0 sets no limit.',
        between=(0.01, 1000.0),
        or_zero=True,
        mutable=True,
    )


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class DepthParameters(InferenceParameters, PointParameters, DepthKindParameters, PipelineOptions):
    """Parameters of the depth node, which are also the options of its pipeline."""


class DepthOutputs(NamedTuple):
    """The publishers of one camera."""

    camera: Camera
    depth: ImageSender
    infos: Publisher
    points: PointSender
    organized: OrganizedPoints


class DepthNode(InferenceNode):
    """A node that publishes depth images, their points and the calibration of their camera."""

    Parameters = DepthParameters
    families = DEPTHS

    def __init__(self, name: str = 'depth', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def advertise(self, camera: Camera) -> DepthOutputs:
        """Create the publishers of a camera's results."""
        return DepthOutputs(
            camera,
            ImageSender(self, camera.publisher(Image, 'depth')),
            camera.publisher(CameraInfo, 'camera_info'),
            PointSender(self, camera.publisher(PointCloud2, 'points'), ('rgb', FLOAT32)),
            self.while_configured.enter_context(closing(OrganizedPoints())),
        )

    def activate(self) -> None:
        """Subscribe to camera_info and to the images."""
        self._calibrations = {
            camera: self.while_active.enter_context(closing(CameraInfoStream(self, camera.topic)))
            for camera in self.cameras
        }
        super().activate()

    def publish(self, outputs: DepthOutputs, result: Depth, header: Header, frame: Frame) -> None:
        """Publish the result of one image."""
        depth = outputs.depth.begin(header, frame.wh, '32FC1')
        depth[:] = result.values
        if self.parameters.depth_kind == 'metric':
            mask_invalid(depth, depth, depth > 0)
        outputs.depth.send()
        info = self._calibrations[outputs.camera].info_for(header, frame.wh)
        if info is not None:
            outputs.infos.publish(info)
        if outputs.points.is_wanted():
            self._publish_points(outputs, result, header, frame)

    def _publish_points(
        self, outputs: DepthOutputs, result: Depth, header: Header, frame: Frame
    ) -> None:
        parameters = self.parameters
        if parameters.depth_kind != 'metric':
            self.get_logger().warning(
                'No ~/points are published. Cause: depth_kind is relative. Remedy: set it to '
                'metric if the output of the network is in meters.',
                throttle_duration_sec=10.0,
            )
            return
        try:
            camera = intrinsics_of(self._calibrations[outputs.camera].newest, 'camera_info')
        except BadFrameError as error:
            self.get_logger().warning(
                f'No ~/points are published. {error}', throttle_duration_sec=10.0
            )
            return
        if camera.image_wh != frame.wh:
            self.get_logger().warning(
                f'No ~/points are published. Cause: the image is {frame.wh[0]} × {frame.wh[1]}, '
                f'but camera_info is for {camera.image_wh[0]} × {camera.image_wh[1]}.',
                throttle_duration_sec=10.0,
            )
            return
        stride = parameters.point_stride
        outputs.organized.compute(
            outputs.points.begin(header, organized_wh(frame.wh, stride)),
            result.values,
            to_color(frame, 'bgr'),
            camera,
            stride=stride,
            max_range=parameters.max_range or np.inf,
        )
        outputs.points.send()
