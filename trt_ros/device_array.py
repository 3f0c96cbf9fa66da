"""Arrays in GPU memory that other libraries own."""

from collections.abc import Mapping
import math
from typing import Any, Protocol

import numpy as np

from trt_ros.errors import BadFrameError


class CudaArray(Protocol):
    """An array of PyTorch, CuPy, JAX, .. in GPU memory."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...


def is_on_gpu(value: object) -> bool:
    """Return whether a value is a CudaArray."""
    return not isinstance(value, np.ndarray) and hasattr(value, '__cuda_array_interface__')


class DeviceArray:
    """
    An array in GPU memory that another library owns; the host does not see its values.

    :param owner: keeps the memory, which stays unchanged until the run has ended.
    :ivar stream: of the work that writes the array; None if that is done.
    """

    def __init__(self, owner: CudaArray) -> None:
        interface = owner.__cuda_array_interface__
        self.owner, self.shape = owner, tuple(interface['shape'])
        self.dtype, self.address = np.dtype(interface['typestr']), int(interface['data'][0])
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        self.strides = interface.get('strides')
        self.stream: int | None = interface.get('stream', 1)  # Older ones: the default stream.

    def is_contiguous(self, first_axis: int = 0) -> bool:
        """Return whether the elements of these axes follow each other without gaps."""
        expected = self.dtype.itemsize
        for size, stride in reversed([*zip(self.shape, self.strides or ())][first_axis:]):
            if size > 1 and stride != expected:
                return False
            expected *= size
        return True

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        """Raise BadFrameError where a library asks for the values."""
        raise BadFrameError(
            'in GPU memory',
            f'An input ({", ".join(map(str, self.shape))}) {self.dtype} is in GPU memory, but is '
            'read on the CPU.',
            cause='Only backend tensorrt reads GPU memory: of images, and of tensors that are '
            'not converted, padded, held or remembered.',
            remedy='Copy it to the host: tensor.cpu().numpy() of PyTorch, cupy.asnumpy(array).',
        )
