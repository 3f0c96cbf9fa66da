"""Node that draws detections on their images."""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
import threading
from typing import Any, Generic, TypeVar

import numpy as np
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray, Detection3DArray

from trt_ros.drawing.boxes_3d import draw_boxes_3d
from trt_ros.drawing.objects import Trails, draw_detections, object_labels
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.media import write_picture
from trt_ros.nodes.drawing import DrawingParameters
from trt_ros.ros.camera_info import CameraInfoStream, intrinsics_of
from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.codecs.codec import to_header
from trt_ros.ros.codecs.images import ImageCodec, image_codec
from trt_ros.ros.dds.cdr import read_stamp
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import subscribe_serialized
from trt_ros.ros.diagnostics import QUEUE_AGE, Diagnostics, FrameCounts, LatencyMeter
from trt_ros.ros.dropping import Dropping
from trt_ros.ros.following import subscribe_following, subscribe_input, wait_for_input
from trt_ros.ros.inputs import ImageInputParameters
from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.messages import ImageSender, boxes_in_space, detection_reader, read_message
from trt_ros.ros.parameters import param
from trt_ros.ros.qos import DRAWN_IMAGES, RESULTS, overridden
from trt_ros.ros.stream import Topic
from trt_ros.ros.worker import REPLACED, NewestWorker
from trt_ros.vision.boxes_3d import box_corners
from trt_ros.vision.frame import Frame

T = TypeVar('T')
UNMATCHED = 'no detections received'


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class OverlayParameters(NodeParameters, DrawingParameters, ImageInputParameters):
    """Parameters of the overlay node."""

    boxes_3d: bool = param(
        False,
        'Whether to draw the boxes of `detections_3d`, by the calibration on camera_info, instead '
        'of `detections`.',
    )
    trail_seconds: float = param(
        0.0,
        'Time in seconds over which the path of each tracked box is drawn; 0.0 draws none.',
        between=(0.1, 3600.0),
        or_zero=True,
        mutable=True,
    )

    output_dir: str = param(
        '',
        'Folder for the annotated images, as PNG files named by their stamps; empty writes none.',
    )
    buffer_size: int = param(
        30,
        'Maximum number of images, and of detection messages, that wait for their counterpart.',
        between=(1, 1000),
    )
    qos_depth: int = param(
        5, 'Queue depth of the image subscription in messages.', between=(1, 1000)
    )
    autostart: bool = param(
        True, 'Whether the node configures and activates itself at startup.', read_only=True
    )


class StampBuffer(Generic[T]):
    """A bounded buffer of messages by stamp; a full one drops its oldest message."""

    def __init__(self, size: int) -> None:
        self._size, self._by_stamp = size, OrderedDict[tuple[int, int], T]()

    def take(self, stamp: tuple[int, int]) -> T | None:
        """Remove and return the message of a stamp; None without one."""
        return self._by_stamp.pop(stamp, None)

    def put(self, stamp: tuple[int, int], message: T) -> bool:
        """Store a message; return whether another one was dropped for it."""
        is_lost = self._by_stamp.pop(stamp, None) is not None
        self._by_stamp[stamp] = message
        if len(self._by_stamp) > self._size:
            self._by_stamp.popitem(last=False)
            is_lost = True
        return is_lost

    def __len__(self) -> int:
        return len(self._by_stamp)


