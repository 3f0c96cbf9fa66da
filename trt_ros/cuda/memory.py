"""GPU memory, page-locked host memory, and accounting of both by owner."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
import ctypes
import os
from pathlib import Path
import threading
from typing import Any

import numpy as np

from trt_ros.cuda.calls import (
    Context,
    CudaError,
    check,
    core,
    current_context,
    driver_call,
    failure,
    nvml_device,
    owned,
    runtime,
)
from trt_ros.errors import BackendError, ClosedError


class Account:
    """Bytes allocated on the GPU and pinned on the host, by owner; for any thread."""

    def __init__(self) -> None:
        self.device: Counter[str] = Counter()
        self.pinned: Counter[str] = Counter()
        self._peaks: Counter[str] = Counter()
        self._peak_nbytes = 0
        self._changing = threading.RLock()  # Garbage collection may free during a change.

    def add(self, owner: str, nbytes: int) -> None:
        """Add bytes on the GPU to an owner; a negative number of bytes for freed memory."""
        with self._changing:
            self.device[owner] += nbytes
            self._peaks[owner] = max(self._peaks[owner], self.device[owner])
            self._peak_nbytes = max(self._peak_nbytes, self.device_nbytes)

    def drop(self, owner: str) -> None:
        """Remove all bytes of an owner on the GPU."""
        with self._changing:
            self.add(owner, -self.device[owner])

    def pin(self, owner: str, nbytes: int) -> None:
        """Add pinned bytes on the host to an owner; a negative number for freed memory."""
        with self._changing:
            self.pinned[owner] += nbytes

    @property
    def device_nbytes(self) -> int:
        """Bytes on the GPU of all owners."""
        with self._changing:
            return sum(self.device.values())

    def report(self) -> dict[str, dict[str, int]]:
        """Return {'device': {owner: bytes}, 'pinned': {owner: bytes}} of present allocations."""
        with self._changing:
            return {'device': dict(+self.device), 'pinned': dict(+self.pinned)}

    def peak(self) -> dict[str, int]:
        """Return {owner: highest bytes on the GPU so far}, and 'total' of all at one time."""
        with self._changing:
            return {**+self._peaks, 'total': self._peak_nbytes}

    def diagnostics(self) -> dict[str, str]:
        """Return values for /diagnostics by key, in MB by owner."""
        held = self.report()
        return {
            'GPU memory (MB)': _owners({**held['device'], 'total': self.device_nbytes}),
            'GPU memory peak (MB)': _owners(self.peak()),
            'pinned memory (MB)': _owners(held['pinned']),
        }

    def check_budget(self, limit_mb: float) -> None:
        """Raise BackendError, with the owners, if more than a limit is allocated; 0.0 is none."""
        used = self.device_nbytes
        if limit_mb and used > limit_mb * 1e6:
            owners = dict(sorted(self.report()['device'].items(), key=lambda each: -each[1]))
            raise BackendError(
                f'The network takes {used / 1e6:.1f} MB of GPU memory, more than '
                f'memory_budget_mb = {limit_mb:g}.',
                cause=f'Memory by owner (MB): {_owners(owners)}.',
                remedy='Increase memory_budget_mb, or take less: precision fp16, a smaller '
                'input_size or max_batch_size, frames_in_flight 1.',
            )


def _owners(owners: Mapping[str, int]) -> str:
    return ', '.join(f'{owner} {nbytes / 1e6:.1f}' for owner, nbytes in owners.items())


class DeviceBuffer:
    """GPU memory, owned by its creator; raises CudaError with requested and free bytes."""

    def __init__(self, nbytes: int, owner: str, account: Account) -> None:
        self.nbytes, context = nbytes, current_context()
        try:
            self.ptr = int(
                check(
                    runtime().cudaMalloc(max(nbytes, 1)),
                    f'allocate {megabytes(nbytes)} of GPU memory for {owner}',
                )
            )
        except CudaError as error:
            raise explain_out_of_memory(error, nbytes, account) from error
        account.add(owner, nbytes)
        freed = (runtime().cudaFree, self.ptr, account.add, owner, nbytes)
        self._free = owned(self, 'device buffer', context, _free, *freed)

    def close(self) -> None:
        """Free the memory; may be called twice."""
        self._free()


def _free(
    free: Callable[[int], Any],
    ptr: int,
    change: Callable[[str, int], None],
    owner: str,
    nbytes: int,
) -> None:
    free(ptr)
    change(owner, -nbytes)


class PinnedBuffer:
    """
    Page-locked host memory, mapped into the GPU's address space; owned by its creator.

    `view` (1-D uint8) dangles after close(), so copy data that must outlive the buffer.

    :ivar device_ptr: address of the same bytes for kernels.
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
        account.pin(owner, nbytes)
        freed = (rt.cudaFreeHost, self.ptr, account.pin, owner, nbytes)
        self._free = owned(self, 'pinned buffer', context, _free, *freed)
        self.device_ptr = int(check(rt.cudaHostGetDevicePointer(self.ptr, 0), 'map pinned memory'))
        raw = (ctypes.c_uint8 * nbytes).from_address(self.ptr)
        self._view: np.ndarray | None = np.frombuffer(memoryview(raw), np.uint8)

    @property
    def view(self) -> np.ndarray:
        """The bytes, (nbytes,) uint8; borrowed."""
        if self._view is None:
            raise ClosedError('The pinned buffer')
        return self._view

    def close(self) -> None:
        """Free the memory; may be called twice."""
        self._view = None
        self._free()


