"""Node that estimates depth from images."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
import math
from typing import Any, NamedTuple

import numpy as np
from rclpy.publisher import Publisher
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.families.registry import DEPTHS
from trt_ros.nodes.inference import Camera, InferenceNode, InferenceParameters
from trt_ros.results.arrays import Depth
from trt_ros.ros.camera_info import CameraInfoStream, camera_info_for, intrinsics_of, lens_of
from trt_ros.ros.codecs.codec import Content
from trt_ros.ros.codecs.images import ImageCodec
from trt_ros.ros.dds.cdr_points import FLOAT32
from trt_ros.ros.dds.transport import should_publish
from trt_ros.ros.messages import ImageSender, PointSender
from trt_ros.ros.parameters import mutable_param, param
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.depth_points import (
    Intrinsics,
    OrganizedPoints,
    canonical_factor,
    depth_of_disparity,
    mask_invalid,
    missing_offset,
    organized_wh,
)
from trt_ros.vision.frame import Frame, to_color

try:
    from stereo_msgs.msg import DisparityImage
except ImportError:  # A package of its own, which only ~/disparity needs.
    DisparityImage = None


#: In meters. With it and any focal length, depths are finite.
MAX_BASELINE = 1e6
KINDS = ('relative', 'metric', 'canonical', 'disparity', 'affine')


@dataclass(frozen=True)
class DepthParameters(InferenceParameters, PipelineOptions):
    """Parameters of the depth node, which are also the options of its pipeline."""

    depth_kind: str = mutable_param(
        'auto',
        "Meaning of the network's output: relative is published unchanged, all others as meters "
        'as in REP 118, with NaN for invalid pixels: metric is meters, canonical meters for a '
        'focal length of 300 pixels, disparity pixels of a pair of rectified images, affine '
        'points up to an offset of z; auto follows names of outputs.',
        choices=('auto', *KINDS),
    )
    min_confidence: float = mutable_param(
        0.5,
        'Minimum confidence of a depth in meters, if the network has one: its mask, or 1 - sky.',
        between=(0.0, 1.0),
    )
    rectify: bool = param(
        False,
        'Whether the images are raw, and rectified by the camera_info beside each: distortion, R '
        'and P. All results are of the rectified images.',
    )
    point_stride: int = mutable_param(
        1,
        'Distance in pixels between the points of ~/points, along rows and columns; 1 has a point '
        'for each pixel.',
        between=(1, 64),
    )
    max_range: float = mutable_param(
        0.0,
        'Maximum depth in meters of a point in ~/points; 0.0 sets no limit.',
        zero_or=(0.01, 1000.0),
    )


class DepthOutputs(NamedTuple):
    """The publishers of one camera."""

    camera: Camera
    depth: ImageSender
    infos: Publisher
    points: PointSender
    organized: OrganizedPoints
    confidence: ImageSender | None
    disparity: Publisher | None


class DepthNode(InferenceNode):
    """A node that publishes depth images, their points and the calibration of their camera."""

    Parameters = DepthParameters
    families = DEPTHS

    def open(self) -> Iterable[str]:
        lines = list(super().open())
        head: Any = self.pipeline.decoder.head
        is_pair = len(self.inputs.topics) > 1 and self.inputs.in_sets
        # Networks of one image call their inverse depth so.
        self._own_kind = 'relative' if head.kind == 'disparity' and not is_pair else head.kind
        lines.append(f'depth kind: {self.kind}')
        if getattr(head, 'is_sky', False) and self.parameters.depth_kind == 'auto':
            lines.append(
                'Depth with sky is that of Depth Anything 3: for its metric network, set '
                'depth_kind to canonical.'
            )
        if self.kind == 'disparity' and not is_pair:
            raise ParameterError(
                'depth_kind is disparity, but the network has one image topic.',
                remedy='Bind both images in inputs, the left one first (docs/nodes.md).',
            )
        if self.kind == 'affine' and head.kind != 'affine':
            raise ParameterError(
                'depth_kind is affine, but the network returns no points.',
                remedy='Set it to auto, or to metric if the output is in meters.',
            )
        return lines

    @property
    def kind(self) -> str:
        """Meaning of the values, one of KINDS; while configured."""
        kind: str = self.parameters.depth_kind
        return self._own_kind if kind == 'auto' else kind

    def advertise(self, camera: Camera) -> DepthOutputs:
        has_confidence = bool(getattr(self.pipeline.decoder.head, 'confidence_name', ''))
        return DepthOutputs(
            camera,
            camera.images('depth'),
            camera.publisher(CameraInfo, 'camera_info'),
            PointSender(self, camera.publisher(PointCloud2, 'points'), ('rgb', FLOAT32, 1)),
            self.while_configured.own(OrganizedPoints()),
            camera.images('confidence') if has_confidence else None,
            camera.publisher(DisparityImage, 'disparity')
            if self.kind == 'disparity' and DisparityImage
            else None,
        )

    def activate(self) -> None:
        self._calibrations: dict[str, CameraInfoStream] = {}
        for topic in self.inputs.topics:
            if isinstance(topic.codec, ImageCodec):
                self._calibrations[topic.name] = stream = CameraInfoStream(self, topic.name)
                if self.parameters.rectify or len(self._calibrations) > 1:
                    topic.prepare = partial(self._prepare, stream)
        super().activate()

    def _prepare(self, calibration: CameraInfoStream, image: Content) -> Frame:
        """Return an image, rectified if it is raw; or raise BadFrameError."""
        frame: Frame = image.value
        info = calibration.newest
        known, given = info.header.frame_id, image.frame_id
        if known and given and known != given:
            self.warn_once(
                f'{calibration.topic} is of the frame {known!r}, but its images are of '
                f'{given!r}. Remedy: Remap it to the calibration of their camera.'
            )
        if self.parameters.rectify:
            return calibration.with_lens(frame)
        if self.kind == 'disparity':  # Else only publish() needs it, and that of the first image.
            intrinsics_of(info, calibration.topic, frame.wh)
        return frame

    def publish(self, outputs: DepthOutputs, result: Depth, header: Header, frame: Frame) -> None:
        depth = outputs.depth.begin(header, frame.wh, '32FC1')
        is_plain = self.kind in ('relative', 'metric')
        camera = None if is_plain else self._camera(outputs, frame)
        self._write_depth(depth, outputs, result, camera, header)
        if self.kind != 'relative':
            is_valid = (depth > 0) & (depth < np.inf)
            if result.confidence is not None:
                is_valid &= result.confidence >= self.parameters.min_confidence
            if frame.lens is not None:
                is_valid &= frame.lens.covers(frame.wh)
            mask_invalid(depth, depth, is_valid)
        outputs.depth.send()
        if outputs.confidence is not None and outputs.confidence.is_wanted():
            outputs.confidence.begin(header, frame.wh, '32FC1')[:] = result.confidence
            outputs.confidence.send()
        info = self._calibrations[outputs.camera.topic].newest
        if (info.width, info.height) == frame.wh:
            outputs.infos.publish(camera_info_for(info, header, frame.wh))
        if not outputs.points.is_wanted():
            return
        try:
            camera = camera or self._camera(outputs, frame)
        except BadFrameError as error:
            self.get_logger().warning(
                f'No ~/points are published. {error}', throttle_duration_sec=10.0
            )
        else:
            self._publish_points(outputs, depth, header, frame, camera)

    def _write_depth(
        self,
        depth: np.ndarray,
        outputs: DepthOutputs,
        result: Depth,
        camera: Intrinsics | None,
        header: Header,
    ) -> None:
        """Write the depths of an image, or raise BadFrameError."""
        values, kind = result.values, self.kind
        if camera is None:
            depth[:] = values
            return
        scale = self.pipeline.preprocess.letterbox(camera.image_wh).scale_xy
        if kind == 'canonical':
            np.multiply(values, canonical_factor(camera, sum(scale) / 2), out=depth)
            return
        if kind == 'affine':
            if result.points is None:
                raise BadFrameError(
                    'no points',
                    'depth_kind is affine, but the network returns no points.',
                    remedy='Set it to auto.',
                )
            np.add(values, np.float32(missing_offset(result.points, camera)), out=depth)
            return
        baseline, offset = self._rig(camera)
        # The flow to the right image, as RAFT-Stereo gives it, is negative. Some pixels tell, the
        # near ones most: far ones are noise around 0.
        with np.errstate(invalid='ignore'):
            unit = -scale[0] if np.nansum(values[::16, ::16]) < 0 else scale[0]
        if outputs.disparity and should_publish(outputs.disparity):
            outputs.disparity.publish(_to_disparity(values, unit, camera.fx, baseline, header))
        depth_of_disparity(values, unit * camera.fx, baseline, unit * offset, out=depth)

    def _rig(self, left: Intrinsics) -> tuple[float, float]:
        """Return baseline in meters, and disparity at infinity, or raise BadFrameError."""
        rights = list(self._calibrations.values())[1:]
        info = rights[0].newest if rights else CameraInfo()
        right = intrinsics_of(info, 'camera_info of the right image')
        if left.image_wh != right.image_wh or not math.isclose(left.fx, right.fx, rel_tol=1e-3):
            sizes = [
                f'{e.image_wh[0]} × {e.image_wh[1]} pixels, fx {e.fx:g}' for e in (left, right)
            ]
            raise BadFrameError(
                'bad calibration',
                f'The left camera_info is for {sizes[0]}, the right one for {sizes[1]}.',
                remedy='Calibrate the pair at one size.',
            )
        baseline = -info.p[3] / (info.p[0] or math.inf)
        if not 0 < baseline < MAX_BASELINE:
            raise BadFrameError(
                'bad calibration',
                f'The right camera is {baseline:g} m right of the left one, by its P[3] and P[0].',
                remedy='Calibrate the pair, and bind the left image first in inputs.',
            )
        return baseline, left.cx - right.cx

    def _camera(self, outputs: DepthOutputs, frame: Frame) -> Intrinsics:
        """Return the camera of an image, or raise BadFrameError."""
        if self.kind == 'relative':
            raise BadFrameError(
                'no meters',
                'depth_kind is relative.',
                remedy='Set it to metric if the output of the network is in meters, or to '
                'disparity if it is in pixels of a pair of images.',
            )
        topic = outputs.camera.topic
        stream = self._calibrations[topic]
        camera = intrinsics_of(stream.newest, stream.topic, frame.wh)
        is_raw = topic.endswith('image_raw') and not self.parameters.rectify
        if is_raw and lens_of(stream.newest, stream.topic) is not None:
            self.get_logger().warning(
                f'{topic} seems to be raw, but depth is that of rectified images. Remedy: Set '
                'rectify to true.',
                once=True,
            )
        return camera

    def _publish_points(
        self,
        outputs: DepthOutputs,
        meters: np.ndarray,
        header: Header,
        frame: Frame,
        camera: Intrinsics,
    ) -> None:
        stride = self.parameters.point_stride
        outputs.organized.compute(
            outputs.points.begin(header, organized_wh(frame.wh, stride)),
            meters,
            to_color(frame.rectified(), 'bgr'),
            camera,
            stride=stride,
            max_range=self.parameters.max_range or np.inf,
        )
        outputs.points.send()


def _to_disparity(
    values: np.ndarray, unit: float, focal: float, baseline: float, header: Header
) -> Any:
    """Return the DisparityImage of values / unit; -1, below its minimum, where there is none."""
    height, width = values.shape
    data = array('B', [0]) * values.nbytes
    pixels = np.frombuffer(data, np.float32).reshape(height, width)
    np.divide(values, np.float32(unit), out=pixels)
    pixels[~((pixels > 0) & (pixels < np.inf))] = -1
    return DisparityImage(
        header=header,
        image=Image(
            header=header, height=height, width=width, encoding='32FC1', step=4 * width, data=data
        ),
        f=focal,
        t=baseline,
        min_disparity=0.0,
        max_disparity=float(pixels.max()),
    )
