"""Node parameters as launch arguments: declared from the parameter class, read back with types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from pathlib import Path
import sys
from typing import Any

from launch import Action, LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
import yaml

from trt_ros.errors import ParameterError
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.parameters import Specification, meant, specifications

PACKAGE = 'trt_ros'
PLATFORMS = ('x86', 'jetson')
#: Those of launch itself, which no file declares.
LAUNCHS_OWN = {'launch-prefix', 'launch-prefix-filter', 'sigterm_timeout', 'sigkill_timeout'}


def launch_description(
    arguments: list[DeclareLaunchArgument], nodes: Callable[[LaunchContext], list[Action]]
) -> LaunchDescription:
    """
    Make a launch description that refuses unknown arguments.

    :param nodes: called at launch for the actions.
    """
    names = {each.name for each in arguments}

    def start(context: LaunchContext) -> list[Action]:
        check_names(sys.argv, names, Path(context.locals.current_launch_file_path))
        return nodes(context)

    return LaunchDescription([*arguments, OpaqueFunction(function=start)])


def check_names(words: list[str], known: Collection[str], file: Path) -> None:
    """
    Refuse unknown arguments on the command line `words`, where that launches one of our files.

    A file that includes ours may have more arguments of its own.

    :param file: the launch file, which lies in our folder of them.
    :raises ParameterError: with the nearest names.
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
        if found and name not in {*known, *LAUNCHS_OWN}:
            raise ParameterError(
                f'The launch file has no argument {name!r}.',
                remedy=f'{meant(name, known)}`ros2 launch ... --show-args` lists them all.',
            )


def common_arguments(*, container: str) -> list[DeclareLaunchArgument]:
    """Declare what every launch file of ours takes; `graph` reads it."""
    return [
        DeclareLaunchArgument(
            'container',
            default_value=container,
            description=(
                'Where nodes run. none: in a process each. new: together in a new container. '
                'Else the name of a running container, as /ComponentManager.'
            ),
        ),
        DeclareLaunchArgument(
            'params_file',
            default_value='',
            description=('Parameter file for all nodes; arguments beat it.'),
        ),
        DeclareLaunchArgument(
            'platform',
            default_value='auto',
            description=(
                'Whose defaults the detector takes, below params_file: config/x86.yaml or '
                'config/jetson.yaml. auto: what this machine is.'
            ),
            choices=('auto', *PLATFORMS),
        ),
        DeclareLaunchArgument(
            'autostart',
            default_value='true',
            choices=('true', 'false'),
            description='Configure and activate the nodes.',
        ),
        DeclareLaunchArgument(
            'respawn',
            default_value='false',
            choices=('true', 'false'),
            description=(
                'Start a process again when it ends, and its nodes as at first; false: the launch '
                'ends with it. Not of a container that was running already.'
            ),
        ),
        DeclareLaunchArgument(
            'respawn_delay',
            default_value='2.0',
            description=('Seconds from the end of a process to its new start.'),
        ),
        DeclareLaunchArgument(
            'use_sim_time',
            default_value='false',
            choices=('true', 'false'),
            description='Take the time from /clock, as from a played bag.',
        ),
    ]


def parameter_arguments(
    cls: type[ManagedNode], prefix: str = '', **defaults: str
) -> list[DeclareLaunchArgument]:
    """Declare every parameter of a node class as the launch argument `prefix` + its name."""
    return [
        DeclareLaunchArgument(
            prefix + each.name,
            default_value=defaults.get(each.name, ''),
            description=(
                each.description
                + (f' ({each.allowed})' if each.allowed else '')
                + f" The node's own default: {_shown(each.default)}."
            ),
        )
        for each in specifications(cls.Parameters).values()
        if each.name != 'autostart'
    ]


def _shown(default: Any) -> str:
    return repr(list(default) if isinstance(default, tuple) else default)


def given_parameters(
    context: LaunchContext, cls: type[ManagedNode], prefix: str = ''
) -> dict[str, Any]:
    """
    Return the parameters that were given as launch arguments, each of its own type.

    :raises ParameterError: when one has the wrong type or is not allowed.
    """
    given = {}
    for each in specifications(cls.Parameters).values():
        text = context.launch_configurations.get(prefix + each.name, '')
        if text and each.name != 'autostart':
            given[each.name] = _as_value(each, text)
    return checked_parameters(cls, given)


def checked_parameters(cls: type[ManagedNode], values: Mapping[str, Any]) -> dict[str, Any]:
    """
    Bring values, as from a YAML file, to the types of the parameters.

    :raises ParameterError: for an unknown name, a wrong type, a value that is not allowed.
    """
    known = specifications(cls.Parameters)
    for name in values:
        if name not in known:
            raise ParameterError(
                f'The node has no parameter {name!r}.',
                remedy=f'{meant(name, known)}It has {", ".join(known)}.',
            )
    return {name: known[name].check(value) for name, value in values.items()}


def _as_value(specification: Specification, text: str) -> Any:
    if specification.python_type is str:
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ParameterError(f'{specification.name} is {text!r}.', cause=str(error)) from error
