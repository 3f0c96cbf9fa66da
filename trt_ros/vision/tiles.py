"""Tiles of a large image: their places, their pixels, and the merging of their results."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.results.poses import Poses
from trt_ros.vision.frame import ENCODINGS, Frame, without_conversion
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.nms import iou, probabilistic_iou, select_best
from trt_ros.vision.thresholds import Thresholds

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
