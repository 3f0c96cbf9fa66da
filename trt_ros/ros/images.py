"""Image subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
import traceback
from typing import Any

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, GpuFailedError, ScoreRangeError, TrtRosError, printable
from trt_ros.profiling import mark
from trt_ros.ros.dds.cdr import CompressedImageView, ImageView, read_compressed_image, read_image
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import SerializedSubscription, subscribe_serialized
from trt_ros.ros.diagnostics import QUEUE_AGE, FrameCounts, LatencyMeter
from trt_ros.ros.following import FollowingSubscription, wait_for_publishers
from trt_ros.ros.frames import to_frame
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.parameters import param
from trt_ros.ros.qos import PRESETS, image_qos, incompatible_offer, why_lost, why_silent
from trt_ros.ros.worker import REPLACED, UNWANTED, FairWorker
from trt_ros.vision.frame import Frame
from trt_ros.vision.pixel_limit import PixelLimit


@dataclass(frozen=True)
class InputParameters:
    """Parameters of subscriptions to images and what belongs to them."""

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
class TransportParameters(PixelLimit):
    """Parameters of the transport of images."""

    image_transport: str = param(
        'raw',
        'Image transport: raw subscribes to `image`, compressed to `image/compressed`.',
        choices=('raw', 'compressed'),
    )


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class ImageInputParameters(InputParameters, TransportParameters):
    """Parameters of image subscriptions."""


@dataclass(frozen=True)
class ImageTopicsParameters(ImageInputParameters):
    """Parameters of image subscriptions to one or several cameras."""

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
    jpeg_decoder: str = param(
        'auto',
        'Where JPEG images of image_transport compressed are decoded: gpu needs nvImageCodec; '
        'auto uses the CPU without it.',
        choices=('auto', 'cpu', 'gpu'),
    )
    max_batch_size: int = param(
        4,
        'Maximum number of images of several cameras per batch; larger batches need more GPU '
        'memory.',
        between=(1, 64),
    )

    def batch_size(self) -> int:
        """Return the maximum number of images per batch."""
        cameras = len(self.image_topics) or 1
        return min(self.max_batch_size, cameras)


@dataclass(frozen=True)
class ImageTopic:
    """
    An image topic, with its counters and callbacks.

    :param name: as for create_subscription().
    :param counts: frame counters of this topic.
    :param publish: called with the result, the image's own header and the frame; an exception
        counts as a dropped frame.
    :param is_wanted: evaluated for each image on arrival; must not raise.
    """

    name: str
    counts: FrameCounts
    publish: Callable[[Any, Header, Frame], None]
    is_wanted: Callable[[], bool]


@dataclass(frozen=True)
class _Input:
    topic: ImageTopic
    stamp: tuple[int, int]
    header: Header
    frame: Frame


class ImageStream:
    """
    Image subscriptions whose newest images are inferred in threads of its own, until close().

    A bad frame is dropped, counted by cause, and logged at a limited rate; the other frames of its
    batch are processed.

    :param counts: frame counters and timings of all topics together.
    :param infer: returns a result per frame; the frames are of different topics. Their memory is
        reused when it is no longer referenced. Up to `in_flight` calls overlap; results are
        published in order.
    :param max_batch: maximum number of frames per call of `infer`.
    :param hooks: called for the memory of raw images, where that is reused.
    :param jpegs_on_gpu: as for to_frame().
    """

    def __init__(
        self,
        node: ManagedNode,
        counts: FrameCounts,
        topics: Sequence[ImageTopic],
        infer: Callable[[list[Frame]], Sequence[Any]],
        *,
        max_batch: int = 1,
        in_flight: int = 1,
        hooks: MemoryHooks = NO_HOOKS,
        jpegs_on_gpu: bool = False,
    ) -> None:
        self._node, self._counts, self._topics, self._infer = node, counts, topics, infer
        self._jpegs_on_gpu = jpegs_on_gpu
        self._max_pixels = node.parameters.max_image_pixels
        self._latency = LatencyMeter(node, counts)
        self._read = image_reader(node)
        names = {topic.name: image_topic(node, node.parameters, topic.name)[1] for topic in topics}
        self._origins = {
            topic: f' of {node.resolve_topic_name(name)}' for topic, name in names.items()
        }
        with ExitStack() as undo:
            self._worker = undo.enter_context(
                closing(
                    FairWorker(
                        self._handle,
                        lambda number, cause: topics[number].counts.drop(cause),
                        lanes=len(topics),
                        deliver=self._publish,
                        max_batch=max_batch,
                        in_flight=in_flight,
                        on_taken=partial(counts.record_duration, QUEUE_AGE),
                        max_rate_hz=lambda: node.parameters.max_rate_hz,
                        wait_seconds=lambda: node.parameters.batch_wait_ms / 1e3,
                    )
                )
            )
            wait_for_input(node, list(names.values()))
            for number, topic in enumerate(topics):
                undo.enter_context(
                    closing(
                        subscribe_images(
                            node,
                            MessageCallbacks(
                                partial(self._receive, number),
                                on_replaced=partial(self._replace, topic),
                                on_missed=topic.counts.miss,
                            ),
                            topic.name,
                            hooks,
                        )
                    )
                )
            self._owned = undo.pop_all()

    def close(self) -> None:
        """Stop receiving, then wait for the frames in progress."""
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

    def _handle(self, messages: list[tuple[int, np.ndarray]]) -> list[tuple[_Input, Any]]:
        taken = []
        for number, message in messages:
            topic = self._topics[number]
            with self._dropping(topic), mark('read'):
                image = self._read(message)
                frame = to_frame(image, self._jpegs_on_gpu, self._max_pixels)
                taken.append(_Input(topic, image.stamp, header_of(image), frame))
        return self._results(taken)

    def _publish(self, results: list[tuple[_Input, Any]]) -> None:
        for each, result in results:
            with self._dropping(each.topic):
                with self._counts.timed('publish'):
                    each.topic.publish(result, each.header, each.frame)
                each.topic.counts.publish()
                self._latency.done(each.stamp)

    def _results(self, taken: list[_Input]) -> list[tuple[_Input, Any]]:
        if not taken:
            return []
        try:
            with self._counts.timed('infer'):
                return list(zip(taken, self._infer([each.frame for each in taken])))
        except Exception as error:
            if isinstance(error, (BadFrameError, ScoreRangeError)) and len(taken) > 1:
                # Run them one by one to find the bad one.
                return [pair for each in taken for pair in self._results([each])]
            for each in taken:
                with self._dropping(each.topic):
                    raise error
            return []

    def _dropping(self, topic: ImageTopic) -> AbstractContextManager[None]:
        return dropping(self._node, topic.counts, self._origins[topic.name])


@contextmanager
def dropping(node: ManagedNode, counts: FrameCounts, origin: str = '') -> Iterator[None]:
    """
    Turn an exception into a dropped frame, counted and logged by its cause.

    A failed GPU also deactivates the node.

    :param origin: identifies the frame in the log, as in ' of /camera/image'.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, TrtRosError):
            problem, why = error.problem, str(error)
        else:
            problem, why = repr(error), printable(traceback.format_exc(), lines=True)
        cause = cause_of(error)
        if counts.drop(cause, problem):
            node.get_logger().error(f'A frame{origin} was dropped ({cause}). {why}')
        if isinstance(error, GpuFailedError):
            node.fail(error)


