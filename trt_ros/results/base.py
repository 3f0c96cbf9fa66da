"""Base class of results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

#: Writes an array to a file named after the picture, such as 'mask.png', or arrays by name to
#: an .npz file; returns its name.
WriteArray = Callable[[str, np.ndarray | Mapping[str, np.ndarray]], str]

ResultT = TypeVar('ResultT', bound='Result')


class Result:
    """The result of a network for one image; `class_names` by index, () without names."""

    class_names: Sequence[str] = ()

    def to_source(self: ResultT, affine: np.ndarray) -> ResultT:
        """Return a region's result in source pixels by its map; see `Crop.maps`."""
        return self

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        """Return data for JSON, see `trt-ros infer --help`; arrays by `write_array`, or not."""
        raise NotImplementedError

    def as_coco(
        self, image_id: int, categories: Mapping[int, int], *, with_area: bool = False
    ) -> Iterator[dict[str, Any]]:
        """
        Yield the entries of an image in the results format of COCO; none where it has none.

        :param categories: category id by class index; other classes are left out.
        :param with_area: add `area` in pixels: that of the mask, else of the box; and the box of
            the pixels of a class.
        """
        yield from ()


def rounded(values: np.ndarray) -> list[float]:
    """Return values with two digits."""
    return [round(value, 2) for value in values.tolist()]
