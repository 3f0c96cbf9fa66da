"""Memory on the GPU, page-locked memory on the host, and the account of both."""

from __future__ import annotations

from collections import Counter
import ctypes
from typing import Any
import weakref

import numpy as np

from trt_ros.cuda.calls import CudaError, check, count_live, runtime
from trt_ros.cuda.context import Context, current_context
from trt_ros.errors import ClosedError


class Account:
    """
    Bytes held on the GPU and pinned on the host, by owner ('slots', 'activations', ..).

    Thread-safe enough for reading: each update is one dictionary operation under the GIL.
    """

    def __init__(self) -> None:
        self.device: Counter[str] = Counter()
        self.pinned: Counter[str] = Counter()

    def report(self) -> dict[str, dict[str, int]]:
        """Return {'device': {owner: bytes}, 'pinned': {owner: bytes}} of what is held now."""
        return {'device': dict(+self.device), 'pinned': dict(+self.pinned)}


class DeviceBuffer:
    """
    Plain memory on the GPU; whoever constructs it owns it.

    :raises CudaError: out of memory; says how much was wanted, free and held.
    """

    def __init__(self, nbytes: int, owner: str, account: Account) -> None:
        self.nbytes, context = nbytes, current_context()
        try:
            self.ptr = int(
                check(
                    runtime().cudaMalloc(max(nbytes, 1)),
                    f'take {megabytes(nbytes)} of GPU memory for {owner}',
                )
            )
        except CudaError as error:
            raise with_memory_story(error, nbytes, account) from error
        account.device[owner] += nbytes
        count_live('device buffer', 1)
        self._free = weakref.finalize(
            self, _free_device, context, self.ptr, nbytes, owner, account
        )

    def close(self) -> None:
        self._free()


def _free_device(context: Context, ptr: int, nbytes: int, owner: str, account: Account) -> None:
    context.release(runtime().cudaFree, ptr)
    account.device[owner] -= nbytes
    count_live('device buffer', -1)


class PinnedBuffer:
    """
    Page-locked host memory, mapped into the GPU's address space; its constructor's caller owns it.

    Borrowers: `view` (1-D uint8) dangles after close(), so copy what must outlive it.

    :ivar device_ptr: where kernels see the same bytes.
    """

    def __init__(self, nbytes: int, owner: str, account: Account) -> None:
        rt, context = runtime(), current_context()
        self.nbytes = nbytes
        self.ptr = int(
            check(
                rt.cudaHostAlloc(
                    max(nbytes, 1), rt.cudaHostAllocMapped | rt.cudaHostAllocPortable
                ),
                f'pin {megabytes(nbytes)} of host memory for {owner}',
            )
        )
        account.pinned[owner] += nbytes
        count_live('pinned buffer', 1)
        self._free = weakref.finalize(
            self, _free_pinned, context, self.ptr, nbytes, owner, account
        )
        self.device_ptr = int(check(rt.cudaHostGetDevicePointer(self.ptr, 0), 'map pinned memory'))
        raw = (ctypes.c_uint8 * nbytes).from_address(self.ptr)
        self._view: np.ndarray | None = np.frombuffer(memoryview(raw), np.uint8)

    @property
    def view(self) -> np.ndarray:
        if self._view is None:
            raise ClosedError('The pinned buffer')
        return self._view

    def close(self) -> None:
        self._view = None
        self._free()


def _free_pinned(context: Context, ptr: int, nbytes: int, owner: str, account: Account) -> None:
    context.release(runtime().cudaFreeHost, ptr)
    account.pinned[owner] -= nbytes
    count_live('pinned buffer', -1)


class RegisteredMemory:
    """
    Somebody else's host memory, page-locked so that the GPU reads it where it lies.

    Owns the registration, borrows the memory: the lender keeps it alive, and in place, until
    close().

    :param array: any C-contiguous array; its bytes are registered, never copied.
    """

    def __init__(self, array: np.ndarray, owner: str, account: Account) -> None:
        rt, context = runtime(), current_context()
        self.ptr, self.nbytes = int(array.ctypes.data), int(array.nbytes)
        check(
            rt.cudaHostRegister(self.ptr, self.nbytes, rt.cudaHostRegisterMapped),
            f'page-lock {megabytes(self.nbytes)} of host memory for {owner}',
        )
        account.pinned[owner] += self.nbytes
        count_live('registered memory', 1)
        self._array: Any = array
        self._free = weakref.finalize(
            self, _unregister, context, self.ptr, self.nbytes, owner, account
        )
        self.device_ptr = int(
            check(rt.cudaHostGetDevicePointer(self.ptr, 0), 'map registered memory')
        )

    def holds(self, ptr: int, nbytes: int) -> bool:
        """Tell whether `nbytes` at host address `ptr` lie wholly inside."""
        return self.ptr <= ptr and ptr + nbytes <= self.ptr + self.nbytes

    def close(self) -> None:
        self._array = None
        self._free()


def _unregister(context: Context, ptr: int, nbytes: int, owner: str, account: Account) -> None:
    context.release(runtime().cudaHostUnregister, ptr)
    account.pinned[owner] -= nbytes
    count_live('registered memory', -1)


def megabytes(nbytes: int) -> str:
    return f'{nbytes / 1e6:.1f} MB'


def with_memory_story(error: CudaError, wanted: int, account: Account) -> CudaError:
    """Add to an out-of-memory error what was wanted, what is free and who of us holds what."""
    if not error.is_out_of_memory:
        return error
    runtime().cudaGetLastError()  # This status is not sticky: read it, so that it is forgotten.
    free, total = check(runtime().cudaMemGetInfo(), 'ask for the free GPU memory')
    held = ', '.join(f'{owner} {megabytes(size)}' for owner, size in (+account.device).items())
    return CudaError(
        error.problem,
        status=error.status,
        cause=f'wanted {megabytes(wanted)}, free {megabytes(free)} of {megabytes(total)}; '
        f'this node holds: {held or "nothing"}',
        remedy=error.remedy,
    )


def copy_async(target: int, source: int, nbytes: int, stream: int) -> None:
    """Copy between any two addresses, host or device, in the stream's order."""
    rt = runtime()
    status = rt.cudaMemcpyAsync(
        target, source, nbytes, rt.cudaMemcpyKind.cudaMemcpyDefault, stream
    )[0]
    if status:
        check((status,), f'copy {nbytes} bytes')


def fill_async(target: int, value: int, nbytes: int, stream: int) -> None:
    """Set every byte to `value`, in the stream's order."""
    check(runtime().cudaMemsetAsync(target, value, nbytes, stream), f'fill {nbytes} bytes')
