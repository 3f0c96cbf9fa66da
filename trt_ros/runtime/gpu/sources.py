"""Images and tensors of a run in host memory, and the plan of their transfers to the GPU."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from trt_ros.cuda.jpeg import JpegDecoder
from trt_ros.cuda.memory import copy_async
from trt_ros.runtime.feeds import host_dtype, write_tensor
from trt_ros.runtime.gpu.slots import chunks
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.jpeg import JpegFrame

#: Images and tensors up to this size are transferred by the graph, larger ones once copied.
SMALL_NBYTES = 1 << 16


def aligned(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of 256."""
    return -(-nbytes // 256) * 256


class Source:
    """
    The bytes of one image of a run.

    :ivar key: what a captured graph depends on, beside the buffers.
    :ivar nbytes: bytes on the GPU.
    :ivar data: 1-D uint8; None where the bytes need a conversion.
    :ivar is_small_tensor: whether the graph copies it from pinned memory into the network's input.
    :ivar is_decoded_on_gpu: whether `send` decodes the bytes on the GPU.
    """

    __slots__ = ('_address', 'data', 'key', 'nbytes')
    key: Hashable
    data: np.ndarray | None
    is_small_tensor = False
    is_decoded_on_gpu = False

    def __init__(self, frame: Frame) -> None:
        self.key = (frame.width, frame.height, frame.step, frame.encoding, frame.is_bigendian)
        self.nbytes, self.data = frame.nbytes, frame.data
        self._address: int | None = None

    @property
    def address(self) -> int:
        """Host address of the bytes; 0 where they need a conversion."""
        if self._address is None:
            # Faster than `ndarray.ctypes`, which makes objects.
            self._address = 0 if self.data is None else self.data.__array_interface__['data'][0]
        return self._address

    def copy(self, target: np.ndarray, start: int, stop: int) -> None:
        """Copy bytes `start` to `stop` into `target`, uint8 of that size."""
        assert self.data is not None
        target[:] = self.data[start:stop]

    def send(self, target: int, stream: int) -> None:
        """Enqueue the transfer of all bytes to a GPU address, without pinned memory."""
        copy_async(target, self.address, self.nbytes, stream)


class JpegSource(Source):
    """The pixels of a JPEG, decoded on the GPU, or on the CPU where the library refuses it."""

    __slots__ = ('_decoder', '_frame')
    is_decoded_on_gpu = True

    def __init__(self, frame: JpegFrame, decoder: JpegDecoder) -> None:
        self.key = (frame.width, frame.height, frame.step, frame.encoding, 'jpeg')
        self.nbytes, self.data, self._address = frame.nbytes, None, None
        self._frame, self._decoder = frame, decoder

    def send(self, target: int, stream: int) -> None:
        """
        Decode into a GPU address.

        :raises BadFrameError: when the CPU cannot decode it, either.
        """
        frame = self._frame
        shape = frame.height, frame.width, frame.channels
        if not self._decoder.decode(frame.bitstream, shape, target, stream):
            copy_async(target, int(frame.data.ctypes.data), self.nbytes, stream)


class TensorSource(Source):
    """
    The bytes of one tensor of a run, converted to the network's dtype.

    :param value: as `split_inputs` returns it.
    """

    __slots__ = ('_spec', '_value', 'is_small_tensor')

    def __init__(self, spec: TensorSpec, value: np.ndarray) -> None:
        dtype = host_dtype(spec)
        self.nbytes = value.size * dtype.itemsize
        self.is_small_tensor = self.nbytes <= SMALL_NBYTES
        is_plain = value.dtype == dtype and spec.dtype != 'bfloat16' and value.flags.c_contiguous
        self.key, self.data, self._address = is_plain, None, None
        if is_plain:
            self.data = value.reshape(-1).view(np.uint8)
        self._spec, self._value = spec, value

    def copy(self, target: np.ndarray, start: int, stop: int) -> None:
        """Copy bytes `start` to `stop` into `target`; all of them where they are converted."""
        if self.data is not None:
            super().copy(target, start, stop)
        else:
            values = target.view(host_dtype(self._spec)).reshape(self._value.shape)
            write_tensor(values, self._spec, self._value)


@dataclass(frozen=True)
class Piece:
    """
    Bytes `start` to `stop` of source `index`, copied to pinned memory as one.

    :param pinned: offset of the target in the pinned buffer.
    :param send: (GPU address, offset in the pinned buffer, bytes) to transfer once copied; 0 bytes
        where the graph does it, or where kernels read the pinned buffer.
    """

    index: int
    start: int
    stop: int
    pinned: int
    send: tuple[int, int, int]


@dataclass(frozen=True)
class Part:
    """
    A source in the plan of transfers.

    :param pinned: offset in the pinned buffer.
    :param target: GPU address; 0 where the graph reads the source in place.
    :param is_zero_copy: whether it needs no pinned memory: Source.send brings it to `target`.
    """

    nbytes: int
    pinned: int
    target: int
    is_zero_copy: bool
    can_be_cut: bool


@dataclass(frozen=True)
class Transfers:
    """
    The transfers of a run to the GPU.

    :param pieces: copies to pinned memory, most of them transferred at once.
    :param in_graph: (GPU address, offset in the pinned buffer, bytes) of those in the graph.
    """

    pieces: tuple[Piece, ...]
    in_graph: tuple[tuple[int, int, int], ...]


def plan_transfers(
    parts: Sequence[Part], header: int, header_nbytes: int, chunk_nbytes: int
) -> Transfers:
    """
    Plan the transfers of a run.

    Large parts are cut: the transfer of a piece overlaps the copy of the next one. The last piece,
    small parts and the header are transferred in the graph, which costs no call; but a header
    that lies before the first piece on both sides is transferred with it.

    :param header: GPU address of the header, whose source is the start of the pinned buffer; 0
        where kernels read it in place.
    """
    cuts = [
        (index, start, stop)
        for index, part in enumerate(parts)
        if not part.is_zero_copy
        for start, stop in (
            chunks(part.nbytes, chunk_nbytes) if part.can_be_cut else [(0, part.nbytes)]
        )
    ]
    pieces: list[Piece] = []
    in_graph: list[tuple[int, int, int]] = []
    if header:
        in_graph.append((header, 0, header_nbytes))
    for number, (index, start, stop) in enumerate(cuts):
        part = parts[index]
        pinned = part.pinned + start
        send = (part.target + start, pinned, stop - start) if part.target else (0, 0, 0)
        is_in_graph = number == len(cuts) - 1 or part.nbytes <= SMALL_NBYTES
        if in_graph and (is_in_graph or in_graph[-1] == (header, 0, header_nbytes)):
            # Other small parts may not be copied yet when a large one is.
            target, offset, nbytes = in_graph[-1]
            if send[:2] == (target + nbytes, offset + nbytes):
                in_graph.pop()
                send = (target, offset, nbytes + send[2])
        if send[2] and is_in_graph:
            in_graph.append(send)
            send = (0, 0, 0)
        pieces.append(Piece(index, start, stop, pinned, send))
    return Transfers(tuple(pieces), tuple(in_graph))
