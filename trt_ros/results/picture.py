"""A picture that a network makes of an image."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trt_ros.results.base import Result, WriteArray


@dataclass(eq=False)
class Picture(Result):
    """An enhanced image, of the source's size or larger: (H, W, 3) uint8, as the network's."""

    pixels: np.ndarray

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        """Return the size as data for JSON."""
        height, width = self.pixels.shape[:2]
        entry: dict[str, Any] = {'width': width, 'height': height}
        if write_array is not None:
            entry['file'] = write_array('picture.png', self.pixels)
        return {'picture': entry}
