"""Threads of a node: its transitions, and what it does every second, beside its executor."""

from collections.abc import Callable
from contextlib import suppress
import threading
import traceback
from typing import Any
import weakref

from rclpy.exceptions import InvalidHandle
from rclpy.node import Node
from rclpy.task import Future

from trt_ros.errors import printable

#: Raised by the create_task() of an executor that was shut down, or is just then.
SHUT_DOWN = (AttributeError, InvalidHandle)


class TransitionThread:
    """
    A thread per transition of a node, one at a time, and one for its `followers`, until stop().

    :ivar cancelled: set when the transition should end early.
    :ivar done: end of the last transition; None before the first one.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.cancelled = threading.Event()
        self.done: Future | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._following = threading.Thread(
            target=_follow, args=[weakref.ref(node), self._stopping], name='followers', daemon=True
        )
        self._following.start()

    def start(self, work: Callable[[], bool]) -> Future | None:
        """Start `work`; return None if a transition is in progress, or after stop()."""
        if self._stopping.is_set() or not self._lock.acquire(blocking=False):
            return None
        done = Future(executor=self._node.executor)
        # Awaiting alone would not wake the executor; a done callback does.
        done.add_done_callback(lambda _: None)
        self.cancelled.clear()
        if self._stopping.is_set():
            self.cancelled.set()

        def run() -> None:
            result = False
            try:
                result = work()
            except Exception:
                log_traceback(self._node, 'Transition failed.')
            finally:
                self._thread = None
                self._lock.release()
                with suppress(*SHUT_DOWN):  # Nobody is left to wake up.
                    done.set_result(result)

        self.done = done
        self._thread = threading.Thread(target=run, name='transition')
        self._thread.start()
        return done

    def stop(self) -> None:
        """Cancel a running transition and wait for its end; later ones are refused."""
        self._stopping.set()
        self.cancelled.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        if threading.current_thread() is not self._following:
            self._following.join()

    def run_on_executor(self, work: Callable[[], Any]) -> Any:
        """Run `work` in the executor's thread, if called in these; return or raise as it."""
        executor = self._node.executor
        if executor is None or threading.current_thread() not in (self._thread, self._following):
            return work()
        claim, done = threading.Lock(), threading.Event()
        outcome: list[tuple[Any, Exception | None]] = []

        def once() -> None:
            if not claim.acquire(blocking=False):
                return
            try:
                outcome.append((work(), None))
            except Exception as error:
                outcome.append((None, error))
            done.set()

        try:
            executor.create_task(once)
        except SHUT_DOWN:
            once()
        while not done.wait(0.05):
            if self._stopping.is_set() or not self._node.context.ok():
                once()  # The executor's thread waits for this one, or has stopped spinning.
        result, error = outcome[0]
        if error is not None:
            raise error
        return result


def _follow(of: Callable[[], Any], stopping: threading.Event) -> None:
    seconds = 1.0
    while not stopping.wait(seconds) and (node := of()) is not None:
        if not node.context.ok():
            node.stop()  # By Ctrl-C, in a program that destroys nothing: its threads would stay.
            return
        for each in tuple(node.followers):
            try:
                each()
            except Exception:
                log_traceback(node, 'A periodic call failed.')
        seconds = 2.0 if node.is_idle else 1.0
        del node


def log_traceback(node: Node, problem: str) -> None:
    """Log a problem with the traceback of the exception that is handled."""
    node.get_logger().error(printable(f'{problem}\n{traceback.format_exc()}', lines=True))
