"""Access to arrays in GPU memory that other libraries own."""

from trt_ros.cuda.calls import check, runtime
from trt_ros.cuda.device import Gpu, wait_for_library
from trt_ros.cuda.memory import copy_async
from trt_ros.device_array import DeviceArray
from trt_ros.errors import BadFrameError

_ON_GPU = (2, 3)  # cudaMemoryTypeDevice, cudaMemoryTypeManaged.


def refuse_elsewhere(array: DeviceArray, nbytes: int, gpu: Gpu) -> None:
    """
    Raise BadFrameError where bytes of an array are not in memory of a GPU, which is current.

    CUDA would take freed memory for memory of the host, and end the process.
    """
    for address in (array.address, array.address + nbytes - 1):
        found = check(runtime().cudaPointerGetAttributes(address), 'look up an address')
        if int(found.type) not in _ON_GPU:
            raise BadFrameError(
                'no GPU memory',
                f'The array of {nbytes} bytes at {array.address:#x} is not in GPU memory.',
                cause='It was freed, or its library gives a wrong address or shape.',
                remedy='Keep it until the result is there.',
            )
        if found.device != gpu.index:
            raise BadFrameError(
                'other GPU',
                f'The array is on GPU {found.device}, but the network on GPU {gpu.index}.',
                remedy=f'Copy it to that GPU, or open the network with device={found.device}.',
            )


def copy_array(target: int, array: DeviceArray, nbytes: int, gpu: Gpu, stream: int) -> None:
    """Enqueue the copy of the first bytes of an array, after the work that writes it."""
    with gpu.context:  # That of the library, whatever the share.
        if hasattr(array.owner, '__dlpack__'):
            array.owner.__dlpack__(stream=stream)  # The library makes the stream wait.
        elif array.stream is not None:
            wait_for_library(stream, array.stream)
    copy_async(target, array.address, nbytes, stream)
