"""The nodes of a launch file, in a process each or together in a container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
import signal
import threading
from typing import Any

from ament_index_python import get_package_share_directory
from composition_interfaces.srv import LoadNode
from launch import Action, LaunchContext
from launch.actions import LogInfo, SetEnvironmentVariable
from launch.events.process import ProcessExited
from launch_ros.actions import Node
from launch_ros.actions.load_composable_nodes import get_composable_node_load_request
from launch_ros.descriptions import ComposableNode, ParameterValue

from trt_ros.errors import ParameterError
from trt_ros.launching.arguments import PACKAGE
from trt_ros.launching.bring_up import BringUp
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.parameters import specifications


@dataclass(frozen=True)
class Part:
    """
    One node of a graph.

    :param parameters: values for the node; they beat the parameter files.
    :param has_platform: takes the platform's defaults.
    """

    cls: type[ManagedNode]
    name: str
    namespace: str = ''
    remappings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    has_platform: bool = False

    @property
    def executable(self) -> str:
        return self.cls.__module__.rpartition('.')[2]


def graph(context: LaunchContext, parts: list[Part]) -> list[Action]:
    """
    Start nodes, in a process each or in a container, as `common_arguments` say.

    They are configured and then activated in the order given. The launch fails, with a message
    and an exit code, when a node cannot be loaded, configured or activated, or when a process
    dies, unless that is to be started again.
    """
    end_with_terminal()
    said = context.launch_configurations
    actions = transport(context)
    platform = this_platform() if said['platform'] == 'auto' else said['platform']
    if platform == 'jetson':
        actions.append(LogInfo(msg='Jetson: `sudo jetson_clocks` keeps its clocks high.'))
    if said['params_file'] and not Path(said['params_file']).is_file():
        raise ParameterError(f'There is no parameter file {said["params_file"]}.')
    config = Path(get_package_share_directory(PACKAGE)) / 'config'
    keywords: list[dict[str, Any]] = []
    for part in parts:
        files = [str(config / f'{platform}.yaml')] if part.has_platform else []
        files += [said['params_file']] if said['params_file'] else []
        keywords.append(
            {
                'package': PACKAGE,
                'name': part.name,
                'namespace': part.namespace,
                'remappings': list(part.remappings.items()),
                'parameters': [
                    *files,
                    {
                        'autostart': False,  # The launch does it.
                        'use_sim_time': said['use_sim_time'] == 'true',
                        **_launch_values(part.parameters, part.cls),
                    },
                ],
            }
        )
    at_end = _at_end(said)
    processes, components = [], []
    if said['container'] == 'none':
        processes = [
            Node(executable=part.executable, output='screen', **at_end, **each)
            for part, each in zip(parts, keywords)
        ]
    else:
        components = [
            _load_request(
                context,
                ComposableNode(
                    plugin=f'{PACKAGE}::{part.cls.__name__}',
                    extra_arguments=[{'use_intra_process_comms': True}],
                    **each,
                ),
            )
            for part, each in zip(parts, keywords)
        ]
    container: Node | str = said['container']
    if container == 'new':
        container = Node(
            package=PACKAGE,
            executable='component_container_mt',
            output='screen',
            name=f'{PACKAGE}_container',
            namespace='',
            **at_end,
        )
        actions.append(container)
    return [
        *actions,
        *processes,
        BringUp(processes, components, container, activate=said['autostart'] == 'true'),
    ]


def end_with_terminal() -> None:
    """End the launch in order when its terminal is closed, as launch itself does for Ctrl-C."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    ):
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGINT))


def _load_request(context: LaunchContext, component: ComposableNode) -> LoadNode.Request:
    try:
        return get_composable_node_load_request(component, context)
    except Exception as error:
        raise ParameterError(
            f'params_file is nothing that launch_ros can give to a component: {error}',
            remedy='Leave empty lists (`labels: []`) out; '
            'with container:=none the nodes read the file themselves.',
        ) from error


def _at_end(said: Mapping[str, str]) -> dict[str, Any]:
    """Return what happens when a process ends, as keywords for launch."""
    try:
        delay = float(said['respawn_delay'])
    except ValueError:
        delay = -1.0
    if not 0.0 <= delay < float('inf'):
        raise ParameterError(
            f'respawn_delay is {said["respawn_delay"]!r}.', remedy='Give seconds, as in 2.0.'
        )
    if said['respawn'] == 'true':
        return {'respawn': True, 'respawn_delay': delay}
    return {'on_exit': _check_exit}


def _launch_values(parameters: Mapping[str, Any], cls: type[ManagedNode]) -> dict[str, Any]:
    """Say the type of each value to launch_ros, which would guess it from the text."""
    values = {}
    for name, value in parameters.items():
        each = specifications(cls.Parameters)[name]
        if each.entry_type is None:
            values[name] = ParameterValue(value, value_type=each.python_type)
        elif value:  # launch_ros knows no empty list, and that is what they all are by default.
            values[name] = ParameterValue(list(value), value_type=list[each.entry_type])
    return values


def transport(context: LaunchContext) -> list[Action]:
    """
    Give Fast DDS room for images: its own 512 KiB of shared memory lose almost every one.

    Only the sender's setting counts, so a camera driver started elsewhere needs it too.
    """
    files = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
    environment = context.environment
    if any(name in environment for name in ('FASTDDS_BUILTIN_TRANSPORTS', *files)):
        return []
    if (
        environment.get('ROS_AUTOMATIC_DISCOVERY_RANGE') == 'LOCALHOST'
        or environment.get('ROS_LOCALHOST_ONLY') == '1'
    ):
        # rmw_fastrtps then replaces the built-in transports, but leaves those of a profile.
        profile = str(Path(get_package_share_directory(PACKAGE)) / 'config' / 'fastdds.xml')
        return [SetEnvironmentVariable(name, profile) for name in files]
    return [SetEnvironmentVariable('FASTDDS_BUILTIN_TRANSPORTS', 'DEFAULT?sockets_size=32MB')]


def _check_exit(event: ProcessExited, context: LaunchContext) -> None:
    if event.returncode and not context.is_shutdown:
        raise RuntimeError(f'{event.process_name} ended with exit code {event.returncode}.')


def this_platform(compatible: Path = Path('/proc/device-tree/compatible')) -> str:
    """Tell 'jetson', where the device tree names a Tegra, from 'x86', which is all else."""
    try:
        return 'jetson' if b'nvidia,tegra' in compatible.read_bytes() else 'x86'
    except OSError:
        return 'x86'
