"""Parts of an image: regions, tiles, their places in a network's input, and their pixels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
import math
from typing import Any, NamedTuple

import numpy as np

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.results.poses import Poses
from trt_ros.vision.frame import ENCODINGS, Frame, Order, to_color, without_conversion
from trt_ros.vision.letterbox import INTEGERS, Letterbox, Preprocess
from trt_ros.vision.nms import iou, probabilistic_iou, select_best
from trt_ros.vision.thresholds import Thresholds

#: Largest coordinate and size of a region; float32 holds its maps.
MAX_PIXELS = 1e12

REGION_RESIZES = ('expand', 'stretch', 'line')


@dataclass(frozen=True)
class Crop:
    """
    The preprocessing of regions of an image; the reference for the kernel `crop`.

    A region is a box: center x, y, width and height in source pixels, and an angle in radians from
    the x axis towards the y axis, along which its width lies. Coordinates are continuous: pixel i
    covers i to i + 1. Pixels are interpolated bilinearly at the centers of the input's pixels, as
    in warpAffine of OpenCV with a constant border: the four nearest source pixels, where those
    outside the image count as the pad value. Values are then normalized as in `Preprocess`.

    :param preprocess: input size, pad value, channel order, normalization, layout and dtype; its
        `resize` and `antialias` do not apply.
    :param scale: factor on both sides of a region, above 0. Top-down pose networks are trained
        with 1.25 (MMPose, GetBBoxCenterScale; ViTPose, arXiv:2204.12484).
    :param resize: 'expand' enlarges the relatively shorter side to the aspect ratio of the input,
        which then shows more of the image; 'stretch' distorts the region instead; 'line' fills the
        height from the left, and pads the rest: a line of text. A longer one is compressed.
    :raises ParameterError: when a value is not one of these.
    """

    preprocess: Preprocess
    scale: float = 1.0
    resize: str = 'expand'

    def __post_init__(self) -> None:
        if self.resize not in REGION_RESIZES:
            raise ParameterError(
                f'region_resize is {self.resize!r}.',
                remedy=f'Choose one of {", ".join(REGION_RESIZES)}.',
            )
        if not self.scale > 0:
            raise ParameterError(f'region_scale is {self.scale}, expected above 0.')
        if self.preprocess.dtype == 'bfloat16':
            raise ParameterError(
                'Unsupported input dtype bfloat16 for regions.',
                remedy='Export with float32 or float16 inputs.',
            )
        if self.preprocess.channels != 3:
            raise ParameterError(
                f'Unsupported network of {self.preprocess.channels} image channels for regions.',
                remedy='Export a network of 3 channels.',
            )

    @property
    def letterbox(self) -> Letterbox:
        """The placement with which results are in input pixels."""
        height, width = self.preprocess.input_hw
        return Letterbox((1.0, 1.0), (0.0, 0.0), (width, height), (height, width))

    def maps(self, regions: np.ndarray) -> np.ndarray:
        """
        Compute the affine maps from input pixels to source pixels.

        >>> Crop(Preprocess((64, 32))).maps(np.array([[100, 50, 16, 16, 0.0]]))
        array([[[  0.5,   0. ,  92. ,  32. ],
                [  0. ,   0.5,  34. ,  64. ]]], dtype=float32)

        :param regions: (N, 5): center x, y, width, height, angle; N may be 0.
        :returns: (N, 2, 4) float32: x, y = map[:, :3] @ (column, row, 1), up to the column and the
            row in map[:, 3]; beyond, the input is padding.
        :raises ParameterError: for another shape, or a region that is not finite, has a side of 0
            or less, or is larger or farther away than MAX_PIXELS.
        """
        regions = np.asarray(regions, np.float64)
        if regions.size and (regions.ndim != 2 or regions.shape[1] != 5):
            raise ParameterError(
                f'Regions have the shape {regions.shape}, expected (N, 5).',
                remedy='Give center x, y, width, height and angle of each.',
            )
        if (
            not (np.abs(regions) <= MAX_PIXELS).all()
            or (regions.reshape(-1, 5)[:, 2:4] <= 0).any()
        ):
            raise ParameterError(
                'A region is not finite, too large, or has no area.',
                remedy=f'Give finite numbers up to {MAX_PIXELS:g} and sides above 0.',
            )
        center, size, angle = np.split(regions.reshape(-1, 5), [2, 4], 1)
        input_wh = np.array(self.preprocess.input_hw[::-1], np.float64)
        steps = size * self.scale / input_wh
        extent = np.broadcast_to(input_wh, steps.shape).copy()
        if self.resize == 'expand':
            steps[:] = steps.max(axis=1, keepdims=True)
        elif self.resize == 'line':
            steps[:, 0] = steps.max(axis=1)
            extent[:, 0] = size[:, 0] * self.scale / steps[:, 0]
        cos, sin = np.cos(angle[:, 0]), np.sin(angle[:, 0])
        turn = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)
        maps = np.empty((len(center), 2, 4))
        maps[..., :2] = turn * steps[:, None]
        maps[..., 2] = center - (maps[..., :2] @ (extent[..., None] / 2))[..., 0]
        maps[..., 3] = extent
        return maps.astype(np.float32)

    def __call__(self, frame: Frame, maps: np.ndarray) -> np.ndarray:
        """Return the input for (N, 2, 4) `maps` of a frame: (N, 3, H, W) or (N, H, W, 3)."""
        preprocess, frame = self.preprocess, without_conversion(frame)
        gain, bias = preprocess.gain, preprocess.bias
        rows, cols = preprocess.input_hw
        is_nchw = preprocess.layout == 'nchw'
        shape = (3, rows, cols) if is_nchw else (rows, cols, 3)
        tensor = np.empty((len(maps), *shape), preprocess.dtype)
        order: Order = 'rgb' if preprocess.channel_order == 'rgb' else 'bgr'
        for crop, each in zip(tensor, maps):
            values = sample(frame, order, each, preprocess.input_hw, preprocess.pad_value)
            values *= gain
            values -= bias
            if preprocess.dtype in INTEGERS:
                values = np.clip(np.rint(values), 0, 255)
            crop[:] = values.transpose(2, 0, 1) if is_nchw else values
        return tensor


def whole_image(crop: Crop, image_wh: tuple[int, int], count: int) -> np.ndarray:
    """Return the maps of `count` regions that are the whole image: (count, 8) float32."""
    width, height = image_wh
    box = np.array([[width / 2, height / 2, width, height, 0.0]])
    return crop.maps(box).reshape(1, 8).repeat(count, axis=0)


def are_in_image(boxes: np.ndarray, image_wh: tuple[int, int]) -> np.ndarray:
    """Return which regions, (N, 5), are valid and overlap the image: (N,) bool."""
    with np.errstate(invalid='ignore', over='ignore'):
        is_valid: np.ndarray = (np.abs(boxes) <= MAX_PIXELS).all(axis=1)
        is_valid &= (boxes[:, 2:4] > 0).all(axis=1)
        is_valid &= _overlaps(boxes, np.array(image_wh))
    return is_valid


def _overlaps(boxes: np.ndarray, image_wh: np.ndarray) -> np.ndarray:
    """Return whether (N, 5) boxes overlap the image, (N,) bool, by separating sides."""
    cos, sin = np.cos(boxes[:, 4]), np.sin(boxes[:, 4])
    turn = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)
    half_box, half_image = boxes[:, 2:4, None] / 2, image_wh[:, None] / 2
    offset = half_image - boxes[:, :2, None]
    in_image_axes = np.abs(offset) < half_image + np.abs(turn) @ half_box
    turn = turn.swapaxes(1, 2)
    in_box_axes = np.abs(turn @ offset) < half_box + np.abs(turn) @ half_image
    return np.asarray((in_image_axes & in_box_axes).all(axis=(1, 2)))


def sample(
    frame: Frame, order: Order, region: np.ndarray, input_hw: tuple[int, int], pad_value: float
) -> np.ndarray:
    """Interpolate a region, a (2, 4) map of `Crop.maps`: (H, W, 3) float32, 0 to 255."""
    (a, b, c, columns), (d, e, f, _) = np.asarray(region, np.float32)
    half = np.float32(0.5)
    u = np.arange(input_hw[1], dtype=np.float32)[None] + half
    v = np.arange(input_hw[0], dtype=np.float32)[:, None] + half
    is_upright = b == d == 0  # Then the columns have one x, and the rows one y.
    x_taps = _taps((a * u + c if is_upright else a * u + b * v + c) - half, frame.width)
    y_taps = _taps((e * v + f if is_upright else d * u + e * v + f) - half, frame.height)
    rows, cols = _used(y_taps), _used(x_taps)
    pixels = to_color(frame, order)[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1]
    flat, width = pixels.reshape(-1, 3), len(cols)
    found = np.zeros((*input_hw, 3), np.float32)
    padding = np.ones(input_hw, np.float32)
    for y, y_weights in y_taps:
        for x, x_weights in x_taps:
            weights = y_weights * x_weights
            taken = flat.take((y - rows[0]) * width + (x - cols[0]), axis=0).astype(np.float32)
            taken *= weights[..., None]
            found += taken
            padding -= weights
    found += padding[..., None] * np.float32(pad_value)
    found[:, math.ceil(columns) :] = pad_value
    return found


def _taps(at: np.ndarray, size: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Compute two source pixels, within the image, around each position, and their weights."""
    at = np.clip(at, np.float32(-1), np.float32(size))  # Beyond, all is padding.
    first = np.floor(at)
    right, index = at - first, first.astype(np.intp)
    return tuple(
        (np.clip(tap, 0, size - 1), np.where((tap >= 0) & (tap < size), weights, np.float32(0)))
        for tap, weights in ((index, 1 - right), (index + 1, right))
    )


