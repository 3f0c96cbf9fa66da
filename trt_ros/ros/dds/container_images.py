"""Images by pointer from C++ nodes of the same process, in a container of rclcpp_components."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import threading
import traceback
from typing import Any, NamedTuple, Protocol

import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_policy_name_from_kind
from sensor_msgs.msg import Image

from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds.cdr import ImageView
from trt_ros.ros.dds.rcl import MemoryHooks
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks

#: Attribute of a node in a C++ container: the functions that subscribe to images there.
CONTAINER_IMAGES = 'container_images'


class TakenImage(NamedTuple):
    """
    A sensor_msgs/Image in memory of the container, which it keeps allocated.

    :param data: a read-only buffer of bytes.
    :param gid: identifier of the publisher in DDS; b'' if the image came by pointer.
    """

    seconds: int
    nanoseconds: int
    frame_id: str
    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: Any
    gid: bytes

    def view(self) -> ImageView:
        """Return the image, whose data borrows the memory of the container."""
        data = memoryview(self.data)
        return ImageView(
            (self.seconds, self.nanoseconds),
            self.frame_id,
            self.height,
            self.width,
            self.encoding,
            self.is_bigendian,
            self.step,
            np.frombuffer(data, np.uint8) if data.nbytes else np.empty(0, np.uint8),
        )


class ContainerImages(Protocol):
    """Subscriptions to images in a node of the container; cpp/images.cpp implements it."""

    def open(self, topic: str, is_reliable: bool, depth: int) -> Any:
        """
        Subscribe.

        :param topic: full name, remapped.
        :param depth: number of images that wait for take(); a newer one replaces the oldest.
        """
        ...

    def take(self, subscription: Any) -> tuple[int, Sequence[int], Sequence[Sequence[Any]]]:
        """
        Wait until images arrive, or wake() or close() is called; the GIL is released meanwhile.

        :returns: number of images replaced by newer ones; kinds of incompatible QoS policies of
            new publishers; the fields of a TakenImage for each waiting image, oldest first.
        """
        ...

    def wake(self, subscription: Any) -> None:
        """Wake the current or next take(), which then returns; from any thread."""
        ...

    def close(self, subscription: Any) -> None:
        """Unsubscribe; later calls of take() return at once. May be called twice."""
        ...


def images_of(node: Node, message_type: type, qos: QoSProfile) -> ContainerImages | None:
    """Return the functions that subscribe to images by pointer; None where that is impossible."""
    images: ContainerImages | None = getattr(node, CONTAINER_IMAGES, None)
    return images if message_type is Image and intra.is_requested(node, qos) else None


def image_node_name(name: str) -> str:
    """Return the name of the node that subscribes to images by pointer for node `name`."""
    return f'_{name}_images'


class ContainerSubscription:
    """
    A subscription to images by pointer, in a thread of its own.

    Images from Python nodes of the process pass by reference, too. The callbacks get an ImageView
    of an image from C++, and the serialized message of one from Python.

    :param by_reference: whether Python nodes of this process pass images by reference.
    :param hooks: called for the memory of publishers in Python, where that is reused.
    """

    def __init__(
        self,
        images: ContainerImages,
        node: Node,
        topic: str,
        qos: QoSProfile,
        callbacks: MessageCallbacks,
        hooks: MemoryHooks,
        *,
        by_reference: bool,
    ) -> None:
        self._images, self._node = images, node
        self._name = node.resolve_topic_name(topic)
        self._callbacks = callbacks
        self._on_lost = callbacks.on_lost or callbacks.on_replaced or (lambda: None)
        self._pools = intra.RegisteredPools(hooks)
        self._lock = threading.Lock()  # Held while the subscription is replaced.
        self._stopping = threading.Event()
        self._subscription: Any = None
        # First, so that no image is lost that a Python node sends through DDS meanwhile.
        self._buffer = (
            intra.IntraProcessBuffer(node, Image, topic, qos, self._wake) if by_reference else None
        )
        try:
            self._subscription = self._open(qos)
        except Exception:
            self._close_buffer()
            raise
        self._wake()
        self._thread = threading.Thread(target=self._run, name='images')
        self._thread.start()

    def change_qos(self, qos: QoSProfile) -> None:
        """Subscribe again; images published meanwhile are lost."""
        if self._buffer is not None:
            self._buffer.change_qos(qos)
        with self._lock:
            self._images.close(self._subscription)
            self._subscription = self._open(qos)

    def is_settled(self) -> bool:
        """Return True: changes of QoS take effect at once."""
        return True

    def close(self) -> None:
        """Stop receiving and wait for the image in progress; may be called twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._close_buffer()
        self._images.close(self._subscription)
        self._thread.join()
        self._pools.close()

    def _open(self, qos: QoSProfile) -> Any:
        is_reliable = qos.reliability == ReliabilityPolicy.RELIABLE
        return self._images.open(self._name, is_reliable, max(1, qos.depth))

    def _wake(self) -> None:
        if self._subscription is not None:
            self._images.wake(self._subscription)

    def _close_buffer(self) -> None:
        if self._buffer is not None:
            self._buffer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                subscription = self._subscription
            try:
                self._deliver(*self._images.take(subscription))
            except Exception:
                self._node.get_logger().error(
                    f'Failed to take images.\n{traceback.format_exc()}',
                    throttle_duration_sec=10.0,
                )
                self._stopping.wait(0.1)

    def _deliver(
        self, lost: int, incompatible: Sequence[int], taken: Sequence[Sequence[Any]]
    ) -> None:
        for kind in incompatible:
            if self._callbacks.on_incompatible is not None:
                self._callbacks.on_incompatible(qos_policy_name_from_kind(kind))
        for _ in range(lost + (self._buffer.take_lost() if self._buffer else 0)):
            self._on_lost()
        messages = [*self._by_reference(), *self._by_pointer(taken)]
        if self._callbacks.on_replaced is not None:
            for _ in messages[:-1]:
                self._callbacks.on_replaced()
            del messages[:-1]
        while messages and not self._stopping.is_set():
            self._callbacks.on_message(messages.pop(0))

    def _by_reference(self) -> Iterator[np.ndarray]:
        """Yield the waiting messages of Python nodes."""
        while self._buffer is not None and (message := self._buffer.take()) is not None:
            self._pools.add(message)
            yield message

    def _by_pointer(self, taken: Sequence[Sequence[Any]]) -> Iterator[ImageView]:
        """Yield images, but none that came by reference, too."""
        for fields in taken:
            image = TakenImage(*fields)
            if self._buffer is None or not (image.gid and self._buffer.is_copy(image.gid)):
                yield image.view()
