"""Images by pointer between nodes of a container of rclcpp_components."""

from collections.abc import Callable, Sequence
import threading
from typing import Any, Protocol

import numpy as np
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_policy_name_from_kind
from sensor_msgs.msg import Image

from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds.cdr import ImageView, read_image
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks, taking_thread

#: Attribute of a node in a C++ container: the functions for images there.
CONTAINER_IMAGES = 'container_images'


class ContainerImages(Protocol):
    """Images from and to other nodes of the container; cpp/images.cpp implements it."""

    def open(self, topic: str, is_reliable: bool, depth: int) -> Any:
        """Subscribe to a full name; of `depth` waiting images, a newer one replaces the oldest."""

    def take(self, subscription: Any) -> tuple[int, Sequence[int], Sequence[Sequence[Any]]]:
        """
        Wait until images arrive, or wake() or close() is called; the GIL is released meanwhile.

        :returns: number of images replaced by newer ones; kinds of incompatible QoS policies of
            new publishers; seconds, nanoseconds and the further fields of an ImageView for each
            waiting image, oldest first. Its data, read-only, keep it allocated.
        """

    def wake(self, subscription: Any) -> None:
        """Wake the current or next take(), which then returns; from any thread."""

    def close(self, subscription: Any) -> None:
        """Unsubscribe; later calls of take() return at once. May be called twice."""

    def advertise(self, topic: str, gid: bytes, is_reliable: bool, depth: int) -> Any:
        """
        Return a publisher to subscriptions by pointer, which lives as long as the returned object.

        :param topic: full name, remapped.
        :param gid: identifier in DDS of the publisher of the same images there. Subscriptions by
            pointer ignore what it sends.
        """

    def publish(self, publisher: Any, *image: Any) -> int:
        """Copy an ImageView's fields to the subscriptions by pointer; return their number."""


def images_of(node: Node, message_type: Any, qos: QoSProfile) -> ContainerImages | None:
    """Return the functions for images by pointer; None where that is impossible."""
    images: ContainerImages | None = getattr(node, CONTAINER_IMAGES, None)
    return images if message_type is Image and intra.is_requested(node, qos) else None


def image_node_name(name: str) -> str:
    """Return the name of the node that subscribes to images by pointer for node `name`."""
    return f'_{name}_images'


class ContainerSubscription:
    """A subscription to images by pointer, in its own thread; the callbacks get ImageViews."""

    def __init__(
        self,
        images: ContainerImages,
        node: Node,
        topic: str,
        qos: QoSProfile,
        callbacks: MessageCallbacks,
    ) -> None:
        self._images, self._callbacks = images, callbacks
        self._on_lost = callbacks.on_lost or callbacks.on_replaced or (lambda: None)
        self._stopping = threading.Event()
        self._subscription = images.open(node.resolve_topic_name(topic), *_arguments(qos))
        self._thread = taking_thread(node, self._stopping, self._take, 'images')
        self._thread.start()

    def poll(self) -> None:
        """Do nothing: images are delivered when they come."""

    def close(self) -> None:
        """Stop receiving and wait for the image in progress; may be called twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._images.close(self._subscription)
        self._thread.join()

    def _take(self) -> None:
        lost, incompatible, taken = self._images.take(self._subscription)
        for kind in incompatible:
            if self._callbacks.on_incompatible is not None:
                self._callbacks.on_incompatible(qos_policy_name_from_kind(kind))
        for _ in range(lost):
            self._on_lost()
        images = list(taken)
        if self._callbacks.on_replaced is not None:
            for _ in images[:-1]:
                self._callbacks.on_replaced()
            del images[:-1]
        while images and not self._stopping.is_set():
            self._callbacks.on_message(_view(*images.pop(0)))


def container_deliver(
    images: ContainerImages, publisher: Publisher, gid: bytes
) -> Callable[[np.ndarray], int]:
    """Return the side of a publisher that serves by pointer, as intra_process_deliver()."""
    ours = images.advertise(publisher.topic_name, gid, *_arguments(publisher.qos_profile))
    return lambda message: images.publish(ours, *read_image(message))


def _view(seconds: int, nanoseconds: int, *fields: Any) -> ImageView:
    *others, data = fields
    view = memoryview(data)
    pixels = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    return ImageView._make([(seconds, nanoseconds), *others, pixels])


def _arguments(qos: QoSProfile) -> tuple[bool, int]:
    return qos.reliability == ReliabilityPolicy.RELIABLE, max(1, qos.depth)
