"""Inputs that are images."""

from collections.abc import Sequence
from dataclasses import dataclass
import math
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trt_ros.device_array import CudaArray, is_on_gpu
from trt_ros.errors import BadFrameError, ParameterError, TensorMismatchError
from trt_ros.model.feeds.base import HELD, MAX_AGE, Feed, Given, parse_topic
from trt_ros.model.feeds.history import CHOICES, HISTORY
from trt_ros.tensors import Shape
from trt_ros.vision.device_frame import DeviceFrame
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.regions import Crop, Tiles

#: An image: a frame, pixels of (H, W, 3) uint8 in BGR order, on a GPU or not, or the path of a
#: picture.
Image = Frame | np.ndarray | CudaArray | str | os.PathLike[str]
#: Settings of an image binding; they override the pipeline's option of the same name.
IMAGE_SETTINGS = (
    *('resize', 'crop_fraction', 'antialias', 'pad_value', 'channel_order', 'mean', 'std'),
    *('scale', 'input_size'),
)


@dataclass(frozen=True)
class ImageFeed(Feed):
    """
    An image, preprocessed.

    :param has_second: whether a second image is the fourth channel.
    :param crop: preprocessing of regions, where runs get regions of an image.
    :param leading: sizes of the axes before those of an image, in a run of one row.
    :param tiles: tiles of an image, of which a run gets one.
    :param in_channels: whether the images are channels of one: their planes, one after another.
    """

    preprocess: Preprocess
    has_second: bool = False
    crop: Crop | None = None
    leading: Shape = (1,)
    tiles: Tiles | None = None
    in_channels: bool = False
    kind = 'image'
    form = 'image:TOPIC'
    settings: ClassVar[tuple[str, ...]] = (*IMAGE_SETTINGS, MAX_AGE, HELD, HISTORY, *CHOICES)

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the topics; without a stack, the second is the fourth channel; see Feed.parse."""
        topics = tuple(parse_topic(text, topic.strip()) for topic in source.split(','))
        if len(set(topics)) < len(topics):
            raise ParameterError(
                f'The binding {text!r} in inputs has a topic twice.',
                remedy='Give different topics.',
            )
        if len(topics) > 2 and cls is ImageFeed:
            raise ParameterError(
                f'The binding {text!r} in inputs has {len(topics)} image topics.',
                remedy='Give one topic, or two: the second is the fourth channel. The kind images '
                'stacks them.',
            )
        return topics, topics

    @property
    def image_count(self) -> int:
        return 1 if self.tiles else math.prod(self.leading) * (1 + self.has_second)

    def shape(self, rows: int) -> Shape:
        """Return the shape of the network input in a run."""
        shape = (rows * self.leading[0], *self.leading[1:], *self.preprocess.shape[1:])
        return (shape[0], shape[1] * shape[2], *shape[3:]) if self.in_channels else shape

    def example(self) -> Frame:
        """Return a gray image of the network's size per tile, with alpha if that is a channel."""
        has_alpha = self.preprocess.channels == 4 and not self.has_second
        rows, columns = (self.tiles.rows, self.tiles.columns) if self.tiles else (1, 1)
        height, width = self.preprocess.input_hw
        pixels = np.full((rows * height, columns * width, 3 + has_alpha), 114, np.uint8)
        return Frame.from_pixels(pixels, 'bgra8' if has_alpha else 'bgr8')

    def frames_of(self, name: str, value: Any) -> Sequence[Frame]:
        """Return the images of a run as frames, or raise for another number of them."""
        images = value if isinstance(value, (list, tuple)) else [value]
        if len(images) != self.image_count:
            raise TensorMismatchError(
                f'The network input {name!r} takes {self.image_count} images, but got '
                f'{len(images)}.'
            )
        return list(map(as_frame, images))

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        """Return the preprocessed images, or regions or tiles of one; see Feed.stage."""
        frames = [frame.rectified() for frame in given.frames]
        count = 1 + self.has_second
        if self.tiles is not None:
            return self.tiles(frames[0]), [self.preprocess.letterbox(frames[0].wh)]
        if given.array is not None and self.crop is not None:
            images = np.split(
                self.crop(frames[0], given.array.reshape(-1, 2, 4)), len(given.array)
            )
            letterboxes = [self.crop.letterbox] * len(images)
        else:
            found = [
                self.preprocess(*frames[start : start + count])
                for start in range(0, len(frames), count)
            ]
            images = [image for image, _ in found]
            letterboxes = [letterbox for _, letterbox in found]
        shape = self.shape(given.rows)
        per_row = math.prod(self.leading)
        missing = given.rows * per_row - len(images)
        if missing or len(images) > 1:
            images = [np.concatenate([*images, *[images[-1]] * missing])]
        return images[0].reshape(shape), letterboxes[::per_row]


@dataclass(frozen=True)
class ImagesFeed(ImageFeed):
    """Images of several topics, each preprocessed, stacked in the order of the topics."""

    kind = 'images'
    form = 'images:TOPIC,TOPIC'
    settings = (*IMAGE_SETTINGS, MAX_AGE, HELD)


def as_frame(image: Any) -> Frame:
    """Return a frame, pixels or a picture file as a frame; raise BadFrameError for others."""
    if isinstance(image, Frame):
        return image
    if isinstance(image, (str, os.PathLike)):
        from trt_ros.media import read_picture  # Imports OpenCV.

        return Frame.from_pixels(read_picture(Path(image)))
    if is_on_gpu(image):
        return DeviceFrame(image)
    if not isinstance(image, np.ndarray):
        unread = 'cv2.imread returns None for a file that it cannot read.'
        raise BadFrameError(
            'wrong data',
            f'The image is of type {type(image).__name__}.',
            cause=unread if image is None else '',
            remedy='Pass an array (H, W, 3) uint8 in BGR order, a path, or a Frame.',
        )
    return Frame.from_pixels(image)
