"""Codecs of images, raw or compressed."""

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from trt_ros.ros.codecs.codec import Codec, Content
from trt_ros.ros.dds.cdr import CompressedImageView, ImageView, read_compressed_image, read_image
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks
from trt_ros.ros.frames import to_frame
from trt_ros.ros.lifecycle import ManagedNode


class ImageCodec(Codec):
    """Images of one topic; the values are frames."""

    noun = 'image'

    #: Returns the fields of a message.
    view: Callable[[Any], ImageView | CompressedImageView]

    def frame(self, image: Any) -> Content:
        """Return the frame of a view."""
        return Content(to_frame(image), image.frame_id, image.stamp)

    def reader(self) -> Callable[[Any], Content]:
        """Return the function that converts a message to a frame; see Codec.reader."""
        frame, view = self.frame, self.view
        return lambda message: frame(view(message))


class RawImageCodec(ImageCodec):
    """Raw images, whose pixels are not copied."""

    message_type = Image

    def hooks(self, hooks: MemoryHooks) -> MemoryHooks:
        """Return the hooks, with the expected size of a message with a long header."""
        nbytes = hooks.expected_nbytes
        return hooks._replace(expected_nbytes=nbytes + 4096 if nbytes else 0)

    view = staticmethod(read_image)


class CompressedImageCodec(ImageCodec):
    """
    Compressed images of `topic`/compressed.

    :param node: of TransportParameters; its `jpegs_on_gpu` is as for to_frame().
    :param topic: topic of the raw images.
    """

    message_type = CompressedImage

    def __init__(self, node: ManagedNode, topic: str) -> None:
        super().__init__(node, compressed_topic(node, topic))
        self._max_pixels = node.parameters.max_image_pixels
        self._jpegs_on_gpu = node.jpegs_on_gpu

    def hooks(self, hooks: MemoryHooks) -> MemoryHooks:
        """Return no hooks: the messages are decoded."""
        return NO_HOOKS

    view = staticmethod(read_compressed_image)

    def frame(self, image: CompressedImageView) -> Content:
        """Return the decoded frame of a view."""
        frame = to_frame(image, self._jpegs_on_gpu, self._max_pixels)
        return Content(frame, image.frame_id, image.stamp)


def image_codec(node: ManagedNode, topic: str = 'image') -> ImageCodec:
    """Return the codec of an image topic by the parameters of the node, a TransportParameters."""
    if node.parameters.image_transport == 'compressed':
        return CompressedImageCodec(node, topic)
    return RawImageCodec(node, topic)


def compressed_topic(node: Node, topic: str) -> str:
    """Return the topic of compressed images for `topic`; both may be remapped."""
    name = f'{topic}/compressed'
    remapped = node.resolve_topic_name(name)
    if remapped != node.resolve_topic_name(name, only_expand=True):
        return remapped
    return f'{node.resolve_topic_name(topic)}/compressed'
