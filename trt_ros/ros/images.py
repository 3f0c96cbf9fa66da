"""Images in: a topic of images, and its messages as frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
import traceback
from typing import Any

import cv2
import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, GpuFailedError, ScoreRangeError, TrtRosError
from trt_ros.ros.dds.cdr import CompressedImageView, ImageView, read_compressed_image, read_image
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks
from trt_ros.ros.dds.transport import SerializedSubscription, subscribe_serialized
from trt_ros.ros.diagnostics import QUEUE_AGE, FrameCounts, LatencyMeter
from trt_ros.ros.following import FollowingSubscription, wait_for_publishers
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.parameters import param
from trt_ros.ros.qos import PRESETS, image_qos, incompatible_offer, why_lost, why_silent
from trt_ros.ros.worker import REPLACED, UNWANTED, FairWorker
from trt_ros.vision.frame import DEPTH_ENCODINGS, ENCODINGS, Frame, refuse_depth


@dataclass(frozen=True)
class ImageInputParameters:
    """How a node takes its images."""

    image_transport: str = param(
        'raw',
        'Image transport: raw subscribes to `image`, compressed to `image/compressed`.',
        choices=('raw', 'compressed'),
    )
    qos_preset: str = param(
        'auto',
        'ROS QoS profile of the image subscriptions; auto follows qos_reliability.',
        choices=PRESETS,
    )
    qos_reliability: str = param(
        'auto',
        'Reliability of the image subscriptions; best_effort matches every publisher; auto '
        'uses that of qos_preset, where one is set, else reliable while all publishers are '
        'reliable and best_effort otherwise.',
        choices=('auto', 'best_effort', 'reliable'),
    )
    qos_depth: int = param(
        1,
        'Queue depth of the image subscriptions in messages; only the newest image is processed.',
        between=(1, 1000),
    )
    max_rate_hz: float = param(
        0.0,
        'Maximum rate of processed images in Hz; 0.0 sets no limit.',
        between=(0.001, 1000.0),
        or_zero=True,
        mutable=True,
    )
    publish_latency: bool = param(
        False,
        "Whether to publish the time from each image's stamp to its result on ~/latency, in "
        'milliseconds.',
    )


@dataclass(frozen=True)
class ImageTopicsParameters(ImageInputParameters):
    """How a node takes the images of one camera or of several."""

    image_topics: tuple[str, ...] = param(
        (),
        'Image topics, one per camera, with results on ~/TOPIC/...; empty subscribes to '
        '`image` only.',
    )
    batch_wait_ms: float = param(
        0.0,
        'Maximum time in milliseconds to wait for images of the other cameras before running a '
        'partial batch; 0.0 runs at once.',
        between=(0.0, 1000.0),
        mutable=True,
    )
    max_batch_size: int = param(
        4,
        'Maximum number of images of several cameras per batch; larger batches need more GPU '
        'memory.',
        between=(1, 64),
    )

    def batch_size(self) -> int:
        """How many images may go through the network together."""
        cameras = len(self.image_topics) or 1
        return min(self.max_batch_size, cameras)


@dataclass(frozen=True)
class ImageTopic:
    """
    A topic that images are taken from, and what becomes of them.

    :param name: as for create_subscription().
    :param counts: of its images.
    :param publish: called with the result, the image's own header and the frame; what it raises
        counts as a dropped frame.
    :param is_wanted: asked of each image as it comes; must not raise.
    """

    name: str
    counts: FrameCounts
    publish: Callable[[Any, Header, Frame], None]
    is_wanted: Callable[[], bool]


@dataclass(frozen=True)
class _Taken:
    topic: ImageTopic
    stamp: tuple[int, int]
    header: Header
    frame: Frame


class ImageStream:
    """
    Takes the newest images of some topics and infers, in one thread, from now until close().

    A frame that cannot be used is dropped, counted by cause, and logged once in a while; those
    that came with it are not.

    :param counts: of all images; told how long things take.
    :param infer: gives a result for each of some frames, of a topic each. Their bytes are used
        again when nobody refers to them.
    :param max_batch: how many frames it takes at once.
    :param hooks: told of the memory that raw images lie in, where it is used again and again.
    """

    def __init__(
        self,
        node: ManagedNode,
        counts: FrameCounts,
        topics: Sequence[ImageTopic],
        infer: Callable[[list[Frame]], Sequence[Any]],
        *,
        max_batch: int = 1,
        hooks: MemoryHooks = NO_HOOKS,
    ) -> None:
        self._node, self._counts, self._topics, self._infer = node, counts, topics, infer
        self._latency = LatencyMeter(node, counts)
        self._read = image_reader(node)
        with ExitStack() as undo:
            self._worker = undo.enter_context(
                closing(
                    FairWorker(
                        self._handle,
                        lambda number, cause: topics[number].counts.drop(cause),
                        lanes=len(topics),
                        max_batch=max_batch,
                        on_taken=partial(counts.took, QUEUE_AGE),
                        max_rate_hz=lambda: node.parameters.max_rate_hz,
                        wait_seconds=lambda: node.parameters.batch_wait_ms / 1e3,
                    )
                )
            )
            wait_for_input(
                node, [image_topic(node, node.parameters, topic.name)[1] for topic in topics]
            )
            for number, topic in enumerate(topics):
                undo.enter_context(
                    closing(
                        subscribe_images(
                            node,
                            partial(self._receive, number),
                            topic.name,
                            on_replaced=partial(self._replace, topic),
                            on_missed=topic.counts.miss,
                            hooks=hooks,
                        )
                    )
                )
            self._owned = undo.pop_all()

    def close(self) -> None:
        """Stop taking images, then wait for those in hand."""
        self._owned.close()

    def _receive(self, number: int, message: np.ndarray) -> None:
        topic = self._topics[number]
        topic.counts.receive()
        if topic.is_wanted():
            self._worker.put(message, number)
        else:
            topic.counts.drop(UNWANTED)

    def _replace(self, topic: ImageTopic) -> None:
        topic.counts.receive()
        topic.counts.drop(REPLACED)

    def _handle(self, messages: list[tuple[int, np.ndarray]]) -> None:
        taken = []
        for number, message in messages:
            topic = self._topics[number]
            with self._dropping(topic):
                image = self._read(message)
                taken.append(_Taken(topic, image.stamp, header_of(image), to_frame(image)))
        for each, result in self._results(taken):
            with self._dropping(each.topic):
                with self._counts.timed('publish'):
                    each.topic.publish(result, each.header, each.frame)
                each.topic.counts.publish()
                self._latency.done(each.stamp)

    def _results(self, taken: list[_Taken]) -> list[tuple[_Taken, Any]]:
        if not taken:
            return []
        try:
            with self._counts.timed('infer'):
                return list(zip(taken, self._infer([each.frame for each in taken])))
        except Exception as error:
            if isinstance(error, (BadFrameError, ScoreRangeError)) and len(taken) > 1:
                # One of them: which?
                return [pair for each in taken for pair in self._results([each])]
            for each in taken:
                with self._dropping(each.topic):
                    raise error
            return []

    def _dropping(self, topic: ImageTopic) -> AbstractContextManager[None]:
        of = f' of {self._node.resolve_topic_name(topic.name)}' if len(self._topics) > 1 else ''
        return dropping(self._node, topic.counts, of)


@contextmanager
def dropping(node: ManagedNode, counts: FrameCounts, of: str = '') -> Iterator[None]:
    """
    Turn whatever is raised into a dropped frame, counted and logged by its cause.

    A GPU that failed ends the node's being active, too.

    :param of: says in the log which frame it was.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, TrtRosError):
            problem, why = error.problem, str(error)
        else:
            problem, why = repr(error), traceback.format_exc()
        cause = getattr(error, 'kind', type(error).__name__)
        if counts.drop(cause, problem):
            node.get_logger().error(f'A frame{of} was dropped ({cause}). {why}')
        if isinstance(error, GpuFailedError):
            node.fail(error)


