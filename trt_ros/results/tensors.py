"""Outputs of networks that are not decoded."""

from typing import Any

import numpy as np

from trt_ros.results.base import Result, WriteArray


class Tensors(Result, dict[str, np.ndarray]):
    """Network outputs for one image by name, each with a batch axis of 1."""

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        """Return the values as data for JSON; with a file for them, their shapes and types."""
        if write_array is not None:
            shapes = {
                name: {'shape': list(tensor.shape), 'dtype': tensor.dtype.name}
                for name, tensor in self.items()
            }
            return {'tensors': shapes, 'tensors_file': write_array('tensors.npz', self)}
        return {'tensors': {name: tensor.tolist() for name, tensor in self.items()}}
