"""The current CUDA context of a thread, for the duration of a `with` block."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trt_ros.cuda.calls import check, driver, failure


class Context:
    """
    The primary CUDA context of one GPU; `with context:` makes it current for this thread.

    Contexts nest, also those of different GPUs, and restore the previous one on exit. No state is
    kept per thread: thread ids are reused, one thread may serve several GPUs, and a CUDA call
    without a current context would create one on GPU 0, of about 500 MiB.
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
        """Call `free(*args)` with this context current; for destructors, on any thread."""
        is_current = not self._push(self.handle)[0]
        try:
            free(*args)  # Also after the context is lost: `free` updates the counts.
        finally:
            if is_current:
                self._pop()


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
