"""The executables `component_container` and `component_container_mt`."""

from __future__ import annotations

import os
import signal
import sys

import rclpy
from rclpy.signals import SignalHandlerOptions

from trt_ros.container.manager import ComponentManager
from trt_ros.container.spinner import Spinner


def main(args: list[str] | None = None, *, thread_num: int = 1) -> int:
    """
    Serve until SIGINT or SIGTERM, then unload everything, last loaded first.

    :param thread_num: default of the parameter of that name.
    """
    # rclpy's own handlers would end the ROS context before the nodes could tidy up.
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    manager = ComponentManager(thread_num=thread_num)
    control = Spinner('control', manager.get_logger())
    control.executor.add_node(manager)
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        signal.signal(number, lambda *_: control.stop())

    control.start()
    control.join()  # Ends, too, when a component calls rclpy.shutdown().
    for number in signals:
        signal.signal(number, signal.SIG_DFL)  # Should a node hang now, the next signal ends it.
    manager.close()
    manager.destroy_node()
    rclpy.try_shutdown()
    return 0


def main_mt(args: list[str] | None = None) -> int:
    """Like `main`, but components are spread over as many threads as the machine has cores."""
    return main(args, thread_num=os.cpu_count() or 1)


if __name__ == '__main__':
    sys.exit(main())
