"""Arrays in GPU memory, as other libraries have them."""

from contextlib import closing
from typing import Any

import numpy as np

from trt_ros.cuda.device import Gpu, Stream
from trt_ros.cuda.memory import Account, DeviceBuffer, copy_async


class OnGpu:
    """
    A copy of an array, which may have gaps, by the CUDA array interface.

    :param others: entries of the interface, such as 'stream'.
    """

    def __init__(self, array: np.ndarray, gpu: Gpu, **others: Any) -> None:
        gaps = sum((size - 1) * step for size, step in zip(array.shape, array.strides))
        nbytes = gaps + array.itemsize
        with gpu.context, closing(Stream()) as stream:
            self.memory = DeviceBuffer(nbytes, 'test', Account())
            copy_async(self.memory.ptr, array.ctypes.data, nbytes, stream.handle)
            stream.synchronize()
        self.gpu = gpu
        self.__cuda_array_interface__ = {
            'version': 3,
            'shape': array.shape,
            'typestr': array.dtype.str,
            'data': (self.memory.ptr, False),
            'strides': None if array.flags.c_contiguous else array.strides,
            'stream': None,
            **others,
        }

    def close(self) -> None:
        """Free the memory; may be called twice."""
        with self.gpu.context:
            self.memory.close()
