"""Images in: a topic of images, and its messages as frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import traceback

import cv2
import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, TrtRosError
from trt_ros.ros.diagnostics import FrameCounts
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.parameters import param
from trt_ros.ros.worker import NewestWorker
from trt_ros.vision.frame import ENCODINGS, Frame


@dataclass(frozen=True)
class ImageInputParameters:
    """How a node takes its images."""

    image_transport: str = param(
        'raw', 'Subscribe to `image` (raw) or to `image/compressed`.',
        choices=('raw', 'compressed'))
    qos_reliability: str = param(
        'best_effort', 'Reliability asked of the image publisher; best_effort takes from any.',
        choices=('best_effort', 'reliable'))
    qos_depth: int = param(
        1, 'Images that DDS keeps until they are taken; the newest wins in any case.',
        between=(1, 1000))
    max_rate_hz: float = param(
        0.0, 'Images handled in a second at most; 0.0 is no limit.', between=(0.0, 1000.0),
        mutable=True)

    @property
    def qos(self) -> QoSProfile:
        return QoSProfile(
            depth=self.qos_depth, reliability=ReliabilityPolicy[self.qos_reliability.upper()])


class ImageStream:
    """
    The newest image of a topic, handed over in a thread of its own; takes from now until close().

    A frame that cannot be used is dropped, counted by cause, and logged once in a while.

    :param handle: called with the image's own header and the frame, one at a time. It counts what
        it publishes; what it raises counts as a dropped frame.
    """

    def __init__(
            self, node: ManagedNode, counts: FrameCounts,
            handle: Callable[[Header, Frame], None]) -> None:
        self._node, self._counts, self._handle_frame = node, counts, handle
        self._worker = NewestWorker(
            self._handle, counts.drop, max_rate_hz=lambda: node.parameters.max_rate_hz)
        self._subscription = subscribe_images(node, self._receive)

    def close(self) -> None:
        """Stop taking images, then wait for the one in hand."""
        node = self._node
        node.between_callbacks(lambda: node.destroy_subscription(self._subscription))
        self._worker.close()

    def _receive(self, message: Image | CompressedImage) -> None:
        self._counts.receive()
        self._worker.put(message)

    def _handle(self, message: Image | CompressedImage) -> None:
        with dropping(self._node, self._counts):
            self._handle_frame(message.header, to_frame(message))


@contextmanager
def dropping(node: Node, counts: FrameCounts) -> Iterator[None]:
    """Turn whatever is raised into a dropped frame, counted and logged by its cause."""
    try:
        yield
    except Exception as error:
        if isinstance(error, TrtRosError):
            problem, why = error.problem, str(error)
        else:
            problem, why = repr(error), traceback.format_exc()
        cause = error.kind if isinstance(error, BadFrameError) else type(error).__name__
        if counts.drop(cause, problem):
            node.get_logger().error(f'A frame was dropped ({cause}). {why}')


def subscribe_images(
        node: ManagedNode, callback: Callable[[Image | CompressedImage], None]) -> Subscription:
    """Subscribe to `image` or `image/compressed` as the node's ImageInputParameters say."""
    if node.parameters.image_transport == 'compressed':
        return node.create_subscription(
            CompressedImage, compressed_topic(node, 'image'), callback, node.parameters.qos)
    return node.create_subscription(Image, 'image', callback, node.parameters.qos)


def compressed_topic(node: Node, topic: str) -> str:
    """Name the topic of compressed images beside `topic`, which may be remapped; so may it be."""
    name = f'{topic}/compressed'
    remapped = node.resolve_topic_name(name)
    if remapped != node.resolve_topic_name(name, only_expand=True):
        return remapped
    return f'{node.resolve_topic_name(topic)}/compressed'


def to_frame(message: Image | CompressedImage) -> Frame:
    """
    See an image message as a frame; a raw one without a copy of its pixels.

    :raises BadFrameError: when it is no image that can be used.
    """
    return _decompressed(message) if isinstance(message, CompressedImage) else _raw(message)


def _raw(message: Image) -> Frame:
    if message.encoding not in ENCODINGS:
        return _through_cv_bridge(message)
    return Frame(
        _bytes_of(message), message.width, message.height, message.step, message.encoding,
        bool(message.is_bigendian))


def _bytes_of(message: Image | CompressedImage) -> np.ndarray:
    """(N,) uint8, a view."""
    return np.frombuffer(message.data, np.uint8) if len(message.data) else np.empty(0, np.uint8)


def _through_cv_bridge(message: Image) -> Frame:
    kind = 'unknown encoding'
    try:
        from cv_bridge import CvBridge
    except ImportError as error:
        raise BadFrameError(
            kind, f'Images encoded as {message.encoding!r} need cv_bridge.', cause=str(error),
            remedy=f'Install cv_bridge, or publish one of {", ".join(ENCODINGS)}.') from error
    try:
        return Frame.from_pixels(CvBridge().imgmsg_to_cv2(message, 'bgr8'))
    except BadFrameError:
        raise
    except Exception as error:  # CvBridgeError, or whatever its conversion raises.
        raise BadFrameError(
            kind, f'cv_bridge cannot read images encoded as {message.encoding!r}.',
            cause=str(error), remedy=f'Publish one of {", ".join(ENCODINGS)}.') from error


def _decompressed(message: CompressedImage) -> Frame:
    """
    Read a JPEG or PNG.

    `format` is what image_transport writes: 'ENCODING; CODEC compressed STORED', or just 'CODEC'.
    """
    if 'compressedDepth' in message.format:
        raise BadFrameError(
            'unknown compression', f'{message.format!r} is a depth image, not a picture.',
            remedy='Subscribe to the topic of image/compressed.')
    encoded = _bytes_of(message)
    # UNCHANGED also leaves the orientation that a phone's JPEG asks for: so do other ROS nodes.
    pixels = cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED) if encoded.size else None
    if pixels is None:
        raise BadFrameError(
            'undecodable image',
            f'{encoded.size} bytes of format {message.format!r} are neither JPEG nor PNG.')
    if pixels.ndim == 3:
        if pixels.dtype == np.uint16:
            pixels = (pixels >> 8).astype(np.uint8)
        is_rgb = 'compressed rgb' in message.format  # Stored as if its red were blue.
        names = {3: 'rgb8' if is_rgb else 'bgr8', 4: 'rgba8' if is_rgb else 'bgra8'}
        return Frame.from_pixels(pixels, names[pixels.shape[2]])
    if pixels.dtype == np.uint16:
        return Frame.from_pixels(pixels, 'mono16')
    encoding = message.format.split(';')[0].strip()
    return Frame.from_pixels(pixels, encoding if encoding.startswith('bayer_') else 'mono8')
