"""Access to cuda-python, and its `(status, value)` results as values or errors with a remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
import ctypes
from functools import cache
from importlib import import_module
import threading
from types import ModuleType
from typing import Any
import weakref

from trt_ros.driver import device_order
from trt_ros.errors import BackendError, TrtRosError

# After one of these every later call of the process fails too: its context is lost.
# Source: "CUDA Runtime API", enum cudaError: the entries documented with "the process must be
# terminated and relaunched", and the loss of the device itself.
STICKY = frozenset(
    f'cudaError{name}'
    for name in (
        *('ECCUncorrectable', 'NvlinkUncorrectable', 'IllegalAddress', 'LaunchTimeout'),
        *('ContextIsDestroyed', 'Assert', 'HardwareStackError', 'IllegalInstruction'),
        *('MisalignedAddress', 'InvalidAddressSpace', 'InvalidPc', 'LaunchFailure'),
        *('ExternalDevice', 'TensorMemoryLeak', 'Unknown'),
    )
)

REMEDIES = {
    'cudaErrorMemoryAllocation': 'Free memory on the GPU (nvidia-smi lists the processes that '
    'use it), or lower the input size, the batch or the number of slots.',
    'cudaErrorNoDevice': 'Run on a machine with an NVIDIA GPU, or choose backend onnxruntime.',
    'cudaErrorInsufficientDriver': 'Update the NVIDIA driver, or choose backend onnxruntime.',
    'cudaErrorInitializationError': 'Do not fork after using CUDA: start a new process.',
    'cudaErrorNoKernelImageForDevice': 'Clear the kernel cache: the kernels were compiled for '
    'another GPU.',
    'cudaErrorHostMemoryAlreadyRegistered': 'Register each memory block only once.',
}
STICKY_REMEDY = (
    'The GPU context of this process is lost: restart the process. If the error recurs, '
    'run compute-sanitizer, and look for "NVRM: Xid" in the kernel log.'
)


class CudaError(TrtRosError):
    """A CUDA call that failed; `status` such as 'cudaErrorMemoryAllocation'."""

    def __init__(self, problem: str, *, status: str, cause: str = '', remedy: str = '') -> None:
        super().__init__(problem, cause=cause, remedy=remedy)
        self.status = status

    @property
    def is_sticky(self) -> bool:
        """Whether the error has ended all use of the GPU by this process."""
        return self.status in STICKY


_live: Counter[str] = Counter()
_lost: list[str] = []  # The sticky statuses seen.
_importing = threading.Lock()


def count_live(kind: str, change: int) -> None:
    """Add `change`, which may be negative, to the number of existing resources of `kind`."""
    _live[kind] += change


def live() -> dict[str, int]:
    """Return the number of existing resources per kind, without kinds at zero."""
    return {kind: count for kind, count in _live.items() if count}


def context_is_lost() -> bool:
    """Return whether a sticky error occurred: all later CUDA calls of this process fail."""
    return bool(_lost)


def keep_forever(thing: object) -> None:
    """
    Leak `thing` on purpose: it is never destroyed, not even when Python exits.

    For objects whose destruction after a sticky error crashes the process, such as TensorRT's
    execution contexts (observed with TensorRT-RTX 1.5).
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@cache
def runtime() -> ModuleType:
    """Return cuda.bindings.runtime; imported late, so that importing trt_ros needs no CUDA."""
    return _binding('cuda.bindings.runtime')


@cache
def driver() -> ModuleType:
    """Return cuda.bindings.driver."""
    return _binding('cuda.bindings.driver')


def libcuda(*, keeps_gil: bool) -> Any:
    """Return the driver as a library of ctypes."""
    return (ctypes.PyDLL if keeps_gil else ctypes.CDLL)('libcuda.so.1')


@cache
def driver_call(name: str, argument_count: int, *, may_wait: bool = False) -> Callable[..., int]:
    """
    Return a function of the driver that returns its status, for the calls of each frame.

    It takes numbers, also for handles: cuda.bindings makes objects of them and of the status. It
    keeps the GIL unless it `may_wait`: another thread that takes the GIL in the microseconds of a
    call delays the frame for up to a switch interval.
    """
    function = getattr(libcuda(keeps_gil=not may_wait), name)
    function.argtypes = [ctypes.c_void_p] * argument_count
    call: Callable[..., int] = function
    return call


@cache
def core() -> ModuleType:
    """Return cuda.core, which older versions name cuda.core.experimental."""
    module = _binding('cuda.core')
    return module if hasattr(module, 'Device') else _binding('cuda.core.experimental')