def _used(taps: tuple[tuple[np.ndarray, np.ndarray], ...]) -> np.ndarray:
    (first, _), (second, _) = taps
    return np.arange(first.min(), second.max() + 1)


MAX_TILES = 64  # tiles.cu: struct Tiles
MIN_SIDE = 32  # Pixels; fewer show nothing that the whole image does not.


class TilePlaces(NamedTuple):
    """Places of the tiles of an image, row by row, and of each in the network's input."""

    letterbox: Letterbox
    origins: np.ndarray


@dataclass(frozen=True)
class Tiles:
    """
    A grid of overlapping tiles of one size, which a network gets as a batch of images.

    The tiles are those of SAHI (Akyon et al., arXiv:2202.06934) for the smallest size that covers
    the image with as many: neighbors share `overlap` of a tile, rounded down to whole pixels, and
    the last column and row end with the image.

    :param preprocess: of a tile, as of an image.
    :param overlap: shared fraction of width and height of a tile, below 1.
    """

    preprocess: Preprocess
    columns: int
    rows: int
    overlap: float = 0.2

    @property
    def count(self) -> int:
        """Number of tiles."""
        return self.columns * self.rows

    def places(self, image_wh: tuple[int, int]) -> TilePlaces:
        """
        Return the places of the tiles in an image.

        >>> Tiles(Preprocess((64, 64)), 3, 1).places((260, 100)).origins.tolist()
        [[0, 0], [80, 0], [160, 0]]

        :raises BadFrameError: 'too small', when a tile has less than MIN_SIDE pixels.
        """
        (width, lefts), (height, tops) = (
            _axis(size, count, self.overlap)
            for size, count in zip(image_wh, (self.columns, self.rows))
        )
        if min(width, height) < MIN_SIDE:
            raise BadFrameError(
                'too small',
                f'An image of {image_wh[0]} × {image_wh[1]} has {self.columns}x{self.rows} tiles '
                f'of {width} × {height} pixels, expected at least {MIN_SIDE} × {MIN_SIDE}.',
                remedy='Use fewer tiles, or larger images.',
            )
        origins = np.array([(left, top) for top in tops for left in lefts])
        return TilePlaces(self.preprocess.letterbox((width, height)), origins)

    def __call__(self, frame: Frame) -> np.ndarray:
        """Compute the network's input: (N, ...), see `Preprocess`."""
        places, frame = self.places(frame.wh), without_conversion(frame)
        tiles = (_cut(frame, xy, places.letterbox.image_wh) for xy in places.origins.tolist())
        return np.concatenate([self.preprocess(tile)[0] for tile in tiles])

    def merge(self, found: Sequence[Any], origins: np.ndarray, thresholds: Thresholds) -> Any:
        """Merge the `Boxes` or `Poses` of all tiles by NMS, in image pixels, best first."""
        shifts = np.split(origins.astype(np.float32), len(origins))
        moved = [_moved(each, shift[0]) for each, shift in zip(found, shifts)]
        joined: Any
        if isinstance(moved[0], Poses):
            joined = Poses.join(moved)
        else:
            joined = reduce(lambda boxes, more: boxes.extended(more), moved)
        boxes, overlap = joined.xyxy, iou
        if isinstance(joined, OrientedBoxes):
            boxes, overlap = joined.rotated_boxes().astype(np.float32), probabilistic_iou
        best = select_best(boxes, joined.scores, joined.labels, thresholds, overlap=overlap)
        return joined.take(best)


