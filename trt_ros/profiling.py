"""NVTX ranges, which mark what the host does for a frame in the timeline of Nsight Systems."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
import threading
from typing import Any, TypeVar, cast

from trt_ros.errors import requires

#: NVTX domain of all ranges.
DOMAIN = 'trt_ros'
MethodT = TypeVar('MethodT', bound=Callable[..., Any])
_NO_RANGE = nullcontext()
_lock = threading.Lock()
_users = 0
_annotate: Any = None  # Of the package nvtx, while somebody records.


def mark(name: str) -> AbstractContextManager[Any]:
    """Return a context manager that records a range of this thread, while `recording` is open."""
    annotate = _annotate
    return _NO_RANGE if annotate is None else annotate(name, domain=DOMAIN)


def marked(name: str) -> Callable[[MethodT], MethodT]:
    """Decorate a method, whose calls are ranges as by `mark`."""

    def decorate(method: MethodT) -> MethodT:
        @wraps(method)
        def ranged(*args: Any, **kwargs: Any) -> Any:
            if _annotate is None:
                return method(*args, **kwargs)
            with mark(name):
                return method(*args, **kwargs)

        return cast(MethodT, ranged)

    return decorate


@contextmanager
def recording() -> Iterator[str]:
    """
    Record the ranges of all threads of this process; may be open several times.

    Yields a line for the log: whether a profiler is attached.

    :raises ParameterError: when the package nvtx is missing.
    """
    global _annotate, _users
    with requires('the Python package nvtx', 'Profiling', 'pip install nvtx'):
        import nvtx
    with _lock:
        _users += 1
        _annotate = nvtx.annotate
    try:
        yield _log_line(nvtx.get_domain(DOMAIN))
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _annotate = None


def _log_line(domain: Any) -> str:
    # nvtx returns a domain that does nothing while no profiler is attached to the process.
    if type(domain).__name__ == 'DummyDomain':
        return (
            'profiling: no profiler is attached to this process; start it with `nsys profile`, '
            'see docs/tuning.md'
        )
    return f'profiling: NVTX ranges of the domain {DOMAIN}'
