"""Node that publishes pictures, a video, a recording or a V4L2 camera as images."""

from dataclasses import dataclass
import threading
import time

import cv2
import numpy as np
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, ParameterError, printable
from trt_ros.ros.camera_info import camera_info_for, camera_info_topic, load_calibration
from trt_ros.ros.codecs.images import transport_topic
from trt_ros.ros.dds.transport import should_publish
from trt_ros.ros.diagnostics import CountingNode
from trt_ros.ros.lifecycle import NodeParameters
from trt_ros.ros.messages import ImageSender
from trt_ros.ros.parameters import mutable_param, param, with_default
from trt_ros.ros.sources import open_source
from trt_ros.ros.topic import Dropping
from trt_ros.ros.worker import MAX_WAIT_SECONDS
from trt_ros.vision.pixel_limit import PixelLimit

SECONDS_TO_RETRY = 0.1  # After a failed read from a source without a rate of its own.


@dataclass(frozen=True)
class ImageSourceParameters(NodeParameters, PixelLimit):
    """Parameters of the image source node."""

    source: str = param(
        '',
        'Image source: a picture, a folder or glob pattern of pictures (photos/*.jpg), a video '
        'file, a recording of rosbag2 (drive.mcap, or drive.mcap#TOPIC; needs mcap), a stream '
        '(rtsp://CAMERA/PATH; needs av), or a V4L2 camera (/dev/video0, or its number).',
    )
    rate_hz: float = mutable_param(
        10.0,
        'Publishing rate in Hz; 0.0 uses the own rate of a video or recording, and publishes '
        'everything else as fast as it is read.',
        zero_or=(0.001, 1000.0),
    )
    loop: bool = mutable_param(True, 'Whether to restart after the last picture.')
    frame_id: str = mutable_param(
        'camera', 'Coordinate frame (frame_id) of the published headers.'
    )
    compressed: bool = param(False, 'Whether to publish JPEG images on image/compressed, too.')
    camera_size: tuple[int, ...] = param(
        (),
        'Image width and height in pixels requested from a V4L2 camera; empty uses the '
        "camera's default.",
    )
    calibration_path: str = param(
        '',
        'Path of a YAML file of camera_calibration, published as camera_info; empty publishes '
        'an uncalibrated camera_info.',
    )
    qos_reliability: str = param(
        'reliable',
        'Reliability of the publishers; reliable matches every subscriber.',
        choices=('best_effort', 'reliable'),
    )
    qos_depth: int = param(2, 'Queue depth of the publishers in messages.', between=(1, 1000))
    autostart: bool = with_default(NodeParameters, 'autostart', True)

    def __post_init__(self) -> None:
        if len(self.camera_size) not in (0, 2) or any(size < 1 for size in self.camera_size):
            raise ParameterError(
                f'camera_size is {list(self.camera_size)}.',
                remedy='Set width and height in pixels, or leave it empty.',
            )


class ImageSourceNode(CountingNode):
    """A node that publishes pictures at a rate, stamped with their publication time."""

    Parameters = ImageSourceParameters

    def configure(self) -> None:
        parameters: ImageSourceParameters = self.parameters
        path = parameters.calibration_path
        self._calibration = load_calibration(path) if path else None
        self._source = self.while_configured.own(
            open_source(parameters.source, parameters.camera_size, parameters.max_image_pixels)
        )
        self.get_logger().info(printable(f'Publishing {self._source.description}.'))
        qos = QoSProfile(
            depth=parameters.qos_depth,
            reliability=ReliabilityPolicy[parameters.qos_reliability.upper()],
        )
        self._images = ImageSender(self, self.publisher(Image, 'image', qos))
        self._camera_infos = self.publisher(CameraInfo, camera_info_topic(self), qos)
        self._compressed: Publisher | None = None
        if parameters.compressed:
            topic = transport_topic(self, 'image', 'compressed')
            self._compressed = self.publisher(CompressedImage, topic, qos)

    def activate(self) -> None:
        stopping = threading.Event()
        thread = threading.Thread(target=self._publish_all, args=(stopping,), name='pictures')
        self.while_active.callback(thread.join)
        self.while_active.callback(stopping.set)
        thread.start()

    def _publish_all(self, stopping: threading.Event) -> None:
        due = time.monotonic()
        while not stopping.is_set():
            was_read = False
            with Dropping(self, self._counts):
                pixels = self._next_picture()
                if pixels is None:
                    self.get_logger().info('Published all pictures.')
                    self._counts.expect_no_more()
                    return
                self._publish(np.ascontiguousarray(pixels))
                was_read = True
            last_due, now = due, time.monotonic()
            while True:  # rate_hz may change while waiting.
                due = self._next_due(last_due, now, was_read)
                seconds = due - time.monotonic()
                if seconds <= 0 or stopping.wait(min(seconds, MAX_WAIT_SECONDS)):
                    break

    def _next_due(self, last_due: float, now: float, was_read: bool) -> float:
        """Return the publication time of the next picture, in time.monotonic()."""
        rate_hz = self.parameters.rate_hz or self._source.own_rate_hz
        if rate_hz:
            return next_due(last_due, now, rate_hz)
        return now if was_read else now + SECONDS_TO_RETRY

    def _next_picture(self) -> np.ndarray | None:
        try:
            pixels = self._source.read()
            if pixels is None and self.parameters.loop:
                self._source.rewind()
                pixels = self._source.read()
        except BadFrameError:
            self._counts.receive()
            raise
        if pixels is not None:
            self._counts.receive()
        return pixels

    def _publish(self, pixels_bgr: np.ndarray) -> None:
        header = Header(stamp=self.get_clock().now().to_msg(), frame_id=self.parameters.frame_id)
        height, width = pixels_bgr.shape[:2]
        info = camera_info_for(self._calibration, header, (width, height))
        if self._calibration is not None and not any(info.k):
            self.get_logger().warning(
                f'The calibration is for {self._calibration.width}x{self._calibration.height}, '
                f'but the image is {width}x{height}: it is published as uncalibrated.',
                throttle_duration_sec=10.0,
            )
        self._camera_infos.publish(info)
        if self._images.is_wanted():
            self._images.begin(header, (width, height))[:] = pixels_bgr
            self._images.send()
        if self._compressed is not None and should_publish(self._compressed):
            message = CompressedImage(header=header, format='bgr8; jpeg compressed bgr8')
            message.data = cv2.imencode('.jpg', pixels_bgr)[1].tobytes()
            self._compressed.publish(message)
        self._counts.publish()


def next_due(due: float, now: float, rate_hz: float) -> float:
    """Return the publication time after `due`; a delay is not made up for by a burst."""
    return max(due + 1 / rate_hz, now)
