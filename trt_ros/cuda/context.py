"""The GPU that a thread's CUDA calls go to, for the length of a `with` block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trt_ros.cuda.calls import check, driver, failure


class Context:
    """
    The primary CUDA context of one GPU; `with context:` makes it current for this thread.

    It nests, also with those of other GPUs, and leaves current what was current before. Nothing is
    remembered per thread: thread ids are reused, one thread may serve several GPUs, and a CUDA
    call without a current context would make one on GPU 0, of about 500 MiB.
    """

    __slots__ = ('_pop', '_push', 'handle')

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._push, self._pop = driver().cuCtxPushCurrent, driver().cuCtxPopCurrent

    def __enter__(self) -> None:
        status = self._push(self.handle)[0]
        if status:
            raise failure(int(status), 'use the GPU')

    def __exit__(self, *_: object) -> None:
        self._pop()

    def release(self, free: Callable[..., Any], *args: Any) -> None:
        """Call what frees something of this GPU, from any thread, whatever is current there."""
        is_current = not self._push(self.handle)[0]
        try:
            free(*args)  # Also where the context is lost: it counts what is gone.
        finally:
            if is_current:
                self._pop()


def primary_context(index: int) -> Context:
    """Return the context of a GPU that the CUDA runtime uses too; kept as long as the process."""
    check(driver().cuInit(0), 'initialise CUDA')
    device = check(driver().cuDeviceGet(index), f'find GPU {index}')
    return Context(check(driver().cuDevicePrimaryCtxRetain(device), f'use GPU {index}'))


def current_context() -> Context:
    """
    Return the context of the `with` block around the caller, to free later what is made in it.

    :raises RuntimeError: outside of one.
    """
    handle = check(driver().cuCtxGetCurrent(), 'find the current GPU')
    if not handle or not int(handle):
        raise RuntimeError('No GPU is current here: call this inside `with gpu.context:`.')
    return Context(handle)
