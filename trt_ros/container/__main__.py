"""The executables `component_container` and `component_container_mt`."""

from __future__ import annotations

import os
import sys

import rclpy
from rclpy.signals import SignalHandlerOptions

from trt_ros.container.manager import ComponentManager
from trt_ros.container.spinner import Spinner
from trt_ros.ros.process import StopSignal, log_through_ros, tune_process


def main(args: list[str] | None = None, *, thread_num: int = 1) -> int:
    """
    Serve until SIGINT or SIGTERM, then unload everything, last loaded first.

    :param thread_num: default of the parameter of that name.
    """
    tune_process()
    stop = StopSignal()
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    log_through_ros()
    manager = ComponentManager(thread_num=thread_num)
    # A component may end the ROS context; the process then ends too, in order.
    rclpy.get_default_context().on_shutdown(stop.send)
    control = Spinner('control', manager.get_logger())
    control.executor.add_node(manager)
    stop.wait()
    manager.close()
    control.close()
    manager.destroy_node()
    rclpy.try_shutdown()
    return 0


def main_mt(args: list[str] | None = None) -> int:
    """Like `main`, but components are spread over as many threads as the machine has cores."""
    return main(args, thread_num=os.cpu_count() or 1)


if __name__ == '__main__':
    sys.exit(main())
