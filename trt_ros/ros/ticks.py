"""Calls at a rate: in a thread of their own, or by the clock of a simulation."""

from collections.abc import Callable
import threading
import time
import traceback

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.timer import Timer

from trt_ros.ros.lifecycle import ManagedNode


class Ticks:
    """
    Calls of a function at a rate, until close().

    They are made in a thread of their own, which waits for nothing else: an executor needs the
    longer, the more entities it has. With simulated time, they are made by a timer in the
    executor: a simulation that stands still makes none.

    :param period: seconds.
    :param delay: seconds until the first call; the period by default.
    """

    def __init__(
        self,
        node: ManagedNode,
        period: float,
        call: Callable[[], None],
        delay: float | None = None,
    ) -> None:
        self._node, self._period, self._call = node, period, call
        self._stopping = threading.Event()
        self._timer: Timer | None = None
        if node.is_simulated:
            self._timer = node.create_timer(period, call, callback_group=ReentrantCallbackGroup())
            return
        node.context.on_shutdown(self._stop)
        self._due = time.monotonic() + (period if delay is None else delay)
        self._thread = threading.Thread(target=self._run, name='ticks')
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait for the call in progress."""
        timer = self._timer
        if timer is not None:
            self._node.run_on_executor(lambda: self._node.destroy_timer(timer))
            return
        self._stop()
        self._thread.join()

    def _stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(max(self._due - time.monotonic(), 0.0)):
            try:
                self._call()
            except Exception:
                self._node.get_logger().error(
                    f'A periodic call failed.\n{traceback.format_exc()}',
                    throttle_duration_sec=10.0,
                )
            late = time.monotonic() - self._due
            self._due += self._period * max(1, -(-late // self._period))  # Missed ones are lost.
