"""Conversion of image messages to frames; imports without ROS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from trt_ros.errors import BadFrameError, requires
from trt_ros.ros.dds import cdr
from trt_ros.video import IMAGE_TYPES, VIDEO_TYPES, VideoDecoder
from trt_ros.vision.frame import DEPTH_ENCODINGS, ENCODING_ADVICE, ENCODINGS, Frame, refuse_depth
from trt_ros.vision.picture_header import JpegFrame, read_picture_header
from trt_ros.vision.pixel_limit import MAX_IMAGE_PIXELS

if TYPE_CHECKING:
    from trt_ros.recording import Recording

_USUAL_CODECS = ('jpeg', 'png')  # Also where `format` names the other one, or is empty.

#: Functions that read a serialized packet of a video, by its message type.
VIDEO_READERS: Mapping[str, Callable[[np.ndarray], cdr.EncodedView]] = dict(
    zip(VIDEO_TYPES, (cdr.read_compressed_video, cdr.read_ffmpeg_packet))
)


class FrameReader:
    """The frames of one topic of a recording, whose messages are read in order; or raise."""

    def __init__(self, message_type: str, max_pixels: int = MAX_IMAGE_PIXELS) -> None:
        self._max_pixels = max_pixels
        self._read_image = (
            cdr.read_image if message_type == IMAGE_TYPES[0] else cdr.read_compressed_image
        )
        self._read_video = VIDEO_READERS.get(message_type)
        if self._read_video is not None:
            self._decoder = VideoDecoder[cdr.EncodedView](max_pixels)

    def read(self, message: np.ndarray) -> list[tuple[Any, Frame]]:
        """
        Return the views and frames that are complete with a message, (N,) uint8.

        One; or with B-frames, sometimes none or that of an earlier message.

        :raises BadFrameError: when there is none for this message.
        """
        if self._read_video is None:
            view = self._read_image(message)
            return [(view, to_frame(view, max_pixels=self._max_pixels))]
        packet = self._read_video(message)
        return [*self._decoder.decode(packet.format, packet.data, packet.number, packet)]

    def flush(self) -> list[tuple[Any, Frame]]:
        """Return those that are complete without further messages."""
        return [] if self._read_video is None else [*self._decoder.flush()]


def to_frame(
    image: cdr.ImageView | cdr.EncodedView,
    jpegs_on_gpu: bool = False,
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> Frame:
    """
    Convert an image message to a frame; a raw one without copying its pixels.

    :param jpegs_on_gpu: whether usual JPEG images become frames that are decoded on the GPU.
    :param max_pixels: larger compressed images are refused before they are decoded.
    :raises BadFrameError: when the image is invalid or its encoding unsupported.
    """
    if isinstance(image, cdr.EncodedView):
        return _decompressed(image, jpegs_on_gpu, max_pixels)
    if image.encoding not in (*ENCODINGS, *DEPTH_ENCODINGS):
        return _through_cv_bridge(image)
    return Frame(
        image.data, image.width, image.height, image.step, image.encoding, bool(image.is_bigendian)
    )


def color_topics(recording: Recording) -> list[str]:
    """Return the image topics of a recording, without those of depth if there are others."""
    topics = recording.images()
    if len(topics) < 2:
        return topics
    return [each for each in topics if not _is_depth(recording, each)] or topics


def _is_depth(recording: Recording, topic: str) -> bool:
    if recording.topics[topic].message_type in VIDEO_TYPES:
        return False
    with suppress(BadFrameError):
        for message in recording.messages([topic]):
            if recording.topics[topic].message_type == IMAGE_TYPES[0]:
                return cdr.read_image(message.data).encoding in DEPTH_ENCODINGS
            encoding = cdr.read_compressed_image(message.data).format
            return 'compressedDepth' in encoding or encoding.split(';')[0] in DEPTH_ENCODINGS
    return False


def _through_cv_bridge(image: cdr.ImageView) -> Frame:
    refused = partial(BadFrameError, 'unknown encoding')
    remedy = f'Install cv_bridge, or publish {ENCODING_ADVICE}.'
    with requires('cv_bridge', f'Image encoding {image.encoding!r}', remedy, refused):
        from cv_bridge import CvBridge
        from sensor_msgs.msg import Image
    try:
        rows = image.data
        if channels := re.fullmatch(r'(\d+)[USF]C(\d*)', image.encoding):  # Some misread padding.
            used = int(channels[1]) // 8 * int(channels[2] or 1) * image.width
            rows = rows[: image.height * image.step].reshape(image.height, -1)[:, :used]
        message = Image(
            height=image.height,
            width=image.width,
            encoding=image.encoding,
            step=rows.shape[1] if rows.ndim == 2 else image.step,
            is_bigendian=image.is_bigendian,
            data=rows.tobytes(),
        )
        return Frame.from_pixels(CvBridge().imgmsg_to_cv2(message, 'bgr8'))
    except BadFrameError:
        raise
    except Exception as error:  # CvBridgeError, or any exception of its conversion.
        raise refused(
            f'cv_bridge cannot convert image encoding {image.encoding!r}.',
            cause=str(error),
            remedy=f'Publish {ENCODING_ADVICE}.',
        ) from error


def _decompressed(image: cdr.EncodedView, jpegs_on_gpu: bool, max_pixels: int) -> Frame:
    """
    Decode a JPEG or PNG, or another codec that `format` names.

    image_transport writes `format` as 'ENCODING; CODEC compressed STORED' or 'CODEC'.
    """
    if 'compressedDepth' in image.format:
        raise BadFrameError(
            'unknown compression',
            f'Unsupported compressed format {image.format!r}: it is a depth image.',
            remedy='Subscribe to a topic of color images, as in image/compressed.',
        )
    header = read_picture_header(image.data, max_pixels)
    if header.codec not in _USUAL_CODECS and header.codec not in image.format.lower():
        raise BadFrameError(
            'unknown compression',
            f'The image of format {image.format!r} is a {header.codec.upper()}.',
            remedy=f'Publish JPEG or PNG, or name {header.codec} in the format.',
        )
    if jpegs_on_gpu and header.is_plain:
        encoding = _color_encoding(image, 3) if header.channels == 3 else _gray_encoding(image)
        return JpegFrame(header, encoding, image.data, partial(_pixels_of, image))
    pixels = _pixels_of(image)
    if pixels.ndim == 3:
        if pixels.dtype == np.uint16:
            pixels = np.right_shift(pixels, 8).astype(np.uint8)
        return Frame.from_pixels(pixels, _color_encoding(image, pixels.shape[2]))
    encoding = _gray_encoding(image)
    return Frame.from_pixels(pixels, 'mono16' if pixels.dtype == np.uint16 else encoding)


def _pixels_of(image: cdr.EncodedView) -> np.ndarray:
    encoded, pixels = image.data, None
    # UNCHANGED also ignores the EXIF orientation of a JPEG, as other ROS nodes do.
    import cv2  # Imported here: raw images that the GPU reads need no OpenCV.

    with suppress(cv2.error):
        pixels = cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise BadFrameError(
            'undecodable image', f'Cannot decode {encoded.size} bytes of format {image.format!r}.'
        )
    return pixels


def _color_encoding(image: cdr.EncodedView, channels: int) -> str:
    is_rgb = 'compressed rgb' in image.format  # Stored with red and blue swapped.
    names = {3: 'rgb8' if is_rgb else 'bgr8', 4: 'rgba8' if is_rgb else 'bgra8'}
    return names[channels]


def _gray_encoding(image: cdr.EncodedView) -> str:
    encoding = image.format.split(';')[0].strip()
    refuse_depth(encoding)
    return encoding if encoding.startswith('bayer_') else 'mono8'
