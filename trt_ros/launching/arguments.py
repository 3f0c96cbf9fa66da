"""Node parameters as launch arguments, declared and typed by the parameter classes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
import signal
import sys
import threading
from typing import Any

from launch import Action, LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
import yaml

from trt_ros.errors import ParameterError, meant
from trt_ros.parameter_field import Specification, refuse_unknown, specifications
from trt_ros.ros.lifecycle import ManagedNode

PACKAGE = 'trt_ros'
PLATFORMS = ('x86', 'jetson')
#: Arguments of launch itself, which no launch file declares.
BUILT_IN_ARGUMENTS = {
    'launch-prefix',
    'launch-prefix-filter',
    'sigterm_timeout',
    'sigkill_timeout',
}


def launch_description(
    arguments: list[DeclareLaunchArgument], nodes: Callable[[LaunchContext], list[Action]]
) -> LaunchDescription:
    """Return a launch description of `nodes` that rejects unknown arguments."""
    names = {each.name for each in arguments}

    def start(context: LaunchContext) -> list[Action]:
        handle_signals(context)
        check_names(sys.argv, names, Path(context.locals.current_launch_file_path))
        return nodes(context)

    return LaunchDescription([*arguments, OpaqueFunction(function=start)])


def handle_signals(context: LaunchContext) -> None:
    """
    Shut down the launch on SIGINT, without KeyboardInterrupt, and on SIGHUP (a closed terminal).

    launch reads SIGINT from a wakeup descriptor, but leaves the handler of Python in place: the
    exception interrupts launch anywhere, which then forgets a process that it has just started, or
    waits for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(
            signal.SIGINT,
            # The loop is None after the launch.
            lambda *of: None if context.asyncio_loop else signal.default_int_handler(*of),
        )
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGINT))


def check_names(words: list[str], known: Collection[str], file: Path) -> None:
    """
    Check the arguments on the command line `words`, where it launches a file of trt_ros.

    A launch file that includes one of trt_ros may declare further arguments.

    :param file: the launch file, in the folder of launch files.
    :raises ParameterError: for an unknown argument, with the nearest names.
    """
    folder = file.resolve().parent
    plain = [word for word in words if ':=' not in word]
    if not any(
        Path(word).resolve().parent == folder or (before == PACKAGE and (folder / word).is_file())
        for before, word in pairwise(plain)
    ):
        return
    for word in words:
        name, found, _ = word.partition(':=')
        if found and name not in {*known, *BUILT_IN_ARGUMENTS}:
            raise ParameterError(
                f'Launch argument {name!r} does not exist.',
                remedy=f'{meant(name, known)}Run `ros2 launch ... --show-args` for a list.',
            )


def argument(
    name: str, default: str, text: str, choices: Sequence[str] | None = None
) -> DeclareLaunchArgument:
    """Declare a launch argument."""
    return DeclareLaunchArgument(name, default_value=default, description=text, choices=choices)


def common_arguments(*, container: str, platform: str = 'auto') -> list[DeclareLaunchArgument]:
    """Declare the arguments of every launch file; launch_nodes() reads them."""
    switch = ('true', 'false')
    return [
        argument(
            'container',
            container,
            'Container of the nodes: none starts one process per node, new starts a container, a '
            'name (/ComponentManager) loads them into that running container.',
        ),
        argument('params_file', '', 'Parameter file of all nodes; launch arguments override it.'),
        argument(
            'platform',
            platform,
            'Platform defaults, overridden by params_file: config/x86.yaml or '
            'config/jetson.yaml; auto detects the platform.',
            ('auto', *PLATFORMS),
        ),
        argument('autostart', 'true', 'Whether to configure and activate the nodes.', switch),
        argument(
            'respawn',
            'false',
            'Whether to restart processes that exit, and configure and activate their nodes '
            'again; false ends the launch. Does not apply to a running container.',
            switch,
        ),
        argument(
            'respawn_delay',
            '2.0',
            'Delay in seconds between the exit of a process and its restart.',
        ),
        argument(
            'use_sim_time',
            'false',
            'Whether to use the time of /clock, as published by ros2 bag play.',
            switch,
        ),
    ]


def parameter_arguments(
    cls: type[ManagedNode], prefix: str = '', **defaults: str
) -> list[DeclareLaunchArgument]:
    """Declare every parameter of a node class as the launch argument `prefix` + its name."""
    return [
        argument(
            prefix + each.name,
            defaults.get(each.name, ''),
            each.description
            + (f' ({each.allowed})' if each.allowed else '')
            + f' Node default: {_shown(each.default)}.',
        )
        for each in specifications(cls.Parameters).values()
        if each.name != 'autostart'
    ]


def _shown(default: Any) -> str:
    return repr(list(default) if isinstance(default, tuple) else default)


def given_parameters(
    context: LaunchContext, cls: type[ManagedNode], prefix: str = ''
) -> dict[str, Any]:
    """Return the parameters set as launch arguments, converted; raise ParameterError if bad."""
    given = {}
    for each in specifications(cls.Parameters).values():
        text = context.launch_configurations.get(prefix + each.name, '')
        if text and each.name != 'autostart':
            given[each.name] = _as_value(each, text)
    return checked_parameters(cls, given)


def checked_parameters(cls: type[ManagedNode], values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values to the types of the parameters, or raise ParameterError."""
    known = specifications(cls.Parameters)
    refuse_unknown(cls.Parameters, values, 'parameter')
    return {name: known[name].check(value) for name, value in values.items()}


def _as_value(specification: Specification, text: str) -> Any:
    if specification.python_type is str:
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ParameterError(
            f'{specification.name} is {text!r}.', cause=f'Invalid YAML: {error}'
        ) from error
