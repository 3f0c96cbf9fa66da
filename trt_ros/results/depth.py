"""Depth of each pixel of an image."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trt_ros.results.base import Result, WriteArray


@dataclass(eq=False)
class Depth(Result):
    """
    The depth of each pixel of the source image, in the unit of the network.

    :param values: (H, W) float32: meters, relative depth, its inverse, or disparity in pixels of
        the network's input.
    :param confidence: (H, W) float32, usually 0 to 1; 1 is no sky. None: the network has none.
    :param points: (K, 5) float32: columns and rows of some pixels, and their x, y, z, of which z
        lacks an offset that all pixels share, as `values` do; None: the values are no such z.
    """

    values: np.ndarray
    confidence: np.ndarray | None = None
    points: np.ndarray | None = None

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        """Return the minimum, median and maximum as data for JSON."""
        finite = self.values[np.isfinite(self.values)]
        values = np.percentile(finite, [0, 50, 100]).tolist() if finite.size else [None] * 3
        entry: dict[str, Any] = {
            name: value if value is None else float(f'{value:.5g}')  # In any unit.
            for name, value in zip(('min', 'median', 'max'), values)
        }
        if write_array is not None:
            entry['file'] = write_array('depth.tiff', self.values)
        return {'depth': entry}