def subscribe_images(
    node: ManagedNode,
    on_message: Callable[[np.ndarray], None],
    topic: str = 'image',
    *,
    on_replaced: Callable[[], None] | None = None,
    on_lost: Callable[[], None] | None = None,
    on_missed: Callable[[int], None] | None = None,
    hooks: MemoryHooks = NO_HOOKS,
) -> SerializedSubscription | FollowingSubscription:
    """
    Take `topic` or `topic`/compressed, as the node's ImageInputParameters say, as bytes.

    The other arguments are those of subscribe_serialized.
    """
    message_type, topic = image_topic(node, node.parameters, topic)
    return subscribe_input(
        node,
        message_type,
        topic,
        on_message,
        on_replaced=on_replaced,
        on_lost=on_lost,
        on_missed=on_missed,
        hooks=hooks if message_type is Image else NO_HOOKS,
    )


def subscribe_input(
    node: ManagedNode,
    message_type: type,
    topic: str,
    on_message: Callable[[np.ndarray], None],
    **more: Any,
) -> SerializedSubscription | FollowingSubscription:
    """
    Take messages as bytes, with the QoS that the node's ImageInputParameters say; tell of others.

    The arguments are those of subscribe_serialized.
    """
    parameters = node.parameters
    name = node.resolve_topic_name(topic)
    qos, why = image_qos(
        node,
        topic,
        preset=parameters.qos_preset,
        reliability=parameters.qos_reliability,
        depth=parameters.qos_depth,
    )
    is_following = bool(why)
    if is_following:
        node.get_logger().info(f'{name}: {qos.reliability.name.lower()} is asked for ({why}).')

    def tell(policy: str) -> None:
        if policy != 'RELIABILITY' or not is_following:
            node.get_logger().warning(incompatible_offer(node, name, policy))

    subscription = subscribe_serialized(
        node, message_type, topic, qos, on_message, on_incompatible=tell, **more
    )
    return FollowingSubscription(node, topic, qos, subscription) if is_following else subscription


