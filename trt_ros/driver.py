"""GPUs as reported by the NVIDIA driver: libcuda through ctypes, without a CUDA context."""

import ctypes
from dataclasses import dataclass
from functools import cache
import os
from pathlib import Path
import re
import uuid

from trt_ros.errors import BackendError
from trt_ros.regular_file import system_text

PCI_ORDER = 'PCI_BUS_ID'
_MULTIPROCESSORS, _INTEGRATED, _CC_MAJOR, _CC_MINOR = 16, 18, 75, 76  # CUdevice_attribute


@dataclass(frozen=True)
class GpuInfo:
    """
    Properties of one GPU.

    :param index: CUDA device index, after CUDA_VISIBLE_DEVICES.
    :param multiprocessors: number of streaming multiprocessors.
    :param integrated: whether the GPU shares memory with the host (Jetson).
    """

    index: int
    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    memory_nbytes: int
    integrated: bool
    uuid: str
    pci_bus_id: str


@dataclass(frozen=True)
class Driver:
    """
    NVIDIA driver of this machine with its GPUs.

    :param version: driver version ('580.65.06'), '' if unknown.
    :param cuda_version: newest supported CUDA version, (major, minor); (0, 0) without a driver.
    :param problem: reason why `gpus` is empty, one clause; '' if it is not empty.
    """

    version: str
    cuda_version: tuple[int, int]
    gpus: tuple[GpuInfo, ...]
    problem: str

    def gpu(self, index: int) -> GpuInfo:
        """Return the GPU of an index, or raise BackendError."""
        if self.problem:
            raise BackendError(
                'No usable NVIDIA GPU found.',
                cause=self.problem,
                remedy='Install the NVIDIA driver and check that `nvidia-smi` lists the GPU '
                '(start containers with --gpus all), or set backend to onnxruntime.',
            )
        if not 0 <= index < len(self.gpus):
            raise BackendError(
                f'GPU {index} does not exist.',
                cause=f'The driver lists {len(self.gpus)}.',
                remedy=f'Set device to 0 .. {len(self.gpus) - 1}.',
            )
        return self.gpus[index]


@cache
def device_order() -> str:
    """
    Return the order of CUDA device indices in this process.

    Sets CUDA_DEVICE_ORDER to PCI_BUS_ID, the order of nvidia-smi, unless the user has set it. Call
    it before CUDA is initialized.
    """
    return os.environ.setdefault('CUDA_DEVICE_ORDER', PCI_ORDER)


@cache
def nvidia_driver() -> Driver:
    """Return the NVIDIA driver and its GPUs, queried once per process; never raises."""
    return _query()


def _query() -> Driver:
    device_order()
    version = _version()
    try:
        cuda = ctypes.CDLL('libcuda.so.1')
    except OSError:
        return Driver(version, (0, 0), (), 'libcuda.so.1, the NVIDIA driver, is not installed')
    number = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    cuda_version = (number.value // 1000, number.value % 1000 // 10)
    status = cuda.cuInit(0)
    if status == 0:
        status = cuda.cuDeviceGetCount(ctypes.byref(number))
    if status != 0:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(status, ctypes.byref(name))
        problem = f'cuInit failed with {(name.value or b"error").decode()} ({status})'
        return Driver(version, cuda_version, (), problem)
    gpus = tuple(_gpu(cuda, index) for index in range(number.value))
    return Driver(version, cuda_version, gpus, '' if gpus else 'the driver lists no GPU')


def _version() -> str:
    text = system_text(Path('/proc/driver/nvidia/version'))
    found = re.search(r'\s(\d+\.\d+(?:\.\d+)?)\s', text)
    return found.group(1) if found else ''


def _gpu(cuda: ctypes.CDLL, index: int) -> GpuInfo:
    device, value, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    text, raw = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()

    def attribute(which: int) -> int:
        cuda.cuDeviceGetAttribute(ctypes.byref(value), which, device)
        return value.value

    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(text, len(text), device)
    name = text.value.decode()
    cuda.cuDeviceGetPCIBusId(text, len(text), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    cuda.cuDeviceGetUuid(raw, device)
    return GpuInfo(
        index,
        name,
        (attribute(_CC_MAJOR), attribute(_CC_MINOR)),
        attribute(_MULTIPROCESSORS),
        size.value,
        bool(attribute(_INTEGRATED)),
        str(uuid.UUID(bytes=bytes(raw))),
        text.value.decode(),
    )
