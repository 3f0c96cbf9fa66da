"""Node that locates detections in space with a depth image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geometry_msgs.msg import Point, Pose, PoseWithCovariance, Quaternion, Vector3
import numpy as np
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray, Detection3DArray

from trt_ros.errors import BadFrameError
from trt_ros.ros.camera_info import CameraInfoStream, intrinsics_of
from trt_ros.ros.codecs.codec import Content, Stamp
from trt_ros.ros.codecs.detections import DetectionCodec
from trt_ros.ros.codecs.images import RawImageCodec
from trt_ros.ros.dds.cdr import ImageView
from trt_ros.ros.dds.cdr_points import UINT32
from trt_ros.ros.diagnostics import CountingNode, FrameCounts
from trt_ros.ros.inputs import InputParameters, SynchronizationParameters
from trt_ros.ros.lifecycle import NodeParameters
from trt_ros.ros.messages import PointSender, best_hypothesis, detection_3d
from trt_ros.ros.parameters import mutable_param, param, with_default
from trt_ros.ros.qos import RESULTS
from trt_ros.ros.regions import ChosenObjects, choose_objects
from trt_ros.ros.stream import TopicStream
from trt_ros.ros.topic import Topic
from trt_ros.ros.transforms import Transform, Transforms, import_tf2
from trt_ros.runtime.future import Finished
from trt_ros.vision.boxes_3d import SAMPLES, Boxes3D, DepthScene
from trt_ros.vision.depth_points import DepthImage, check_is_depth
from trt_ros.vision.frame import Frame
from trt_ros.vision.upright_boxes import fit_upright, level_axes, parse_sizes, quaternion_of

MAX_OBJECTS = 1000
#: Standard deviation of a center by a size of the parameter, as a share of the longest side; and
#: variances in square radians: of a fitted yaw, and of an angle from 0 to 2 pi of which nothing is
#: known.
SIZE_ERROR, YAW_VARIANCE, ANY_TURN_VARIANCE = 0.05, 0.05**2, np.pi**2 / 3
WITHOUT_DEPTH = 'objects without depth'
DETECTIONS, DEPTH, INSTANCES = 'detections', 'depth_image', 'instances'


@dataclass(frozen=True)
class Detections3DParameters(NodeParameters, SynchronizationParameters, InputParameters):
    """Parameters of the detections_3d node."""

    approximate_sync: bool = with_default(SynchronizationParameters, 'approximate_sync', True)
    approximate_sync_tolerance_seconds: float = with_default(
        SynchronizationParameters, 'approximate_sync_tolerance_seconds', 0.02
    )
    registered: bool = param(
        True,
        'Whether the depth image has the pixels of the detected image; false converts pixels by '
        'the calibrations on camera_info and depth_info.',
    )
    use_instances: bool = param(
        False,
        'Whether to use the masks on `instances`: ~/instances of the segmenter whose '
        '~/detections are the detections.',
    )
    target_frame: str = param(
        '',
        'Frame of the results, by tf2; empty leaves them in the optical frame of the depth image.',
    )
    sizes: tuple[str, ...] = param(
        (),
        "Length, width and height of the objects of a class in meters: 'car:4.5,1.8,1.5'. Their "
        'boxes are whole and upright; those of other classes are the visible surface.',
    )
    max_range: float = mutable_param(
        0.0,
        'Maximum depth in meters of a pixel that counts; 0.0 sets no limit.',
        zero_or=(0.01, 1000.0),
    )
    autostart: bool = with_default(NodeParameters, 'autostart', True)


@dataclass(frozen=True)
class _Located:
    """The objects of one set of messages; `upright`: size, center and rotation, by index."""

    objects: ChosenObjects
    boxes: Boxes3D
    scene: DepthScene
    frame_id: str
    transform: Transform | None
    upright: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]


class Detections3DNode(CountingNode):
    """A node that publishes 3D boxes of detections."""

    Parameters = Detections3DParameters
    task = 'detections'

    def __init__(self, name: str = '', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._counts.noun = 'message'

    def configure(self) -> None:
        parameters = self.parameters
        parameters.describe_synchronization()  # Raises for contradictory values.
        if parameters.target_frame:
            import_tf2('target_frame')  # Fails here without it.
        self._sizes = parse_sizes(parameters.sizes)
        self._counts.note(WITHOUT_DEPTH, 0)
        self._topics = [
            Topic(self, DETECTIONS, DetectionCodec(self, DETECTIONS), FrameCounts(self._counts)),
            Topic(self, DEPTH, DepthImageCodec(self, DEPTH), FrameCounts()),
        ]
        if parameters.use_instances:
            instances = InstanceImageCodec(self, INSTANCES)
            self._topics.append(Topic(self, INSTANCES, instances, FrameCounts()))
        self._boxes = self.publisher(Detection3DArray, '~/detections_3d', RESULTS)
        self._points = PointSender(
            self, self.publisher(PointCloud2, '~/points', RESULTS), ('object', UINT32, 1)
        )

    def activate(self) -> None:
        parameters, own = self.parameters, self.while_active.own
        self._depth_info = CameraInfoStream(self, topic='depth_info')
        self._source_info = (
            None if parameters.registered else CameraInfoStream(self, topic='camera_info')
        )
        self._transforms = own(Transforms(self)) if parameters.target_frame else None
        own(
            TopicStream(
                self,
                self._counts,
                self._topics,
                lambda sets: Finished([self._locate(*values) for values in sets]),
                self._publish,
                in_sets=True,
            )
        )

    def _locate(
        self,
        message: Detection2DArray,
        located_depth: tuple[Frame, str],
        stamped_instances: tuple[np.ndarray, Stamp] | None = None,
    ) -> _Located:
        depth, frame_id = located_depth
        instances = None
        if stamped_instances:
            instances, (sec, nanosec) = stamped_instances
            stamp = message.header.stamp
            if (sec, nanosec) != (stamp.sec, stamp.nanosec):
                raise BadFrameError(
                    'instances of another image',
                    'The detections and the instances have different stamps.',
                    remedy='Remap both to one segmenter, and set '
                    'approximate_sync_tolerance_seconds below half the period of the images.',
                )
        source = self._source_info
        scene = DepthScene(
            DepthImage.of(depth),
            intrinsics_of(self._depth_info.newest, 'depth_info'),
            source=intrinsics_of(source.newest, 'camera_info') if source else None,
            instances=instances,
            max_range=self.parameters.max_range or np.inf,
        )
        objects = choose_objects(message, scene.source_wh, MAX_OBJECTS)
        boxes = scene.measure(objects.boxes, objects.indices)
        header = Header(stamp=message.header.stamp, frame_id=frame_id)
        transforms, target = self._transforms, self.parameters.target_frame
        transform = transforms.lookup(target, header) if transforms else None
        lost = len(message.detections) - int(np.count_nonzero(boxes.has_depth))
        if lost:
            self._counts.note(WITHOUT_DEPTH, lost)
        if lost and lost == len(message.detections):
            self.get_logger().warning(
                f'None of the {lost} detections of an image has a depth. Check that the depth '
                'image shows the same scene, and the parameter registered.',
                throttle_duration_sec=10.0,
            )
        upright = self._fit(objects, boxes, scene, transform) if self._sizes else {}
        return _Located(objects, boxes, scene, frame_id, transform, upright)

    def _fit(
        self,
        objects: ChosenObjects,
        boxes: Boxes3D,
        scene: DepthScene,
        transform: Transform | None,
    ) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Fit boxes to the objects of known size; up is z of target_frame, or the image's."""
        level = level_axes(transform.rotation()[2] if transform else np.array([0.0, -1.0, 0.0]))
        found = {}
        for index, detection in enumerate(objects.detections):
            size = self._sizes.get(best_hypothesis(detection).class_id)
            if size is None or not boxes.has_depth[index]:
                continue
            near_far, owner = boxes.ranges[index], int(objects.indices[index])
            points = scene.points(objects.boxes[index], owner, near_far)
            if len(points):
                found[index] = size, *fit_upright(points, size, level)
        return found

    def _publish(self, _: int, located: _Located, header: Header, values: Sequence[Any]) -> None:
        header.frame_id = self.parameters.target_frame if located.transform else located.frame_id
        chosen = np.flatnonzero(located.boxes.has_depth)
        self._boxes.publish(_to_message(located, chosen, header))
        if self._points.is_wanted():
            self._publish_points(located, chosen, header)

    def _publish_points(self, located: _Located, chosen: np.ndarray, header: Header) -> None:
        objects, clouds = located.objects, []
        for index in chosen.tolist():
            points = located.scene.points(
                objects.boxes[index], int(objects.indices[index]), located.boxes.ranges[index]
            )
            clouds.append(located.transform.apply(points) if located.transform else points)
        sizes = [len(cloud) for cloud in clouds]
        out = self._points.begin(header, (sum(sizes), 1))[0]
        if clouds:
            out[:, :3] = np.concatenate(clouds)
            out[:, 3] = np.repeat(np.arange(len(clouds), dtype=np.uint32), sizes).view(np.float32)
        self._points.send()


