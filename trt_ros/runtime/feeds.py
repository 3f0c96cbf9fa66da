"""Feeds: the origin of each network input in a run, and the conversion of tensors to inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trt_ros.errors import BadFrameError, TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.regions import Crop


@dataclass(frozen=True)
class ImageFeed:
    """
    An image, preprocessed.

    :param has_second: whether a second image is the fourth channel.
    :param crop: preprocessing of regions, where runs get regions of an image.
    """

    preprocess: Preprocess
    has_second: bool = False
    crop: Crop | None = None
    kind: ClassVar[str] = 'image'

    @property
    def image_count(self) -> int:
        """Number of images per run."""
        return 1 + self.has_second


@dataclass(frozen=True)
class TensorFeed:
    """An array of the shape of `spec`, converted to its dtype."""

    spec: TensorSpec
    kind: ClassVar[str] = 'tensor'


@dataclass(frozen=True, eq=False)
class ConstantFeed:
    """
    A value that is equal in all runs.

    :param value: (1, ..), repeated for each image of a batch.
    """

    value: np.ndarray
    kind: ClassVar[str] = 'constant'


@dataclass(frozen=True)
class StateFeed:
    """
    An output of the previous run; zeros in the first run and after a reset.

    :param spec: the network input, of fixed shape.
    """

    spec: TensorSpec
    output: str
    kind: ClassVar[str] = 'state'


#: An image: a frame, pixels of (H, W, 3) uint8 in BGR order, or the path of a picture.
Image = Frame | np.ndarray | str | os.PathLike[str]
#: Placement of the image in a network without one; the decoder ignores it.
NO_LETTERBOX = Letterbox((1.0, 1.0), (0.0, 0.0), (1, 1), (1, 1))
Feed = ImageFeed | TensorFeed | ConstantFeed | StateFeed
#: Feeds by network input; those of images and tensors in the order of their bindings.
Feeds = Mapping[str, Feed]
#: What a run gets by network input: an image (or two), or an array. States and constants are
#: absent.
RunInput = Frame | Sequence[Frame] | np.ndarray
RunInputs = Mapping[str, RunInput]
#: The tensors of a run without any.
NO_TENSORS: Mapping[str, np.ndarray] = {}
#: Name of the maps of a run's regions among its tensors, one row per image of the batch.
REGIONS = 'regions of the image'


def image_feeds(feeds: Feeds) -> dict[str, ImageFeed]:
    """Return the feeds of images."""
    return {name: feed for name, feed in feeds.items() if isinstance(feed, ImageFeed)}


def tensor_feeds(feeds: Feeds) -> dict[str, TensorFeed]:
    """Return the feeds of tensors."""
    return {name: feed for name, feed in feeds.items() if isinstance(feed, TensorFeed)}


def state_feeds(feeds: Feeds) -> dict[str, StateFeed]:
    """Return the feeds of states."""
    return {name: feed for name, feed in feeds.items() if isinstance(feed, StateFeed)}


def constant_inputs(feeds: Feeds) -> dict[str, np.ndarray]:
    """Return the constant inputs by name."""
    return {name: feed.value for name, feed in feeds.items() if isinstance(feed, ConstantFeed)}


def only_image(feeds: Feeds) -> str | None:
    """Return the network input that gets the only image of a run without tensors, else None."""
    images = image_feeds(feeds)
    if tensor_feeds(feeds) or sum(feed.image_count for feed in images.values()) != 1:
        return None
    return next(iter(images))


def is_one_image(feeds: Feeds) -> bool:
    """Return whether runs get one image each, beside constants, so that images can be batched."""
    return only_image(feeds) is not None and not state_feeds(feeds)


def inputs_of_image(feeds: Feeds, frame: Frame) -> RunInputs:
    """
    Return the inputs of a run that gets one image.

    :raises TensorMismatchError: when runs get more.
    """
    name = only_image(feeds)
    if name is None:
        raise TensorMismatchError(
            'The network takes more than one image.',
            cause='; '.join(f'{name}: {feed.kind}' for name, feed in feeds.items()),
            remedy='Give an image or array for each of its inputs (`infer_inputs`).',
        )
    return {name: frame}


def split_inputs(
    feeds: Feeds, inputs: RunInputs
) -> tuple[tuple[Frame, ...], dict[str, np.ndarray]]:
    """
    Split the inputs of a run into images, in the order of their feeds, and arrays.

    :raises TensorMismatchError: when an input is missing, unknown or of the wrong kind, or an
        array has another shape than the network's input.
    """
    frames: list[Frame] = []
    tensors: dict[str, np.ndarray] = {}
    for name, feed in feeds.items():
        if isinstance(feed, (ConstantFeed, StateFeed)):
            continue
        value = inputs.get(name)
        if value is None:
            raise TensorMismatchError(
                f'The network input {name!r} is missing.',
                cause=f'The inputs given are: {", ".join(inputs) or "none"}.',
            )
        if isinstance(feed, TensorFeed):
            tensors[name] = _checked_tensor(feed.spec, value)
        else:
            frames += _checked_images(name, feed, value)
    unknown = [name for name in inputs if not isinstance(feeds.get(name), (ImageFeed, TensorFeed))]
    if unknown:
        raise TensorMismatchError(
            f'The network takes no image or tensor named {", ".join(unknown)}.',
            cause='; '.join(f'{name}: {feed.kind}' for name, feed in feeds.items()),
        )
    return tuple(frames), tensors


def as_frame(image: Any) -> Frame:
    """
    Return a frame as it is, and pixels or a picture file as a frame.

    :raises BadFrameError: when it is none of them, or cannot be read.
    """
    if isinstance(image, Frame):
        return image
    if isinstance(image, (str, os.PathLike)):
        from trt_ros.media import read_picture  # Imports OpenCV.

        return Frame.from_pixels(read_picture(Path(image)))
    if not isinstance(image, np.ndarray):
        unread = 'cv2.imread returns None for a file that it cannot read.'
        raise BadFrameError(
            'wrong data',
            f'The image is of type {type(image).__name__}.',
            cause=unread if image is None else '',
            remedy='Pass an array (H, W, 3) uint8 in BGR order, a path, or a Frame.',
        )
    return Frame.from_pixels(image)


def example_frame(feed: ImageFeed) -> Frame:
    """Return a gray image of the network's size, with alpha where that is the fourth channel."""
    has_alpha = feed.preprocess.channels == 4 and not feed.has_second
    pixels = np.full((*feed.preprocess.input_hw, 3 + has_alpha), 114, np.uint8)
    return Frame.from_pixels(pixels, 'bgra8' if has_alpha else 'bgr8')


