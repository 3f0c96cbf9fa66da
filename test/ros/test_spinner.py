"""The thread that spins the nodes of a container."""

import threading

import pytest
import rclpy
from rclpy.logging import get_logger
from rclpy.signals import SignalHandlerOptions

from trt_ros.ros.spinner import Spinner


@pytest.fixture
def initialized(domain_id):
    # Else the handlers stay, and a SIGTERM of another test would end all contexts.
    rclpy.init(domain_id=domain_id, signal_handler_options=SignalHandlerOptions.NO)
    yield
    rclpy.try_shutdown()


def test_executor_is_shut_down_after_its_thread_has_ended(initialized):
    spinner = Spinner('closed_spinner', get_logger('closed_spinner'))
    spinner.run_on_executor(lambda: None)
    shut_down, threads = spinner.executor.shutdown, []

    def record():
        threads.extend(each.name for each in threading.enumerate())
        shut_down()

    spinner.executor.shutdown = record
    spinner.close()
    assert threads and 'closed_spinner' not in threads
