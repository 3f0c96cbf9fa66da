"""Threads that spin nodes and survive the exceptions of their callbacks."""

from collections.abc import Callable
from contextlib import suppress
import threading

from rclpy.executors import (
    ExternalShutdownException,
    ShutdownException,
    SingleThreadedExecutor,
    TimeoutException,
)
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.node import Node

from trt_ros.errors import log_text

#: Base class of all exceptions of components, including SystemExit and asyncio.CancelledError.
Thrown = BaseException


class ForgivingExecutor(SingleThreadedExecutor):
    """An executor that logs exceptions of callbacks; rclpy's own executors leave spin()."""

    def __init__(self, logger: RcutilsLogger) -> None:
        super().__init__()
        self._logger = logger

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Run at most one callback, waiting up to `timeout_sec` for it."""
        try:
            task, _, node = self.wait_for_ready_callbacks(timeout_sec)
        except ExternalShutdownException:
            raise
        except (ShutdownException, TimeoutException):
            return
        except Exception as error:
            self._log_failure(self._logger, error)
            return
        try:
            task()
            failure: BaseException | None = task.exception()
        except Thrown as error:  # rclpy's Task only catches Exception, and stays unfinished.
            task.cancel()
            failure = error
        if failure is not None:
            self._log_failure(node.get_logger() if node else self._logger, failure)

    def remove_node(self, node: Node) -> None:
        """Remove a node and its suspended coroutines."""
        super().remove_node(node)
        # rclpy would keep the node's suspended coroutines, and thereby the node, for ever.
        with self._tasks_lock:
            self._tasks = [task for task in self._tasks if task[2] is not node]

    @staticmethod
    def _log_failure(logger: RcutilsLogger, error: BaseException) -> None:
        logger.error(f'A callback failed. {log_text(error)}', throttle_duration_sec=1.0)


class Spinner:
    """
    An executor and the thread that spins it; both are owned, the nodes are borrowed.

    rclpy's MultiThreadedExecutor is unsuitable for image topics: it passes the same ready entity
    to several threads (rclpy 7.1.6: 736 ms median at 300 Hz, 169 of 3000 messages received).
    """

    def __init__(self, name: str, logger: RcutilsLogger) -> None:
        self.executor, self._logger = ForgivingExecutor(logger), logger
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._spin, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Finish the running callback, stop spinning and join the thread."""
        self._closing.set()
        self.executor.create_task(lambda: None)  # wake() alone would not return from spin_once().
        self._thread.join()

    def close(self) -> None:
        """Stop, and shut the executor down."""
        self.stop()
        self.executor.shutdown()  # It removes what a spinning thread waits for.

    def run_on_executor(self, work: Callable[[], None]) -> None:
        """Run `work` on the spinning thread and wait for it; its exceptions are logged."""
        done = threading.Event()

        def task() -> None:
            try:
                work()
            finally:
                done.set()

        self.executor.create_task(task)
        while not done.wait(0.5):
            if not self._thread.is_alive():  # The ROS context was shut down, which ended spin().
                return task()

    def destroy(self, node: Node) -> None:
        """Destroy a node on the spinning thread; its exceptions are logged."""

        def task() -> None:
            name = node.get_fully_qualified_name()
            self.executor.remove_node(node)
            try:
                node.destroy_node()
            except Thrown as error:
                self._logger.error(f'Failed to destroy {name}. {log_text(error)}')
                Node.destroy_node(node)  # Releases rclpy's entities in any case.

        self.run_on_executor(task)

    def _spin(self) -> None:
        with suppress(ExternalShutdownException):
            while not self._closing.is_set():
                self.executor.spin_once()