#: Address to (number of RegisteredMemory, context it was page-locked in): CUDA locks memory once.
_locked: dict[int, tuple[int, Context]] = {}
_locking = threading.RLock()  # Garbage collection may close one while another is locked.


class RegisteredMemory:
    """
    Borrowed host memory, page-locked so that the GPU can read it directly.

    Owns the registration, not the memory, whose owner must neither free nor move it until
    close(). The same array may be registered several times, by several pipelines too.

    :param array: C-contiguous array; its bytes are registered, never copied.
    """

    def __init__(self, array: np.ndarray, owner: str, account: Account) -> None:
        rt, context = runtime(), current_context()
        self.ptr, self.nbytes = int(array.ctypes.data), int(array.nbytes)
        with _locking:
            count, first = _locked.get(self.ptr, (0, context))
            if not count:
                check(
                    rt.cudaHostRegister(
                        self.ptr,
                        self.nbytes,
                        rt.cudaHostRegisterMapped | rt.cudaHostRegisterPortable,
                    ),
                    f'page-lock {megabytes(self.nbytes)} of host memory for {owner}',
                )
            _locked[self.ptr] = count + 1, first
        account.pin(owner, self.nbytes)
        self._array: Any = array
        freed = (_unregister, self.ptr, account.pin, owner, self.nbytes)
        self._free = owned(self, 'registered memory', first, _free, *freed)
        self.device_ptr = int(
            check(rt.cudaHostGetDevicePointer(self.ptr, 0), 'map registered memory')
        )

    def holds(self, ptr: int, nbytes: int) -> bool:
        """Return whether the `nbytes` bytes at host address `ptr` all lie inside."""
        return self.ptr <= ptr and ptr + nbytes <= self.ptr + self.nbytes

    def close(self) -> None:
        """End the registration; may be called twice."""
        self._array = None
        self._free()


def _unregister(ptr: int) -> None:
    with _locking:
        count, first = _locked.pop(ptr)
        if count > 1:
            _locked[ptr] = count - 1, first
        else:
            runtime().cudaHostUnregister(ptr)


def megabytes(nbytes: int) -> str:
    """Format a size in bytes as '1.5 MB'."""
    return f'{nbytes / 1e6:.1f} MB'


def gpu_memory() -> tuple[int, int]:
    """Return free and total bytes of the current GPU."""
    free, total = check(runtime().cudaMemGetInfo(), 'query the free GPU memory')
    return int(free), int(total)


def explain_out_of_memory(error: CudaError, nbytes: int, account: Account) -> CudaError:
    """Add requested, free and allocated bytes by owner to an out-of-memory error."""
    if error.status != 'cudaErrorMemoryAllocation':
        return error
    runtime().cudaGetLastError()  # This status is not sticky: reading it clears it.
    free, total = gpu_memory()
    held = account.report()['device'].items()
    owners = ', '.join(f'{owner} {megabytes(size)}' for owner, size in held)
    return CudaError(
        error.problem,
        status=error.status,
        cause=f'requested {megabytes(nbytes)}, free {megabytes(free)} of {megabytes(total)}; '
        f'allocated by this node: {owners or "nothing"}',
        remedy=error.remedy,
    )


