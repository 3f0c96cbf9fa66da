"""Images in GPU memory."""

import sys

import numpy as np

from trt_ros.device_array import CudaArray, DeviceArray
from trt_ros.errors import BadFrameError
from trt_ros.vision.frame import Frame, pixel_rows


class DeviceFrame(Frame):
    """
    An image in GPU memory of another library, which a pipeline on that GPU copies there.

    :param pixels: of the shapes and dtypes of Frame.from_pixels(), rows may be padded.
    :raises BadFrameError: when they do not fit the encoding, or have gaps within rows.
    """

    def __init__(self, pixels: CudaArray, encoding: str = 'bgr8') -> None:
        array = DeviceArray(pixels)
        width, height, row_nbytes = pixel_rows(array.shape, array.dtype, encoding)
        step = array.strides[0] if array.strides and array.shape[0] > 1 else row_nbytes
        if not array.is_contiguous(1):
            raise BadFrameError(
                'wrong data',
                f'The pixels of a row are not contiguous: strides {array.strides}.',
                remedy='Make them contiguous, as with tensor.contiguous() of PyTorch.',
            )
        self.__dict__.update(
            array=array,
            width=width,
            height=height,
            step=step,
            encoding=encoding,
            is_bigendian=array.dtype.byteorder == ('>' if sys.byteorder == 'little' else '='),
        )
        self._check_layout()

    array: DeviceArray

    @property
    def data(self) -> np.ndarray:
        """Raise BadFrameError: the pixels are not on the host."""
        return np.asarray(self.array)
