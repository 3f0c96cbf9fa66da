"""The executables `component_container` and `component_container_mt`."""

import os
import sys
import threading

from rclpy.utilities import get_default_context, try_shutdown

from trt_ros.container.manager import ComponentManager
from trt_ros.process_memory import tune_process
from trt_ros.ros.process import (
    REFUSED,
    StopSignal,
    log_through_ros,
    refusal,
    start_ros,
)
from trt_ros.ros.spinner import Spinner

DESCRIPTION = (
    'Load Python components into one process, as rclcpp_components does for C++ components.'
)
PARAMETERS = """/**:
  ros__parameters:
    # Number of executor threads, which share the components. From 1 to the number of CPUs.
    thread_num: {thread_num}
    # Whether any Python class named `module:Class` can be loaded; false allows registered
    # components only.
    allow_modules: false
    # Whether the container ends, with exit code 1, when a component with autostart cannot be
    # configured or activated.
    exit_on_failure: false
"""


def main(args: list[str] | None = None, *, thread_num: int = 1) -> int:
    """Run the container until a signal stops it, then unload all components in reverse order."""
    tune_process()
    stop = StopSignal()
    start_ros(args, DESCRIPTION, PARAMETERS.format(thread_num=thread_num))
    log_through_ros()
    has_failed = threading.Event()

    def exit_with_failure() -> None:
        has_failed.set()
        stop.send()

    try:
        manager = ComponentManager(exit_with_failure, thread_num=thread_num)
    except REFUSED as error:
        try_shutdown()
        raise refusal(error) from None
    # A component may shut down the ROS context; the process then exits, too, after cleaning up.
    get_default_context().on_shutdown(stop.send)
    control = Spinner('control', manager.get_logger())
    control.executor.add_node(manager)
    stop.wait()
    manager.close()
    control.close()
    manager.destroy_node()
    try_shutdown()
    return int(has_failed.is_set())


def main_mt(args: list[str] | None = None) -> int:
    """Run `main` with one executor thread per CPU."""
    return main(args, thread_num=os.cpu_count() or 1)


if __name__ == '__main__':
    sys.exit(main())
