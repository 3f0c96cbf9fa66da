"""Values of the outputs of a network for one image, by the places that a layout gives them."""

from collections.abc import Mapping

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.match import Reading
from trt_ros.families.places import Slice
from trt_ros.vision.float16 import as_float32


class Values:
    """
    The outputs of one image as a reading sees them.

    :param outputs: arrays by name, batch size 1.
    """

    def __init__(self, outputs: Mapping[str, np.ndarray], reading: Reading) -> None:
        self._reading = reading
        self._arrays = {
            part.spec.name: np.ascontiguousarray(outputs[part.spec.name]) for part in reading.parts
        }

    def view(self, place: Slice, rows: int) -> np.ndarray:
        """Return a view of a slice: (rows, values), of the dtype of the output."""
        array = self._arrays[place.output]
        if not rows:
            return np.zeros((0, place.values), array.dtype)
        size = array.itemsize
        strides = (place.row * size, place.column * size)
        return np.ndarray((rows, place.values), array.dtype, array, place.start * size, strides)

    def gather(
        self,
        place: Slice,
        rows: np.ndarray,
        labels: np.ndarray | None = None,
        class_step: int = 0,
    ) -> np.ndarray:
        """
        Return a slice of some rows: (n, values) float32.

        :param labels: classes of the rows, whose values are `class_step` elements apart.
        """
        first = place.start + rows * place.row
        if labels is not None:
            first = first + labels * class_step
        index = first[:, None] + np.arange(place.values) * place.column
        return as_float32(self._arrays[place.output].reshape(-1)[index])

    def tensor(self, role: str) -> np.ndarray:
        """Return an output that is not divided into rows, without its batch axis."""
        part = next(part for part in self._reading.parts if role in part.out.fields)
        array = self._arrays[part.spec.name]
        return np.asarray(array[0] if 'B' in part.out.axes.split() else array)


def mismatch(
    reading: Reading, outputs: Mapping[str, np.ndarray], input_hw: tuple[int, int], remedy: str
) -> TensorMismatchError:
    """Return the error of outputs that a reading does not fit."""
    seen = ', '.join(
        f'{part.spec.name} {np.shape(outputs[part.spec.name])}' for part in reading.parts
    )
    height, width = input_hw
    return TensorMismatchError(
        f'The outputs do not fit the decoder: expected {reading.layout.describe(input_hw)}, got '
        f'{seen} for images of {width}x{height}.',
        remedy=remedy,
    )