def copy_async(target: int, source: int, nbytes: int, stream: int) -> None:
    """Enqueue a copy between any two addresses, host or device, into a stream."""
    copy = driver_call('cuMemcpyAsync', 4, may_wait=True)  # Until pageable memory is read.
    status = copy(target, source, nbytes, stream)
    if status:
        raise failure(status, f'copy {nbytes} bytes')


def fill_async(target: int, value: int, nbytes: int, stream: int) -> None:
    """Enqueue setting every byte to `value` into a stream."""
    check(runtime().cudaMemsetAsync(target, value, nbytes, stream), f'fill {nbytes} bytes')


#: NVML counts the processes, then lists as many: another may start in between.
_ATTEMPTS = 5
_UNKNOWN = 1 << 63  # NVML's "not available" is 2**64 - 1.
_measuring = threading.RLock()  # Two measurements at a time would count the memory of both twice.
WAIT_SECONDS = 60.0  # A GPU that does not respond would delay those of others for ever.


@contextmanager
def measured(
    account: Account, owner: str, *, wait_seconds: float = WAIT_SECONDS
) -> Iterator[None]:
    """
    Add the GPU memory that libraries allocate in this block to `owner`; a GPU is current.

    Allocations of the same account in the block are left out. One thread measures at a time.

    Measures the memory of this process, as NVML reports it. Where NVML does not list the process
    (containers, WSL, Jetson), it is the used memory of the whole GPU, to which other processes
    may add meanwhile. Not measured if the block raises.

    :param wait_seconds: longest wait for the measurement of another thread, which takes as long
        as opening a network; the block is then not measured.
    """
    if not _measuring.acquire(timeout=wait_seconds):
        yield
        return
    try:
        used = _used_nbytes()
        before = used() - account.device_nbytes
        yield
        account.add(owner, max(used() - account.device_nbytes - before, 0))
    finally:
        _measuring.release()


def _used_nbytes() -> Callable[[], int]:
    device: Any = None
    with suppress(Exception):
        device = nvml_device(str(core().Device().pci_bus_id))
    if process_nbytes(device):
        return lambda: process_nbytes(device)

    def of_gpu() -> int:
        free, total = gpu_memory()
        return total - free

    return of_gpu


def describe_gpu_memory() -> str:
    """Return the free memory of the current GPU and the processes that use most of it, as text."""
    used: dict[int, int] = {}
    with suppress(Exception):  # As in _used_nbytes; also processes that end meanwhile.
        for each in nvml_device(str(core().Device().pci_bus_id)).compute_running_processes:
            if each.used_gpu_memory < _UNKNOWN:
                used[each.pid] = int(each.used_gpu_memory)
    runtime().cudaGetLastError()  # The status of a failed allocation is not sticky: clear it.
    free, total = gpu_memory()
    largest = sorted(used.items(), key=lambda item: -item[1])[:5]
    holders = ', '.join(f'{_process_name(pid)} {megabytes(nbytes)}' for pid, nbytes in largest)
    return (
        f'free {megabytes(free)} of {megabytes(total)}; '
        f'used by {holders or "processes that NVML does not list here"}'
    )


def _process_name(pid: int) -> str:
    if pid == os.getpid():
        return f'this process ({pid})'
    try:
        return f'{Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()} ({pid})'
    except OSError:  # Of another container, or it has exited.
        return f'process {pid}'


def process_nbytes(device: Any, process: int | None = None) -> int:
    """Return the GPU memory of a process (None: this one) in bytes; 0 if NVML does not list it."""
    process = os.getpid() if process is None else process
    for _ in range(_ATTEMPTS):
        with suppress(Exception):  # Not every GPU and container supports the query.
            return sum(
                int(each.used_gpu_memory)
                for each in device.compute_running_processes
                if each.pid == process and each.used_gpu_memory < _UNKNOWN
            )
    return 0