class DepthImageCodec(RawImageCodec):
    """Depth images; the values are frames with their frame_id."""

    noun = 'message'

    def frame(self, image: ImageView) -> Content:
        check_is_depth(image.encoding)  # First: cv_bridge converts others, but not their meaning.
        content = super().frame(image)
        return content._replace(value=(content.value, image.frame_id))


class InstanceImageCodec(RawImageCodec):
    """Images of the number of the instance at each pixel; the values are arrays with stamps."""

    noun = 'message'

    def frame(self, image: ImageView) -> Content:
        if image.encoding != 'mono16':
            raise BadFrameError(
                'not an image of instances',
                f'Encoding {image.encoding} is not mono16.',
                remedy='Remap instances to ~/instances of a segmenter.',
            )
        content = super().frame(image)
        frame = content.value
        dtype = np.dtype('>u2' if frame.is_bigendian else '<u2')
        pixels: np.ndarray = np.ndarray(
            (frame.height, frame.width), dtype, frame.data, 0, (frame.step, 2)
        )
        return content._replace(value=(pixels, image.stamp))


def _to_message(located: _Located, chosen: np.ndarray, header: Header) -> Detection3DArray:
    transform = located.transform
    turn = transform.rotation() if transform else np.eye(3)
    surface_turn = transform.quaternion if transform else np.array([0.0, 0.0, 0.0, 1.0])
    detections = []
    for index in chosen.tolist():
        center = located.boxes.centers[index].astype(np.float64)
        size = located.boxes.sizes[index].astype(np.float64)
        if index in located.upright:
            size, center, rotation = located.upright[index]
            quaternion = quaternion_of(turn @ rotation)
            position, angles = np.eye(3) * (SIZE_ERROR * size.max()) ** 2, YAW_VARIANCE
        else:
            # The center of the object is up to half of its width or height behind the surface.
            errors = size[0] / SAMPLES, size[1] / SAMPLES, size[:2].max() / 2
            position, angles = turn @ np.diag(np.square(errors)) @ turn.T, ANY_TURN_VARIANCE
            quaternion = surface_turn
        if transform:
            center = transform.apply(center)
        covariance = np.zeros((6, 6))
        covariance[:3, :3], covariance[3:, 3:] = position, np.eye(3) * angles
        pose = Pose(
            position=Point(**dict(zip('xyz', center.tolist()))),
            orientation=Quaternion(**dict(zip('xyzw', quaternion.tolist()))),
        )
        detection = located.objects.detections[index]
        placed = PoseWithCovariance(pose=pose, covariance=covariance.ravel())
        extent = Vector3(**dict(zip('xyz', size.tolist())))
        detections.append(detection_3d(detection, header, placed, extent, detection.id))
    return Detection3DArray(header=header, detections=detections)
