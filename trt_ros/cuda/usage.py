"""GPU memory that libraries allocate, as the difference between two measurements."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
import os
from pathlib import Path
import threading
from typing import Any

from trt_ros.cuda.calls import check, core, runtime
from trt_ros.cuda.memory import Account, megabytes

#: NVML counts the processes, then lists as many: another may start in between.
_ATTEMPTS = 5
_UNKNOWN = 1 << 63  # NVML's "not available" is 2**64 - 1.
_measuring = threading.RLock()  # Two measurements at a time would count the memory of both twice.
WAIT_SECONDS = 60.0  # A GPU that does not respond would delay those of others for ever.


@contextmanager
def measured(account: Account, owner: str, *, wait: bool = True) -> Iterator[None]:
    """
    Add the GPU memory that libraries allocate in this block to `owner`; a GPU is current.

    Allocations of the same account in the block are left out. One thread measures at a time.

    Measures the memory of this process, as NVML reports it. Where NVML does not list the process
    (containers, WSL, Jetson), it is the used memory of the whole GPU, to which other processes
    may add meanwhile. Not measured if the block raises.

    :param wait: whether to wait up to WAIT_SECONDS for the measurement of another thread, which
        takes as long as opening a network; otherwise the block is then not measured.
    """
    if not _measuring.acquire(timeout=WAIT_SECONDS if wait else 0):
        yield
        return
    try:
        used = _used_nbytes()
        before = used() - account.device_nbytes
        yield
        account.add(owner, max(used() - account.device_nbytes - before, 0))
    finally:
        _measuring.release()


def _nvml_device() -> Any:
    bus_id = str(core().Device().pci_bus_id)
    return import_module('cuda.core.system').Device(pci_bus_id=bus_id)


def _used_nbytes() -> Callable[[], int]:
    device: Any = None
    with suppress(Exception):  # Several types: no such library, no such device, no permission.
        device = _nvml_device()
    if process_nbytes(device):
        return lambda: process_nbytes(device)

    def of_gpu() -> int:
        free, total = check(runtime().cudaMemGetInfo(), 'query the free GPU memory')
        return int(total) - int(free)

    return of_gpu


def describe_gpu_memory() -> str:
    """Return the free memory of the current GPU and the processes that use most of it, as text."""
    used: dict[int, int] = {}
    with suppress(Exception):  # As in _used_nbytes; also processes that end meanwhile.
        for each in _nvml_device().compute_running_processes:
            if each.used_gpu_memory < _UNKNOWN:
                used[each.pid] = int(each.used_gpu_memory)
    runtime().cudaGetLastError()  # The status of a failed allocation is not sticky: clear it.
    free, total = check(runtime().cudaMemGetInfo(), 'query the free GPU memory')
    return _memory_text(int(free), int(total), used)


def _memory_text(free: int, total: int, used: Mapping[int, int]) -> str:
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