def cause_of(error: Exception) -> str:
    """Return the cause under which a frame is counted that was dropped because of an error."""
    return getattr(error, 'kind', type(error).__name__)


def subscribe_images(
    node: ManagedNode,
    callbacks: MessageCallbacks,
    topic: str = 'image',
    hooks: MemoryHooks = NO_HOOKS,
) -> SerializedSubscription | FollowingSubscription:
    """
    Subscribe to the serialized images of `topic` or `topic`/compressed.

    The node's ImageInputParameters choose which. The other arguments are those of
    subscribe_serialized().
    """
    message_type, topic = image_topic(node, node.parameters, topic)
    hooks = hooks if message_type is Image else NO_HOOKS
    return subscribe_input(node, message_type, topic, callbacks, hooks)


def subscribe_input(
    node: ManagedNode,
    message_type: type,
    topic: str,
    callbacks: MessageCallbacks,
    hooks: MemoryHooks = NO_HOOKS,
    *,
    depth: int | None = None,
) -> SerializedSubscription | FollowingSubscription:
    """
    Subscribe to serialized messages with the QoS of the node's InputParameters.

    Incompatible publishers are logged. The other arguments are those of subscribe_serialized().

    :param depth: queue depth; None for the parameter qos_depth.
    """
    parameters = node.parameters
    name = node.resolve_topic_name(topic)
    qos, why = image_qos(
        node,
        topic,
        preset=parameters.qos_preset,
        reliability=parameters.qos_reliability,
        depth=depth or parameters.qos_depth,
    )
    is_following = bool(why)
    if is_following:
        node.get_logger().info(f'{name}: requesting {qos.reliability.name.lower()} ({why}).')

    def report(policy: str) -> None:
        if policy != 'RELIABILITY' or not is_following:
            node.get_logger().warning(incompatible_offer(node, name, policy))

    sizes = node.largest_nbytes
    sizes.pop(name, None)

    def receive(message: np.ndarray | ImageView) -> None:
        if message.size > sizes.get(name, 0):
            sizes[name] = message.size
        callbacks.on_message(message)

    subscription = subscribe_serialized(
        node,
        message_type,
        topic,
        qos,
        replace(callbacks, on_message=receive, on_incompatible=report),
        hooks,
    )
    return FollowingSubscription(node, topic, qos, subscription) if is_following else subscription