def wait_for_input(node: ManagedNode, topics: Sequence[str]) -> None:
    """
    Wait a moment for the publishers of some topics, where they decide how these are subscribed to.

    :param topics: those of subscribe_input.
    """
    if node.parameters.qos_preset == node.parameters.qos_reliability == 'auto':
        wait_for_publishers(node, topics)


def why_images_lost(node: ManagedNode, topic: str = 'image') -> str:
    """Name a topic that an active node takes images from, and why some may be lost."""
    _, topic = image_topic(node, node.parameters, topic)
    return f'on {node.resolve_topic_name(topic)}: {why_lost(node, topic)}'


def why_no_image(node: ManagedNode, topic: str = 'image') -> str:
    """Name a topic that an active node takes images from, and why none may come."""
    parameters = node.parameters
    if parameters is None:
        return ''
    message_type, topic = image_topic(node, parameters, topic)
    why = why_silent(node, topic, f'sensor_msgs/msg/{message_type.__name__}')
    return f'on {node.resolve_topic_name(topic)}: {why}'


def image_topic(node: Node, parameters: ImageInputParameters, topic: str) -> tuple[type, str]:
    """Return the type and the topic, as for create_subscription(), that images come from."""
    if parameters.image_transport == 'compressed':
        return CompressedImage, compressed_topic(node, topic)
    return Image, topic


def image_reader(node: ManagedNode) -> Callable[[np.ndarray], ImageView | CompressedImageView]:
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
    if image.encoding not in (*ENCODINGS, *DEPTH_ENCODINGS):
        return _through_cv_bridge(image)
    return Frame(
        image.data, image.width, image.height, image.step, image.encoding, bool(image.is_bigendian)
    )


def _through_cv_bridge(image: ImageView) -> Frame:
    kind = 'unknown encoding'
    try:
        from cv_bridge import CvBridge
    except ImportError as error:
        raise BadFrameError(
            kind,
            f'Images encoded as {image.encoding!r} need cv_bridge.',
            cause=str(error),
            remedy=f'Install cv_bridge, or publish one of {", ".join(ENCODINGS)}.',
        ) from error
    try:
        message = Image(
            height=image.height,
            width=image.width,
            encoding=image.encoding,
            step=image.step,
            is_bigendian=image.is_bigendian,
            data=image.data.tobytes(),
        )
        return Frame.from_pixels(CvBridge().imgmsg_to_cv2(message, 'bgr8'))
    except BadFrameError:
        raise
    except Exception as error:  # CvBridgeError, or whatever its conversion raises.
        raise BadFrameError(
            kind,
            f'cv_bridge cannot read images encoded as {image.encoding!r}.',
            cause=str(error),
            remedy=f'Publish one of {", ".join(ENCODINGS)}.',
        ) from error


def _decompressed(image: CompressedImageView) -> Frame:
    """
    Read a JPEG or PNG.

    `format` is what image_transport writes: 'ENCODING; CODEC compressed STORED', or just 'CODEC'.
    """
    if 'compressedDepth' in image.format:
        raise BadFrameError(
            'unknown compression',
            f'{image.format!r} is a depth image, not a picture.',
            remedy='Subscribe to the topic of image/compressed.',
        )
    encoded = image.data
    # UNCHANGED also leaves the orientation that a phone's JPEG asks for: so do other ROS nodes.
    pixels = cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED) if encoded.size else None
    if pixels is None:
        raise BadFrameError(
            'undecodable image',
            f'{encoded.size} bytes of format {image.format!r} are neither JPEG nor PNG.',
        )
    if pixels.ndim == 3:
        if pixels.dtype == np.uint16:
            pixels = (pixels >> 8).astype(np.uint8)
        is_rgb = 'compressed rgb' in image.format  # Stored as if its red were blue.
        names = {3: 'rgb8' if is_rgb else 'bgr8', 4: 'rgba8' if is_rgb else 'bgra8'}
        return Frame.from_pixels(pixels, names[pixels.shape[2]])
    encoding = image.format.split(';')[0].strip()
    refuse_depth(encoding)
    if pixels.dtype == np.uint16:
        return Frame.from_pixels(pixels, 'mono16')
    return Frame.from_pixels(pixels, encoding if encoding.startswith('bayer_') else 'mono8')
