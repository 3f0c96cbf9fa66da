"""From cuda-python's `(status, value)` to the value, or to an error with its remedy."""

from __future__ import annotations

from collections import Counter
import ctypes
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from trt_ros.driver import device_order
from trt_ros.errors import BackendError, TrtRosError

# After one of these every later call of the process fails too: its context is lost.
# From "CUDA Runtime API", enum cudaError: the entries whose text says that the process must be
# terminated and relaunched, and the device itself being gone.
STICKY = frozenset(
    {
        'cudaErrorECCUncorrectable',
        'cudaErrorNvlinkUncorrectable',
        'cudaErrorIllegalAddress',
        'cudaErrorLaunchTimeout',
        'cudaErrorContextIsDestroyed',
        'cudaErrorAssert',
        'cudaErrorHardwareStackError',
        'cudaErrorIllegalInstruction',
        'cudaErrorMisalignedAddress',
        'cudaErrorInvalidAddressSpace',
        'cudaErrorInvalidPc',
        'cudaErrorLaunchFailure',
        'cudaErrorExternalDevice',
        'cudaErrorTensorMemoryLeak',
        'cudaErrorUnknown',
    }
)

REMEDIES = {
    'cudaErrorMemoryAllocation': 'Free memory on the GPU (nvidia-smi lists who holds '
    'it), or lower the input size, the '
    'batch or the number of slots.',
    'cudaErrorNoDevice': 'Run on a machine with an NVIDIA GPU, or choose backend onnxruntime.',
    'cudaErrorInsufficientDriver': 'Update the NVIDIA driver, or choose backend onnxruntime.',
    'cudaErrorInitializationError': 'Do not fork after CUDA was used: start a new process.',
    'cudaErrorNoKernelImageForDevice': 'Clear the kernel cache: the kernels were compiled for '
    'another GPU.',
    'cudaErrorHostMemoryAlreadyRegistered': 'Register a piece of memory once.',
}
STICKY_REMEDY = (
    'The GPU context of this process is lost: restart the process. If it comes back, '
    'run compute-sanitizer, and look for "NVRM: Xid" in the kernel log.'
)


class CudaError(TrtRosError):
    """
    A CUDA call that failed.

    :param status: CUDA's name of it, such as 'cudaErrorMemoryAllocation'.
    """

    def __init__(self, problem: str, *, status: str, cause: str = '', remedy: str = '') -> None:
        super().__init__(problem, cause=cause, remedy=remedy)
        self.status = status

    @property
    def is_sticky(self) -> bool:
        """Tell whether nothing on the GPU can be used any more by this process."""
        return self.status in STICKY

    @property
    def is_out_of_memory(self) -> bool:
        return self.status == 'cudaErrorMemoryAllocation'


_live: Counter[str] = Counter()
_lost: list[str] = []  # The sticky statuses seen.


def count_live(kind: str, change: int) -> None:
    """Note that `change` more (or fewer) resources of `kind` exist."""
    _live[kind] += change


def live() -> dict[str, int]:
    """Return how many resources of each kind exist now; what is at zero is left out."""
    return {kind: count for kind, count in _live.items() if count}


def context_is_lost() -> bool:
    """Tell whether a sticky error was seen: nothing on the GPU works in this process any more."""
    return bool(_lost)


def keep_forever(thing: object) -> None:
    """
    Never destroy `thing`, not even when Python exits.

    For what crashes the process when it is destroyed after a sticky error: TensorRT's contexts
    do (seen with TensorRT-RTX 1.5).
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@cache
def runtime() -> ModuleType:
    """Return cuda.bindings.runtime; late, so that importing trt_ros needs no CUDA."""
    return _binding('cuda.bindings.runtime')


@cache
def driver() -> ModuleType:
    """Return cuda.bindings.driver."""
    return _binding('cuda.bindings.driver')


@cache
def core() -> ModuleType:
    """Return cuda.core, under whichever of its two names this version has it."""
    module = _binding('cuda.core')
    return module if hasattr(module, 'Device') else _binding('cuda.core.experimental')


def _binding(name: str) -> ModuleType:
    device_order()
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise BackendError(
            f'{name} is missing.',
            cause=str(error),
            remedy='pip install cuda-bindings cuda-core, of the CUDA version of your TensorRT.',
        ) from error


def check(result: tuple[Any, ...], doing: str) -> Any:
    """
    Turn what a call of cuda.bindings returned into its value.

    :param result: `(status,)`, `(status, value)` or `(status, value, ..)`.
    :param doing: what was tried, to end the sentence 'Could not ..'.
    :returns: None, the value, or the tuple of values.
    :raises CudaError: when the status is not success.
    """
    status, *values = result
    if int(status) != 0:
        raise failure(int(status), doing)
    if len(values) < 2:
        return values[0] if values else None
    return tuple(values)


def failure(code: int, doing: str) -> CudaError:
    """Make the error of a status; driver and runtime number theirs alike."""
    rt = runtime()
    try:
        status = rt.cudaError_t(code).name
        said = rt.cudaGetErrorString(rt.cudaError_t(code))[1].decode()
    except ValueError:
        status, said = f'status {code}', 'unknown to this version of cuda-python'
    if status in STICKY:
        _lost.append(status)
    remedy = STICKY_REMEDY if status in STICKY else REMEDIES.get(status, '')
    return CudaError(
        f'Could not {doing}.', status=status, cause=f'{status}: {said}', remedy=remedy
    )
