"""The executables `component_container` and `component_container_mt`."""

from functools import partial
import os
import sys

from trt_ros.container.manager import ComponentManager
from trt_ros.ros.process import run

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
    make = partial(ComponentManager, thread_num=thread_num)
    return run(make, args, DESCRIPTION, PARAMETERS.format(thread_num=thread_num))


def main_mt(args: list[str] | None = None) -> int:
    """Run `main` with one executor thread per CPU."""
    return main(args, thread_num=os.cpu_count() or 1)


if __name__ == '__main__':
    sys.exit(main())
