"""Depth of each pixel of an image."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trt_ros.results.base import Result, WriteArray


@dataclass(eq=False)
class Depth(Result):
    """Depth per pixel in the network's unit, (H, W) float32: meters, relative or inverse."""

    values: np.ndarray

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