def example_inputs(feeds: Feeds) -> dict[str, RunInput] | None:
    """Return gray images and zeros to warm up with; None where a tensor has a dynamic shape."""
    inputs: dict[str, RunInput] = {}
    for name, feed in feeds.items():
        if isinstance(feed, ImageFeed):
            inputs[name] = [example_frame(feed)] * feed.image_count
        elif isinstance(feed, TensorFeed):
            if feed.spec.is_dynamic:
                return None
            inputs[name] = np.zeros(feed.spec.shape, host_dtype(feed.spec))
    return inputs


def measured_inputs(feeds: Feeds, frame: Frame | None) -> RunInputs:
    """
    Return the inputs of a run to measure.

    :param frame: every image of the run; default gray ones of the network's size.
    :raises TensorMismatchError: when a tensor has a dynamic shape.
    """
    inputs = example_inputs(feeds)
    if inputs is None:
        raise TensorMismatchError(
            'The network takes tensors of dynamic shapes, which cannot be measured.',
            cause='; '.join(str(feed.spec) for feed in tensor_feeds(feeds).values()),
            remedy='Export it with fixed shapes.',
        )
    if frame is not None:
        inputs.update(
            {name: [frame] * feed.image_count for name, feed in image_feeds(feeds).items()}
        )
    return inputs


