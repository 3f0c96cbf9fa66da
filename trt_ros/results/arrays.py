"""Results that are arrays: depth, pictures, and outputs that are not decoded."""

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
        finite = self.values[np.isfinite(self.values)]
        values = np.percentile(finite, [0, 50, 100]).tolist() if finite.size else [None] * 3
        entry: dict[str, Any] = {
            name: value if value is None else float(f'{value:.5g}')  # In any unit.
            for name, value in zip(('min', 'median', 'max'), values)
        }
        if write_array is not None:
            entry['file'] = write_array('depth.tiff', self.values)
        return {'depth': entry}


@dataclass(eq=False)
class Picture(Result):
    """An enhanced image, of the source's size or larger: (H, W, 3) uint8, as the network's."""

    pixels: np.ndarray

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        height, width = self.pixels.shape[:2]
        entry: dict[str, Any] = {'width': width, 'height': height}
        if write_array is not None:
            entry['file'] = write_array('picture.png', self.pixels)
        return {'picture': entry}


class Tensors(Result, dict[str, np.ndarray]):
    """Network outputs for one image by name, each with a batch axis of 1."""

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        if write_array is not None:
            shapes = {
                name: {'shape': list(tensor.shape), 'dtype': tensor.dtype.name}
                for name, tensor in self.items()
            }
            return {'tensors': shapes, 'tensors_file': write_array('tensors.npz', self)}
        return {'tensors': {name: _as_json(tensor) for name, tensor in self.items()}}


def _as_json(values: np.ndarray) -> Any:
    """Return nested lists; None for what is not finite, for which JSON has no number."""
    if values.dtype.kind == 'f' and not (is_finite := np.isfinite(values)).all():
        values = values.astype(object)
        values[~is_finite] = None
    return values.tolist()
