"""Codecs of images: raw, compressed or as packets of a video."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from struct import Struct
from typing import Any

from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from trt_ros.errors import ParameterError
from trt_ros.ros.codecs.codec import Codec, Content, Stamp
from trt_ros.ros.dds.cdr import EncodedView, ImageView, read_compressed_image, read_image
from trt_ros.ros.frames import VIDEO_READERS, to_frame
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.message_types import message_class
from trt_ros.ros.qos import type_name
from trt_ros.video import VideoDecoder
from trt_ros.vision.frame import Frame

#: Suffixes of topics of videos: our own, ffmpeg_image_transport's, Foxglove's transport's.
VIDEO_TRANSPORTS = ('video', 'ffmpeg', 'foxglove')


class ImageCodec(Codec):
    """Images of one topic; the values are frames."""

    noun = 'image'


class RawImageCodec(ImageCodec):
    """Raw images, whose pixels are not copied."""

    message_type = Image

    def frame(self, image: ImageView) -> Content:
        """Return the frame of a view."""
        return Content(to_frame(image), image.frame_id, image.stamp)

    def reader(self) -> Callable[[Any], Content]:
        """Return the function that converts a message; one with the last header is not parsed."""
        known = unknown = -1, 0, Struct(''), b'', b'', Content(None, '', (0, 0))

        def read(message: Any) -> Content:
            nonlocal known
            size, start, layout, order, rest, last = known  # As one: several threads may read.
            if message.size == size and not isinstance(message, ImageView):
                given_order, seconds, nanoseconds, given = layout.unpack_from(message)
                if given == rest and given_order == order:
                    frame = last.value.with_data(message[start:])
                    # Faster than Content().
                    return tuple.__new__(Content, (frame, last.frame_id, (seconds, nanoseconds)))
            image = read_image(message)
            content = self.frame(image)
            frame = content.value
            if isinstance(message, ImageView):
                return content
            if not isinstance(frame, Frame) or frame.data is not image.data:  # It was converted.
                known, self.image_at = unknown, (-1, 0)
            else:
                start = message.size - image.size
                layout = Struct(f'<2s2xiI{start - 12}s')
                order, _, _, rest = layout.unpack_from(message)
                # Otherwise the byte order differs, or bytes follow the pixels.
                if order[1] == 1 and int.from_bytes(rest[-4:], 'little') == image.size:
                    # Without the pixels, whose memory is reused.
                    last = content._replace(value=frame.with_data(image.data[:0].copy()))
                    _ = last.value.layout  # Kept by the frames to come.
                    known = message.size, start, layout, order, rest, last
                    self.image_at = message.size, start
            return content

        return read


class CompressedImageCodec(ImageCodec):
    """Compressed images of `topic`/compressed, for a node with ImageInputParameters."""

    message_type = CompressedImage
    is_copied = True

    def __init__(self, node: ManagedNode, topic: str) -> None:
        super().__init__(node, transport_topic(node, topic, 'compressed'))
        self._max_pixels = node.parameters.max_image_pixels
        self._jpegs_on_gpu = node.jpegs_on_gpu
        import_module('cv2')  # Not with the first image.

    def reader(self) -> Callable[[Any], Content]:
        def read(message: Any) -> Content:
            image = read_compressed_image(message)
            frame = to_frame(image, self._jpegs_on_gpu, self._max_pixels)
            return Content(frame, image.frame_id, image.stamp)

        return read


class VideoCodec(ImageCodec):
    """Packets of a video, each decoded on arrival; raises ParameterError without PyAV."""

    needs_all = is_copied = True
    min_depth = 100

    def __init__(self, node: ManagedNode, topic: str) -> None:
        self._topics = [transport_topic(node, topic, each) for each in VIDEO_TRANSPORTS]
        super().__init__(node, self._topics[0])
        self._topics.append(topic)
        self._decoder = VideoDecoder[EncodedView](node.parameters.max_image_pixels, node.video_gpu)
        self.message_types = installed_video_types()
        self.message_type = self.message_types[0]

    def follow(self) -> tuple[str, type]:
        """Return the topic and type to subscribe to now; the present ones while published."""
        published = [
            (topic, each)
            for topic in self._topics
            for info in self.node.get_publishers_info_by_topic(topic)
            for each in self.message_types
            if info.topic_type == type_name(each)
        ]
        if published and (self.topic, self.message_type) not in published:
            self.topic, self.message_type = published[0]
        return self.topic, self.message_type

    def lose(self, count: int) -> None:
        if count:
            self._decoder.lose(count)

    def close(self) -> None:
        self._decoder.close()

    def stamp_of(self, message: Any) -> Stamp:
        stamp: Stamp = message.stamp
        return stamp

    def reader(self) -> Callable[[Any], Any]:
        """Return the function that decodes a message, to None where its picture comes later."""
        return partial(self._decode, VIDEO_READERS[type_name(self.message_type)])

    def _decode(self, read: Callable[[Any], EncodedView], message: Any) -> Content | None:
        packet = read(message)
        found = self._decoder.decode(packet.format, packet.data, packet.number, packet)
        if self._decoder.delay:
            self.node.get_logger().warning(
                f'{self.node.resolve_topic_name(self.topic)}: the video has B-frames, so that '
                f'each result is {self._decoder.delay} frames late. Remedy: Set the maximum '
                'number of B-frames of the encoder to 0, as CompressedVideo requires.',
                once=True,
            )
        if not found:
            return None
        view, frame = found[-1]
        return Content(frame, view.frame_id, view.stamp)


def installed_video_types() -> tuple[type, ...]:
    """Return the installed message types of video packets; raise ParameterError without any."""
    found: list[type] = []
    for name in VIDEO_READERS:
        with suppress(ParameterError):
            found.append(message_class(name))
    if not found:
        raise ParameterError(
            'image_transport is video, but its messages are not installed.',
            cause=f'There is none of {", ".join(VIDEO_READERS)}.',
            remedy='Install ros-$ROS_DISTRO-foxglove-msgs or '
            'ros-$ROS_DISTRO-ffmpeg-image-transport-msgs.',
        )
    return tuple(found)


def image_codec(node: ManagedNode, topic: str = 'image') -> ImageCodec:
    """Return the codec of an image topic by the ImageInputParameters of the node."""
    transport = node.parameters.image_transport
    if transport != 'raw':
        return (VideoCodec if transport == 'video' else CompressedImageCodec)(node, topic)
    return RawImageCodec(node, topic)


def transport_topic(node: Node, topic: str, transport: str) -> str:
    """Return the topic of a transport of the images of `topic`; both may be remapped."""
    name = f'{topic}/{transport}'
    remapped = node.resolve_topic_name(name)
    if remapped != node.resolve_topic_name(name, only_expand=True):
        return remapped
    return f'{node.resolve_topic_name(topic)}/{transport}'