def description(frames: Sequence[Frame], tensors: Mapping[str, np.ndarray]) -> str:
    """Return size and encoding of the images, or the shapes of the tensors."""
    texts = [f'{frame.width}x{frame.height} {frame.encoding}' for frame in frames[:1]]
    texts += [f'{name} {list(value.shape)}' for name, value in tensors.items()]
    return ', '.join(texts)


def _checked_images(name: str, feed: ImageFeed, value: RunInput) -> Sequence[Frame]:
    if isinstance(value, Frame):
        value = (value,)
    if isinstance(value, np.ndarray) or not all(isinstance(each, Frame) for each in value):
        raise TensorMismatchError(
            f'The network input {name!r} takes an image, but got {type(value).__name__}.',
            remedy='Wrap pixels with Frame.from_pixels().',
        )
    if len(value) != feed.image_count:
        raise TensorMismatchError(
            f'The network input {name!r} takes {feed.image_count} images, but got {len(value)}.'
        )
    return value


def _checked_tensor(spec: TensorSpec, value: RunInput) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise TensorMismatchError(
            f'The network input {spec} takes an array, but got {type(value).__name__}.'
        )
    if len(value.shape) != len(spec.shape) or any(
        size not in (-1, actual) for size, actual in zip(spec.shape, value.shape)
    ):
        raise TensorMismatchError(
            f'The network takes {spec}, but {spec.name} came as '
            f'({", ".join(map(str, value.shape))}) {value.dtype}.'
        )
    if not _is_convertible(spec.dtype, value):
        raise TensorMismatchError(
            f'The network takes {spec}, but {spec.name} came as {value.dtype}.',
            cause='The conversion would change the values.',
            remedy=f'Send {spec.dtype}.',
        )
    return value


def host_dtype(spec: TensorSpec) -> np.dtype[np.generic]:
    """Return the NumPy dtype of a tensor in host memory: uint16 for the bits of bfloat16."""
    return np.dtype('uint16' if spec.dtype == 'bfloat16' else spec.dtype)


def _is_convertible(dtype: str, value: np.ndarray) -> bool:
    """Return whether `value` can become `dtype`: floats of any size, integers that fit, bool."""
    kind = value.dtype.kind
    if dtype == 'bfloat16' or np.dtype(dtype).kind == 'f':
        return kind in 'fiub'
    wanted = np.dtype(dtype)
    if wanted.kind == 'b':
        return kind in 'bu'
    if kind not in 'iub':
        return False
    if np.can_cast(value.dtype, wanted) or value.size == 0:
        return True
    limits = np.iinfo(wanted)
    return bool(value.min() >= limits.min and value.max() <= limits.max)


def write_tensor(target: np.ndarray, spec: TensorSpec, value: np.ndarray) -> None:
    """
    Convert an array that `split_inputs` returned into memory of the input's shape.

    :param target: of `host_dtype(spec)`, C-contiguous.
    :param value: of the same shape, any strides and byte order.
    :raises TensorMismatchError: when a finite value is beyond the range of the input's dtype.
    """
    try:
        with np.errstate(over='raise'):
            if spec.dtype != 'bfloat16':
                np.copyto(target, value, casting='unsafe')
                return
            bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    except FloatingPointError as error:
        raise TensorMismatchError(
            f'The network takes {spec}, but {spec.name} came as {value.dtype}.',
            cause=f'A value is beyond the range of {spec.dtype}.',
            remedy=f'Send values in the range of {spec.dtype}, or export a wider input.',
        ) from error
    # Round to nearest even; NaN stays NaN.
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    np.copyto(target, np.where(value != value, 0x7FC0, rounded), casting='unsafe')
