"""Interpolation of dense network outputs (grids over the input) at source-image pixels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
import math

import numpy as np

from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import as_float32

BLOCK_ROWS = 32  # A block stays in the cache.


@dataclass(frozen=True)
class Taps:
    """
    The two cells around each pixel's center along one axis, and their weights.

    :param first: (n,) intp; `second`: (n,) intp, the next cell, or the same one at the end.
    :param weights: (n,) float32, weight of `second`, 0 to 1.
    :param origin, pitch: pixel i lies at origin + i * pitch, with cell centers at integers;
        outside the first and last cell, `first` and `weights` are those of the edge.
    """

    first: np.ndarray
    second: np.ndarray
    weights: np.ndarray
    origin: float
    pitch: float

    def __getitem__(self, pixels: slice) -> Taps:
        """Return the taps of a contiguous range of pixels."""
        origin = self.origin + pixels.indices(len(self.first))[0] * self.pitch
        return Taps(
            self.first[pixels], self.second[pixels], self.weights[pixels], origin, self.pitch
        )

    @property
    def nearest(self) -> np.ndarray:
        """Cell under each pixel's center: (n,) intp."""
        return np.where(self.weights >= 0.5, self.second, self.first)

    @cached_property
    def runs(self) -> np.ndarray:
        """Runs of pixels between the same cells: (n, k) intp, padded; longer ones are split."""
        count = len(self.first)
        begins = np.flatnonzero(np.diff(self.first, prepend=-1))
        longest = -(-count // int(self.first[-1] - self.first[0] + 1))
        within = np.arange(count) - np.repeat(begins, np.diff(begins, append=count))
        begins = np.flatnonzero(within % longest == 0)
        ends = np.append(begins[1:], count) - 1
        return np.asarray(np.minimum(begins[:, None] + np.arange(longest), ends[:, None]))


@lru_cache(maxsize=32)
def taps(letterbox: Letterbox, grid_hw: tuple[int, int]) -> tuple[Taps, Taps]:
    """
    Compute the taps of all source pixels, for rows and columns: the inverse of the letterbox.

    The center of pixel i lies at x = (i + 0.5) * scale + pad in the input and at
    x * cells / input size - 0.5 in the grid, clamped to the cells that overlap the
    image, so that no cell of the padding is used. Without padding this is cv2.INTER_LINEAR.
    """
    axes = []
    for axis in (1, 0):
        origin, pitch, low, high = line(letterbox, axis, grid_hw[1 - axis])
        pixels = np.arange(letterbox.image_wh[axis])
        center = np.clip(origin + pixels * pitch, low, high)
        first = np.floor(center)
        second, weights = np.minimum(first + 1, high), (center - first).astype(np.float32)
        axes.append(Taps(first.astype(np.intp), second.astype(np.intp), weights, origin, pitch))
    return axes[0], axes[1]


def line(letterbox: Letterbox, axis: int, cells: int) -> tuple[float, float, int, int]:
    """Compute origin and pitch of pixel centers in cells along an axis, and the outer cells."""
    scale, pad = letterbox.scale_xy[axis], letterbox.pad_xy[axis]
    ratio = cells / letterbox.input_hw[1 - axis]
    low = max(math.floor(pad * ratio), 0)
    high = min(math.ceil((pad + letterbox.inner_wh[axis]) * ratio), cells) - 1
    return (scale / 2 + pad) * ratio - 0.5, scale * ratio, low, max(low, high)


def bilinear(grid: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    """Interpolate (h, w) cells at each pixel of the taps: (len(rows), len(cols)) float32."""
    cells = as_float32(grid)
    wide = cells.take(cols.first, axis=1)
    if cols.weights.any():
        right = cells.take(cols.second, axis=1)
        right -= wide
        right *= cols.weights
        wide += right
    if not rows.weights.any():
        return np.asarray(wide[rows.first])
    image = np.empty((len(rows.first), len(cols.first)), np.float32)
    for start in range(0, len(image), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        above = wide[block.first]
        below = wide[block.second]
        below -= above
        below *= block.weights[:, None]
        np.add(above, below, out=image[start : start + BLOCK_ROWS])
    return image


def covers(shape_hw: tuple[int, int], input_hw: tuple[int, int]) -> bool:
    """Return whether a grid may cover the input: equal aspect ratio up to less than one cell."""
    (rows, cols), (height, width) = shape_hw, input_hw
    if rows < 0 or cols < 0:
        return True  # Dynamic.
    return rows > 1 and cols > 1 and abs(rows * width - cols * height) < max(height, width)
