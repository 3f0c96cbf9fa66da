"""Images in: a topic of images, and its messages as frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
import traceback

import cv2
import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, GpuFailedError, TrtRosError
from trt_ros.ros.cdr import CompressedImageView, ImageView, read_compressed_image, read_image
from trt_ros.ros.diagnostics import QUEUE_AGE, FrameCounts, LatencyMeter
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.parameters import param
from trt_ros.ros.qos import PRESETS, image_qos, incompatible_offer, why_silent
from trt_ros.ros.rcl import NOBODY, MemoryHooks
from trt_ros.ros.transport import SerializedSubscription, subscribe_serialized
from trt_ros.ros.worker import REPLACED, UNWANTED, NewestWorker
from trt_ros.vision.frame import ENCODINGS, Frame


@dataclass(frozen=True)
class ImageInputParameters:
    """How a node takes its images."""

    image_transport: str = param(
        'raw', 'Subscribe to `image` (raw) or to `image/compressed`.',
        choices=('raw', 'compressed'))
    qos_preset: str = param(
        'auto', "QoS asked of the image publishers, by ROS's name for it; auto: as "
        'qos_reliability says.', choices=PRESETS)
    qos_reliability: str = param(
        'auto', "Reliability asked of them; best_effort takes from any; auto: the preset's, "
        'without one reliable when all of them are so at activation.',
        choices=('auto', 'best_effort', 'reliable'))
    qos_depth: int = param(
        1, 'Images that DDS keeps until they are taken; the newest wins in any case.',
        between=(1, 1000))
    max_rate_hz: float = param(
        0.0, 'Images handled in a second at most; 0.0 is no limit.', between=(0.0, 1000.0),
        mutable=True)
    publish_latency: bool = param(
        False, "Publish on ~/latency the milliseconds from each image's stamp to its result.")


class ImageStream:
    """
    The newest image of a topic, handed over in a thread of its own; takes from now until close().

    A frame that cannot be used is dropped, counted by cause, and logged once in a while.

    :param handle: called with the image's own header and the frame, one at a time. The frame's
        bytes are used again when nobody refers to them. It counts what it publishes; what it
        raises counts as a dropped frame.
    :param hooks: told of the memory that raw images lie in, where it is used again and again.
    :param is_wanted: asked of each image as it comes; must not raise.
    """

    def __init__(
            self, node: ManagedNode, counts: FrameCounts,
            handle: Callable[[Header, Frame], None], *, hooks: MemoryHooks = NOBODY,
            is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._is_wanted = is_wanted
        self._node, self._counts, self._handle_frame = node, counts, handle
        self._latency = LatencyMeter(node, counts)
        self._worker = NewestWorker(
            self._handle, counts.drop, on_taken=partial(counts.took, QUEUE_AGE),
            max_rate_hz=lambda: node.parameters.max_rate_hz)
        self._read = image_reader(node)
        self._subscription = subscribe_images(
            node, self._receive, on_replaced=self._replace, hooks=hooks)

    def close(self) -> None:
        """Stop taking images, then wait for the one in hand."""
        self._subscription.close()
        self._worker.close()

    def _receive(self, message: np.ndarray) -> None:
        self._counts.receive()
        if self._is_wanted():
            self._worker.put(message)
        else:
            self._counts.drop(UNWANTED)

    def _replace(self) -> None:
        self._counts.receive()
        self._counts.drop(REPLACED)

    def _handle(self, message: np.ndarray) -> None:
        with dropping(self._node, self._counts):
            image = self._read(message)
            self._handle_frame(header_of(image), to_frame(image))
            self._latency.done(image.stamp)


@contextmanager
def dropping(node: ManagedNode, counts: FrameCounts) -> Iterator[None]:
    """
    Turn whatever is raised into a dropped frame, counted and logged by its cause.

    A GPU that failed ends the node's being active, too.
    """
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
        if isinstance(error, GpuFailedError):
            node.fail(error)


def subscribe_images(
        node: ManagedNode, on_message: Callable[[np.ndarray], None], *,
        on_replaced: Callable[[], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        hooks: MemoryHooks = NOBODY) -> SerializedSubscription:
    """
    Take `image` or `image/compressed`, as the node's ImageInputParameters say, as bytes.

    The arguments are those of subscribe_serialized.
    """
    parameters = node.parameters
    message_type, topic = image_topic(node, parameters)
    name = node.resolve_topic_name(topic)
    qos, why = image_qos(
        node, topic, preset=parameters.qos_preset, reliability=parameters.qos_reliability,
        depth=parameters.qos_depth)
    if why:
        node.get_logger().info(f'{name}: {qos.reliability.name.lower()} is asked for ({why}).')

    def tell(policy: str) -> None:
        node.get_logger().warning(incompatible_offer(node, name, policy))

    return subscribe_serialized(
        node, message_type, topic, qos, on_message, on_replaced=on_replaced, on_lost=on_lost,
        on_incompatible=tell, hooks=hooks if message_type is Image else NOBODY)


def why_no_image(node: ManagedNode) -> str:
    """Name the topic that an active node takes images from, and why none may come."""
    parameters = node.parameters
    if parameters is None:
        return ''
    message_type, topic = image_topic(node, parameters)
    why = why_silent(node, topic, f'sensor_msgs/msg/{message_type.__name__}')
    return f'on {node.resolve_topic_name(topic)}: {why}'


def image_topic(node: Node, parameters: ImageInputParameters) -> tuple[type, str]:
    """Return the type and the topic, as for create_subscription(), that images come from."""
    if parameters.image_transport == 'compressed':
        return CompressedImage, compressed_topic(node, 'image')
    return Image, 'image'


def image_reader(
        node: ManagedNode) -> Callable[[np.ndarray], ImageView | CompressedImageView]:
    """Return what reads the messages of subscribe_images."""
    return read_compressed_image if node.parameters.image_transport == 'compressed' else read_image


def header_of(image: ImageView | CompressedImageView) -> Header:
    header = Header(frame_id=image.frame_id)
    header.stamp.sec, header.stamp.nanosec = image.stamp
    return header


def compressed_topic(node: Node, topic: str) -> str:
    """Name the topic of compressed images beside `topic`, which may be remapped; so may it be."""
    name = f'{topic}/compressed'
    remapped = node.resolve_topic_name(name)
    if remapped != node.resolve_topic_name(name, only_expand=True):
        return remapped
    return f'{node.resolve_topic_name(topic)}/compressed'


def to_frame(image: ImageView | CompressedImageView) -> Frame:
    """
    See an image as a frame; a raw one without a copy of its pixels.

    :raises BadFrameError: when it is no image that can be used.
    """
    return _decompressed(image) if isinstance(image, CompressedImageView) else _raw(image)


def _raw(image: ImageView) -> Frame:
    if image.encoding not in ENCODINGS:
        return _through_cv_bridge(image)
    return Frame(
        image.data, image.width, image.height, image.step, image.encoding,
        bool(image.is_bigendian))


def _through_cv_bridge(image: ImageView) -> Frame:
    kind = 'unknown encoding'
    try:
        from cv_bridge import CvBridge
    except ImportError as error:
        raise BadFrameError(
            kind, f'Images encoded as {image.encoding!r} need cv_bridge.', cause=str(error),
            remedy=f'Install cv_bridge, or publish one of {", ".join(ENCODINGS)}.') from error
    try:
        message = Image(
            height=image.height, width=image.width, encoding=image.encoding, step=image.step,
            is_bigendian=image.is_bigendian, data=image.data.tobytes())
        return Frame.from_pixels(CvBridge().imgmsg_to_cv2(message, 'bgr8'))
    except BadFrameError:
        raise
    except Exception as error:  # CvBridgeError, or whatever its conversion raises.
        raise BadFrameError(
            kind, f'cv_bridge cannot read images encoded as {image.encoding!r}.',
            cause=str(error), remedy=f'Publish one of {", ".join(ENCODINGS)}.') from error


def _decompressed(image: CompressedImageView) -> Frame:
    """
    Read a JPEG or PNG.

    `format` is what image_transport writes: 'ENCODING; CODEC compressed STORED', or just 'CODEC'.
    """
    if 'compressedDepth' in image.format:
        raise BadFrameError(
            'unknown compression', f'{image.format!r} is a depth image, not a picture.',
            remedy='Subscribe to the topic of image/compressed.')
    encoded = image.data
    # UNCHANGED also leaves the orientation that a phone's JPEG asks for: so do other ROS nodes.
    pixels = cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED) if encoded.size else None
    if pixels is None:
        raise BadFrameError(
            'undecodable image',
            f'{encoded.size} bytes of format {image.format!r} are neither JPEG nor PNG.')
    if pixels.ndim == 3:
        if pixels.dtype == np.uint16:
            pixels = (pixels >> 8).astype(np.uint8)
        is_rgb = 'compressed rgb' in image.format  # Stored as if its red were blue.
        names = {3: 'rgb8' if is_rgb else 'bgr8', 4: 'rgba8' if is_rgb else 'bgra8'}
        return Frame.from_pixels(pixels, names[pixels.shape[2]])
    if pixels.dtype == np.uint16:
        return Frame.from_pixels(pixels, 'mono16')
    encoding = image.format.split(';')[0].strip()
    return Frame.from_pixels(pixels, encoding if encoding.startswith('bayer_') else 'mono8')
