"""Base class of results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

#: Writes an array to a file named after the picture, such as 'mask.png', or arrays by name to
#: an .npz file; returns its name.
WriteArray = Callable[[str, np.ndarray | Mapping[str, np.ndarray]], str]

ResultT = TypeVar('ResultT', bound='Result')


class Result:
    """
    The result of a network for one image.

    :ivar class_names: by class index; () where nothing names the classes.
    """

    class_names: Sequence[str] = ()

    def to_source(self: ResultT, affine: np.ndarray) -> ResultT:
        """
        Return the result of a region in source pixels; results without positions unchanged.

        :param affine: (2, 3), from input pixels to source pixels.
        """
        return self

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        """
        Return the result as data for JSON; see the help of `trt-ros infer`.

        :param write_array: called for masks, depth and tensors; None: they are not written.
        """
        raise NotImplementedError

    def as_coco(
        self, image_id: int, categories: Mapping[int, int], *, with_area: bool = False
    ) -> Iterator[dict[str, Any]]:
        """
        Yield the entries of an image in the results format of COCO; none where it has none.

        :param categories: category id by class index; other classes are left out.
        :param with_area: add `area` in pixels: that of the mask, else of the box.
        """
        yield from ()


def category_of(label: int, categories: Mapping[int, int]) -> int | None:
    """Return the category id of a class, also one that only __missing__ has; None: left out."""
    try:
        return categories[label]
    except KeyError:
        return None


def rounded(values: np.ndarray) -> list[float]:
    """Return values with two digits."""
    return [round(value, 2) for value in values.tolist()]