class OverlayNode(ManagedNode):
    """A node that publishes images with the detections or boxes of their stamp drawn on them."""

    Parameters = OverlayParameters

    def __init__(self, name: str = '', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._counts = FrameCounts()
        self._topics: tuple[Topic, ...] = ()
        self._class_ids = ClassIds()
        self._matching = threading.Lock()  # Images arrive on a thread of their own.
        self._images = StampBuffer[Any](0)
        self._detections = StampBuffer[np.ndarray](0)
        Diagnostics(
            self,
            self._counts,
            task='image',
            diagnostics=lambda: {'images waiting for detections': str(len(self._images))},
            topics=lambda: self._topics,
        )

    def configure(self) -> None:
        """Create the output folder and the publisher."""
        self._output_dir: Path | None = None
        if self.parameters.output_dir:
            self._output_dir = Path(self.parameters.output_dir).expanduser()
            try:
                self._output_dir.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ParameterError(
                    f'Folder {self._output_dir} cannot be created.',
                    cause=str(error),
                    remedy='Set output_dir to a writable folder.',
                ) from error
        self._codec: ImageCodec = image_codec(self)
        self._topics = (Topic(self, 'image', self._codec, self._counts),)
        self._read_detections = detection_reader(self)
        self._drawn = ImageSender(self, self.publisher(Image, '~/image', DRAWN_IMAGES))

    def activate(self) -> None:
        """Subscribe to images and detections."""
        size = self.parameters.buffer_size
        self._images, self._detections = StampBuffer(size), StampBuffer(size)
        self.while_active.callback(self._drop_waiting)
        self._trails = Trails()
        self._latency = LatencyMeter(self, self._counts)
        self._worker = self.while_active.enter_context(
            closing(
                NewestWorker(
                    self._draw,
                    self._counts.drop,
                    on_taken=partial(self._counts.record_duration, QUEUE_AGE),
                    max_rate_hz=lambda: self.parameters.max_rate_hz,
                )
            )
        )
        wait_for_input(self, [self._codec.topic])
        self.while_active.callback(self._codec.close)
        self.while_active.enter_context(
            closing(subscribe_following(self, self._codec, self._subscribe))
        )
        topic, kind = 'detections', Detection2DArray
        if self.parameters.boxes_3d:
            topic, kind = 'detections_3d', Detection3DArray
            self._camera_info = self.while_active.enter_context(closing(CameraInfoStream(self)))
        self.while_active.enter_context(
            closing(
                subscribe_serialized(
                    self,
                    kind,
                    topic,
                    overridden(self, Subscription, topic, RESULTS),
                    MessageCallbacks(self._on_detections),
                )
            )
        )

    def _subscribe(self) -> Any:
        codec = self._codec
        codec.close()
        topic, message_type = codec.follow()
        return subscribe_input(
            self,
            message_type,
            topic,
            MessageCallbacks(
                partial(self._on_image, codec.view),
                on_lost=self._lose_image,
                on_missed=self._miss,
            ),
            depth=max(self.parameters.qos_depth, codec.min_depth),
        )

    def _on_image(self, view: Callable[[np.ndarray], Any], message: np.ndarray) -> None:
        self._counts.receive()
        with Dropping(self, self._counts):
            image = view(message)
            if image is None:
                return
            with self._matching:
                detections = self._detections.take(image.stamp)
                is_lost = detections is None and self._images.put(image.stamp, image)
            if detections is not None:
                self._worker.put((image, detections))
            elif is_lost:
                self._counts.drop(UNMATCHED)

    def _lose_image(self) -> None:
        self._counts.receive()
        self._counts.drop(REPLACED)
        self._codec.lose(1)

    def _miss(self, count: int) -> None:
        self._counts.miss(count)
        self._codec.lose(count)

    def _on_detections(self, detections: np.ndarray) -> None:
        try:
            stamp = read_stamp(detections)
        except (
            BadFrameError
        ) as error:  # Not counted as a frame; their image is dropped later as unmatched.
            self.get_logger().error(str(error), throttle_duration_sec=10.0)
            return
        with self._matching:
            image = self._images.take(stamp)
            if image is None:
                self._detections.put(stamp, detections)
        if image is not None:
            self._worker.put((image, detections))

    def _draw(self, pair: tuple[Any, np.ndarray]) -> None:
        image, detections = pair
        with Dropping(self, self._counts):
            frame = self._codec.frame(image).value
            header = to_header(image.frame_id, image.stamp)
            with self._counts.timed('draw'):
                pixels = self.parameters.begin_drawing(self._drawn, header, frame)
                if self.parameters.boxes_3d:
                    self._draw_boxes_3d(pixels, detections, frame, header.frame_id)
                else:
                    self._draw_detections(pixels, detections, header)
            with self._counts.timed('publish'):
                self._drawn.send()
            self._latency.done(image.stamp)
            self._write(pixels, header)
            self._counts.publish()

    def _draw_detections(self, pixels: np.ndarray, message: np.ndarray, header: Header) -> None:
        parameters: OverlayParameters = self.parameters
        found = self._read_detections(message, self._class_ids)
        stamp_ns = header.stamp.sec * 1_000_000_000 + header.stamp.nanosec
        if parameters.trail_seconds:
            self._trails.add(found, stamp_ns, parameters.trail_seconds)
            self._trails.draw(pixels, parameters.style())
        draw_detections(pixels, found, style=parameters.style())

    def _draw_boxes_3d(
        self, pixels: np.ndarray, message: np.ndarray, frame: Frame, frame_id: str
    ) -> None:
        camera = intrinsics_of(self._camera_info.newest, 'camera_info')
        if camera.image_wh != frame.wh:
            raise BadFrameError(
                'calibration of another size',
                f'The image is {frame.wh[0]}x{frame.wh[1]}, but camera_info is for '
                f'{camera.image_wh[0]}x{camera.image_wh[1]}.',
                remedy='Remap camera_info to the calibration of the image.',
            )
        boxes = boxes_in_space(read_message(message, Detection3DArray), self._class_ids)
        if boxes.frame_id != frame_id:
            raise BadFrameError(
                'boxes in another frame',
                f'The boxes are in the frame {boxes.frame_id!r}, but the image in {frame_id!r}.',
                remedy='Register the depth image to this image, and leave target_frame of '
                'detections_3d empty.',
            )
        draw_boxes_3d(
            pixels,
            box_corners(boxes.centers, boxes.sizes, boxes.quaternions),
            object_labels(boxes.labels, boxes.scores, self._class_ids, boxes.ids),
            camera,
            style=self.parameters.style(),
        )

    def _write(self, pixels: np.ndarray, header: Header) -> None:
        if self._output_dir is None:
            return
        path = self._output_dir / f'{header.stamp.sec}.{header.stamp.nanosec:09d}.png'
        # Renamed when complete, so that a program watching the folder never reads a partial file.
        partial_path = path.with_suffix('.unfinished.png')
        write_picture(partial_path, pixels)
        partial_path.rename(path)

    def _drop_waiting(self) -> None:
        for _ in range(len(self._images)):
            self._counts.drop(UNMATCHED)
        self._images, self._detections = StampBuffer(0), StampBuffer(0)
