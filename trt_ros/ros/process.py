"""Main function of node processes: tuning, signals, spinning and shutdown."""

from collections.abc import Callable
import logging
import os
from pathlib import Path
import signal
import sys
import threading
from typing import Any

import rclpy
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.impl.implementation_singleton import rclpy_implementation
import rclpy.logging
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

from trt_ros.errors import ParameterError, TrtRosError, printable
from trt_ros.process_memory import tune_process
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.parameters import yaml_text
from trt_ros.ros.spinner import Spinner

#: A closed terminal sends SIGHUP.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USAGE_ERROR = 2
#: Exceptions of rclpy for arguments that the user can correct.
REFUSED = (
    rclpy_implementation.RCLError,
    rclpy_implementation.UnknownROSArgsError,
    ParameterException,
    NameValidationException,
)


class RosHandler(logging.Handler):
    """A logging handler that forwards records of the layers without ROS to the ROS log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record with the corresponding severity."""
        logger = rclpy.logging.get_logger(record.name)
        text = printable(self.format(record), lines=True)
        # One line each: rclpy allows one severity per line of code.
        if record.levelno >= logging.ERROR:
            logger.error(text)
        elif record.levelno >= logging.WARNING:
            logger.warning(text)
        elif record.levelno >= logging.INFO:
            logger.info(text)
        else:
            logger.debug(text)


def log_through_ros() -> None:
    """
    Forward all `trt_ros` loggers of this process to the ROS log; may be called twice.

    The level `debug` of the ROS logger `trt_ros` (`--log-level debug`) holds for them all, and for
    TensorRT's own log of a build.
    """
    logger = logging.getLogger('trt_ros')
    if not logger.handlers:
        is_debug = rclpy.logging.get_logger('trt_ros').is_enabled_for(
            rclpy.logging.LoggingSeverity.DEBUG
        )
        logger.setLevel(logging.DEBUG if is_debug else logging.INFO)
        logger.addHandler(RosHandler())


class StopSignal:
    """
    A waitable for SIGINT, SIGTERM and SIGHUP; under nohup SIGHUP stays ignored.

    rclpy's own handlers shut down the ROS context at once, before a node can finish its last
    frame.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            # SIGINT is handled even if ignored, as in background jobs of a shell.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)

    def send(self) -> None:
        """Wake the waiting thread like a signal."""
        os.write(self._write, b'\0')

    def wait(self) -> None:
        """Wait for a signal; the next SIGTERM kills the process, in case the shutdown hangs."""
        os.read(self._read, 1)
        # Ctrl-C arrives twice when a launch without a terminal forwards the signal of its group.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)


def start_ros(args: list[str] | None, description: str, parameters: str) -> None:
    """Check arguments and initialize rclpy; SystemExit 0 after --help, 2 for a wrong one."""
    program = Path(sys.argv[0]).stem
    usage = (
        f'usage: {program} [--ros-args [-p NAME:=VALUE] [-r FROM:=TO] [--params-file FILE] '
        '[--log-level LEVEL] ...]'
    )
    own = sys.argv[1:] if args is None else []
    if {'-h', '--help'} & set(own):
        print(
            f'{usage}\n\n{description}\n\n'
            f'Parameters with their defaults, as a parameter file:\n\n{parameters}'
        )
        raise SystemExit(0)
    try:
        unknown = remove_ros_args(own)
        # rcl treats NAME:=VALUE without --ros-args as a remap rule.
        unknown += [
            each
            for each in own[: own.index('--ros-args') if '--ros-args' in own else None]
            if f'    {each.partition(":=")[0]}: ' in parameters and each not in unknown
        ]
        if unknown:
            raise ParameterError(
                f'Unknown arguments: {" ".join(unknown)}.',
                cause='The only argument before --ros-args is --help.',
                remedy=f'Run {program} --ros-args {" ".join(unknown)}, or {program} --help.',
            )
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except (*REFUSED, TrtRosError) as error:
        raise refusal(error) from None


def refusal(error: Exception) -> SystemExit:
    """Report invalid arguments; return the exception that exits the process."""
    print(printable(f'{Path(sys.argv[0]).stem}: {error}', lines=True), file=sys.stderr)
    return SystemExit(USAGE_ERROR)


def run_node(make_node: Callable[[], ManagedNode], args: list[str] | None = None) -> int:
    """Construct a node and spin it until a stop signal; return 1 if it could not start."""
    cls = getattr(make_node, 'func', make_node)
    parameters = getattr(cls, 'Parameters', ManagedNode.Parameters)
    return run(make_node, args, (cls.__doc__ or '').strip(), yaml_text(parameters, 'node'))


def run(
    make_node: Callable[[], Any], args: list[str] | None, description: str, parameters: str
) -> int:
    """Run any node as run_node() does; it has `on_failed_start` and stop(); see start_ros()."""
    tune_process()
    stop = StopSignal()
    start_ros(args, description, parameters)
    log_through_ros()
    try:
        node = make_node()
    except TrtRosError as error:
        print(error, file=sys.stderr)
        rclpy.try_shutdown()
        return 1
    except REFUSED as error:
        rclpy.try_shutdown()
        raise refusal(error) from None
    has_failed = threading.Event()

    def exit_with_failure() -> None:
        has_failed.set()
        stop.send()

    node.on_failed_start = exit_with_failure
    # Another part of the program may shut down the ROS context; the process then exits, too.
    rclpy.get_default_context().on_shutdown(stop.send)
    spinner = Spinner('executor', node.get_logger())
    spinner.executor.add_node(node)
    stop.wait()
    spinner.stop()
    node.stop()  # A transition in progress tells the executor of its end.
    spinner.close()
    node.destroy_node()
    rclpy.try_shutdown()
    return int(has_failed.is_set())
