"""Exceptions that become dropped frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import traceback

from trt_ros.errors import GpuFailedError, TrtRosError, printable
from trt_ros.ros.diagnostics import FrameCounts
from trt_ros.ros.lifecycle import ManagedNode


@contextmanager
def dropping(node: ManagedNode, counts: FrameCounts, origin: str = '') -> Iterator[None]:
    """
    Turn an exception into a dropped frame, counted and logged by its cause.

    A failed GPU also deactivates the node.

    :param origin: identifies the frame in the log, as in ' of /camera/image'.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, TrtRosError):
            problem, why = error.problem, str(error)
        else:
            problem, why = repr(error), printable(traceback.format_exc(), lines=True)
        cause = cause_of(error)
        if counts.drop(cause, problem):
            node.get_logger().error(f'A frame{origin} was dropped ({cause}). {why}')
        if isinstance(error, GpuFailedError):
            node.fail(error)


def cause_of(error: Exception) -> str:
    """Return the cause under which a frame is counted that was dropped because of an error."""
    return getattr(error, 'kind', type(error).__name__)