def _axis(size: int, count: int, overlap: float) -> tuple[int, list[int]]:
    """Return the size of a tile along one axis, and the first pixel of each."""
    side = max(int((size - count + 1) / (count - (count - 1) * overlap)), 1)
    while side + (count - 1) * (side - int(overlap * side)) < size:
        side += 1
    step = side - int(overlap * side)
    return side, [min(index * step, size - side) for index in range(count)]


def _cut(frame: Frame, xy: tuple[int, int], wh: tuple[int, int]) -> Frame:
    """Return a view of a part of a frame without conversion."""
    (left, top), (width, height) = xy, wh
    start = top * frame.step + left * ENCODINGS[frame.encoding]
    data, big = frame.data[start:], frame.is_bigendian
    return Frame(data, width, height, frame.step, frame.encoding, big)


def _moved(found: Any, by: np.ndarray) -> Any:
    """Return boxes or poses of a tile in pixels of the image."""
    if isinstance(found, Poses):
        keypoints = found.keypoints.copy()
        keypoints[..., :2] += by
        return replace(found, detections=_moved(found.detections, by), keypoints=keypoints)
    if isinstance(found, OrientedBoxes):
        return replace(found, cxcywh=found.cxcywh + np.pad(by, (0, 2)))
    return replace(found, xyxy=found.xyxy + np.tile(by, 2))
