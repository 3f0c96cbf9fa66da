"""Exceptions that become dropped frames."""

from collections.abc import Sequence

from trt_ros.errors import GpuFailedError, log_text, problem_of
from trt_ros.ros.diagnostics import FrameCounts
from trt_ros.ros.lifecycle import ManagedNode


class Dropping:
    """
    Turns an exception into a dropped frame, counted and logged by its cause; a context manager.

    A failed GPU also deactivates the node. It may be entered again, and by several threads.

    :param origin: identifies the frame in the log, as in ' of /camera/image'.
    :param others: further counters of the frame.
    """

    def __init__(
        self,
        node: ManagedNode,
        counts: FrameCounts,
        origin: str = '',
        others: Sequence[FrameCounts] = (),
    ) -> None:
        self._node, self._counts, self._origin, self._others = node, counts, origin, others

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        cause = getattr(error, 'kind', type(error).__name__)
        for each in self._others:
            each.drop(cause)
        if self._counts.drop(cause, problem_of(error)):
            self._node.get_logger().error(
                f'A frame{self._origin} was dropped ({cause}). {log_text(error)}'
            )
        if isinstance(error, GpuFailedError):
            self._node.fail(error)
        return True