def nvml_device(pci_bus_id: str) -> Any:
    """Return a GPU by NVML; raises several types: no such library or device, no permission."""
    # By PCI bus id: NVML's indices include GPUs that CUDA_VISIBLE_DEVICES hides.
    return import_module('cuda.core.system').Device(pci_bus_id=pci_bus_id)


def _binding(name: str) -> ModuleType:
    device_order()
    try:
        # Two threads that import packages which import each other may get one of them half loaded.
        with _importing:
            return import_module(name)
    except ModuleNotFoundError as error:
        raise BackendError(
            f'{name} is not installed.',
            cause=str(error),
            remedy='pip install cuda-bindings cuda-core, for the CUDA version of your TensorRT.',
        ) from error


def check(result: tuple[Any, ...], doing: str) -> Any:
    """Return what a cuda.bindings call returns beside its status, or raise CudaError."""
    status, *values = result
    if int(status) != 0:
        raise failure(int(status), doing)
    if len(values) < 2:
        return values[0] if values else None
    return tuple(values)


def failure(code: int, doing: str) -> CudaError:
    """Return the error for a status code, which driver and runtime API number alike."""
    rt = runtime()
    try:
        status = rt.cudaError_t(code).name
        text = rt.cudaGetErrorString(rt.cudaError_t(code))[1].decode()
    except ValueError:
        status, text = f'status {code}', 'unknown to this version of cuda-python'
    if status in STICKY:
        _lost.append(status)
    remedy = STICKY_REMEDY if status in STICKY else REMEDIES.get(status, '')
    return CudaError(
        f'Could not {doing}.', status=status, cause=f'{status}: {text}', remedy=remedy
    )


class Context:
    """
    The primary CUDA context of one GPU; `with context:` makes it current for this thread.

    Contexts nest, also those of different GPUs, and restore the previous one on exit. No state is
    kept per thread: thread ids are reused, one thread may serve several GPUs, and a CUDA call
    without a current context would create one on GPU 0, of about 500 MiB.
    """

    __slots__ = ('_pop', '_push', 'handle')

    def __init__(self, handle: Any) -> None:
        self.handle = int(handle)
        self._push = driver_call('cuCtxPushCurrent_v2', 1)
        self._pop = driver_call('cuCtxPopCurrent_v2', 1)

    def __enter__(self) -> None:
        status = self._push(self.handle)
        if status:
            raise failure(status, 'use the GPU')

    def __exit__(self, *_: object) -> None:
        self._pop(None)

    def release(self, free: Callable[..., Any], *args: Any) -> None:
        """Call `free(*args)` with this context current; for destructors, on any thread."""
        is_current = not self._push(self.handle)
        try:
            free(*args)  # Also after the context is lost: `free` updates the counts.
        finally:
            if is_current:
                self._pop(None)


def owned(
    owner: object, kind: str, context: Context, free: Callable[..., Any], *args: Any
) -> weakref.finalize[..., Any]:
    """Count a resource of `kind`; return the finalizer that calls `free(*args)` once."""
    count_live(kind, 1)
    return weakref.finalize(owner, _release, kind, context, free, args)


def _release(kind: str, context: Context, free: Callable[..., Any], args: tuple[Any, ...]) -> None:
    context.release(free, *args)
    count_live(kind, -1)


@contextmanager
def restored_contexts() -> Iterator[None]:
    """Restore this thread's current contexts after calls of a library that leaves others there."""
    contexts = _drain()
    try:
        if contexts:
            driver().cuCtxPushCurrent(contexts[0])
        yield
    finally:
        _drain()
        for handle in reversed(contexts):
            driver().cuCtxPushCurrent(handle)


def _drain() -> list[Any]:
    contexts = []
    while int(check(driver().cuCtxGetCurrent(), 'find the current GPU') or 0):
        contexts.append(check(driver().cuCtxPopCurrent(), 'leave the GPU'))
    return contexts


def primary_context(index: int) -> Context:
    """Retain the primary context of a GPU, which the CUDA runtime uses too, until process exit."""
    check(driver().cuInit(0), 'initialize CUDA')
    device = check(driver().cuDeviceGet(index), f'find GPU {index}')
    return Context(check(driver().cuDevicePrimaryCtxRetain(device), f'use GPU {index}'))


def current_context() -> Context:
    """Return the context of the enclosing `with gpu.context:`, or raise RuntimeError."""
    handle = check(driver().cuCtxGetCurrent(), 'find the current GPU')
    if not handle or not int(handle):
        raise RuntimeError('No GPU is current here: call this inside `with gpu.context:`.')
    return Context(handle)
