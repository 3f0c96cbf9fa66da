"""JPEG decoding on the GPU by nvImageCodec, which only this module imports."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
import os
import sys
from typing import Any

import numpy as np

from trt_ros.cuda.calls import restored_contexts, runtime

_MODULE = 'nvidia.nvimgcodec'
_IMPORT_LINES = (
    b'Failed to load nvjpeg2k ',
    b'Failed to load nvtiff ',
    b'Note: If using nvImageC',
)


class JpegDecoder:
    """
    A decoder of JPEG images on one GPU; uses its hardware decoder where there is one.

    Chroma is interpolated as by libjpeg-turbo, so that colors equal those of OpenCV. Not for
    several threads at the same time.

    :param device: CUDA device index.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._codec: Any = None
        self._decoder: Any = None
        self._parameters: dict[int, Any] = {}  # By the number of channels.
        self._images = self._refused = 0

    @property
    def is_open(self) -> bool:
        """Whether `open` succeeded and `close` was not called."""
        return self._decoder is not None

    def open(self, example: np.ndarray) -> str:
        """Load the library and decode an example on the current GPU; return why not, or ''."""
        if self._decoder is not None:
            return ''
        with restored_contexts():
            try:
                with _quiet_import():
                    codec = import_module(_MODULE)
                self._parameters = {
                    channels: codec.DecodeParams(
                        apply_exif_orientation=False, color_spec=color, sample_format=layout
                    )
                    for channels, color, layout in (
                        (1, codec.ColorSpec.GRAY, codec.SampleFormat.I_Y),
                        (3, codec.ColorSpec.SRGB, codec.SampleFormat.I_BGR),
                    )
                }
                self._decoder = codec.Decoder(
                    device_id=self._device, max_num_cpu_threads=1, options=':fancy_upsampling=1'
                )
                self._decoder.decode(codec.CodeStream(example), params=self._parameters[3])
            except Exception as error:  # ImportError, RuntimeError of the library, old versions.
                self._decoder = None
                return f'{_MODULE}: {error}'
        self._codec = codec
        return ''

    def decode(
        self, bitstream: np.ndarray, shape: tuple[int, int, int], target: int, stream: int
    ) -> bool:
        """
        Enqueue decoding into `stream`; returns when the host's part is done.

        Work that is already in the stream may be waited for.

        :param bitstream: 1-D contiguous uint8, may be reused at once.
        :param shape: height, width, channels (3: BGR, 1: gray) of the JPEG.
        :param target: GPU address of the pixels, without padding.
        :returns: False when the library cannot decode it; the target may have been written.
        """
        with restored_contexts():
            try:
                image = self._codec.as_image(_DeviceArray(target, shape, stream), stream)
                decoded = self._decoder.decode(
                    self._codec.CodeStream(bitstream),
                    image=image,
                    params=self._parameters[shape[2]],
                    cuda_stream=stream,
                )
            except (RuntimeError, ValueError):
                decoded = None
        self._images += 1
        if decoded is None:
            self._refused += 1
            runtime().cudaGetLastError()  # Not the next call's; a lost context stays lost.
        return decoded is not None

    def diagnostics(self) -> dict[str, str]:
        """Return values for /diagnostics by their key; empty unless open."""
        if not self.is_open:
            return {}
        decoded = self._images - self._refused
        return {'JPEG images decoded on the GPU': f'{decoded} of {self._images}'}

    def close(self) -> None:
        """Release the library's memory; may be called twice."""
        if self.is_open:
            with restored_contexts():
                self._decoder = self._codec = None
                self._parameters = {}


@contextmanager
def _quiet_import() -> Iterator[None]:
    """
    Remove what the library prints on import about its extensions for TIFF and JPEG 2000.

    It writes to the file descriptor of stderr; lines of other threads are kept. Its messages about
    single images are switched off: the frame is counted and logged by the node.
    """
    os.environ.setdefault('PYNVIMGCODEC_VERBOSITY', '0')
    if _MODULE in sys.modules:
        yield
        return
    stderr = os.dup(2)
    with os.fdopen(os.memfd_create('stderr'), 'w+b') as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            caught.seek(0)
            kept = [line for line in caught if not line.startswith(_IMPORT_LINES)]
            os.write(2, b''.join(kept))


class _DeviceArray:
    """GPU memory, for libraries that take the CUDA array interface."""

    def __init__(self, address: int, shape: tuple[int, int, int], stream: int) -> None:
        self.__cuda_array_interface__ = {
            'version': 3,
            'shape': shape,
            'typestr': '|u1',
            'data': (address, False),
            'strides': None,
            'stream': stream,
        }