def wait_for_input(node: ManagedNode, topics: Sequence[str]) -> None:
    """
    Wait briefly for the publishers of topics, if their QoS decides that of the subscriptions.

    :param topics: as for subscribe_input().
    """
    if node.parameters.qos_preset == node.parameters.qos_reliability == 'auto':
        wait_for_publishers(node, topics)


def why_images_lost(node: ManagedNode, topic: str = 'image') -> str:
    """Return an image topic and the likely cause of lost images, for an active node."""
    _, topic = image_topic(node, node.parameters, topic)
    return f'on {node.resolve_topic_name(topic)}: {why_lost(node, topic)}'


def why_no_image(node: ManagedNode, topic: str = 'image') -> str:
    """Return an image topic and the likely cause of receiving nothing, for an active node."""
    parameters = node.parameters
    if parameters is None:
        return ''
    message_type, topic = image_topic(node, parameters, topic)
    why = why_silent(node, topic, f'sensor_msgs/msg/{message_type.__name__}')
    return f'on {node.resolve_topic_name(topic)}: {why}'


def image_topic(node: Node, parameters: ImageInputParameters, topic: str) -> tuple[type, str]:
    """Return message type and topic of an image subscription, for create_subscription()."""
    if parameters.image_transport == 'compressed':
        return CompressedImage, compressed_topic(node, topic)
    return Image, topic


def message_nbytes(image_nbytes: int) -> int:
    """Return the room for a message with an image of this size, and a long header; 0 for 0."""
    return image_nbytes + 4096 if image_nbytes else 0


def image_reader(node: ManagedNode) -> Callable[[np.ndarray], ImageView | CompressedImageView]:
    """Return the function that reads the messages of subscribe_images()."""
    return read_compressed_image if node.parameters.image_transport == 'compressed' else read_image


def header_of(image: ImageView | CompressedImageView) -> Header:
    """Return the header of an image as a message."""
    header = Header(frame_id=image.frame_id)
    header.stamp.sec, header.stamp.nanosec = image.stamp
    return header


def compressed_topic(node: Node, topic: str) -> str:
    """Return the topic of compressed images for `topic`; both may be remapped."""
    name = f'{topic}/compressed'
    remapped = node.resolve_topic_name(name)
    if remapped != node.resolve_topic_name(name, only_expand=True):
        return remapped
    return f'{node.resolve_topic_name(topic)}/compressed'
