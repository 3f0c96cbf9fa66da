"""Launch actions for a list of nodes, in processes of their own or in a container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
import platform
import signal
from types import GenericAlias
from typing import Any

from ament_index_python import get_package_share_directory
from composition_interfaces.srv import LoadNode
from launch import Action, LaunchContext
from launch.actions import EmitEvent, LogInfo, RegisterEventHandler, SetEnvironmentVariable
from launch.event_handlers import OnProcessStart
from launch.events import matches_action
from launch.events.process import ProcessExited, ProcessStarted, SignalProcess
from launch_ros.actions import Node
from launch_ros.actions.load_composable_nodes import get_composable_node_load_request
from launch_ros.descriptions import ComposableNode, ParameterValue

from trt_ros.errors import ParameterError
from trt_ros.launching.arguments import PACKAGE
from trt_ros.launching.load import LoadComponents
from trt_ros.parameter_field import specifications
from trt_ros.process_memory import fast_dds_variables
from trt_ros.ros.lifecycle import ManagedNode


@dataclass(frozen=True)
class NodeDescription:
    """One node to launch; its `parameters` override the files, and maybe the platform."""

    cls: type[ManagedNode]
    name: str
    namespace: str = ''
    remappings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    has_platform: bool = False

    @property
    def executable(self) -> str:
        """Name of the executable, which is that of the module."""
        return self.cls.__module__.rpartition('.')[2]


def launch_nodes(context: LaunchContext, nodes: list[NodeDescription]) -> list[Action]:
    """
    Return the actions that start nodes, as `common_arguments` configure it.

    The nodes configure and activate themselves. The launch fails, with a message and an exit code,
    when a node cannot be loaded, or when a process exits and `respawn` is false, as it does when a
    node cannot be configured.
    """
    arguments = context.launch_configurations
    actions = [*transport(context), *memory_copies(context), _late_processes()]
    target = this_platform() if arguments['platform'] == 'auto' else arguments['platform']
    if target == 'jetson':
        actions.append(LogInfo(msg='Jetson: run `sudo jetson_clocks` for maximum clocks.'))
    if arguments['params_file'] and not Path(arguments['params_file']).is_file():
        raise ParameterError(f'Parameter file {arguments["params_file"]} does not exist.')
    if not arguments['container'].strip():
        raise ParameterError(
            'The launch argument container is empty.',
            remedy='Set it to none, new, or the name of a running container.',
        )
    config = Path(get_package_share_directory(PACKAGE)) / 'config'
    keywords: list[dict[str, Any]] = []
    for node in nodes:
        files = [str(config / f'{target}.yaml')] if node.has_platform else []
        files += [arguments['params_file']] if arguments['params_file'] else []
        keywords.append(
            {
                'package': PACKAGE,
                'name': node.name,
                'namespace': node.namespace,
                'remappings': list(node.remappings.items()),
                'parameters': [
                    *files,
                    {
                        'autostart': arguments['autostart'] == 'true',
                        'use_sim_time': arguments['use_sim_time'] == 'true',
                        **_launch_values(node.parameters, node.cls),
                    },
                ],
            }
        )
    on_exit = _exit_actions(arguments)
    container = arguments['container']
    if container == 'none':
        return [
            *actions,
            *(
                Node(executable=node.executable, output='screen', **on_exit, **each)
                for node, each in zip(nodes, keywords)
            ),
        ]
    components = [
        _load_request(
            context,
            ComposableNode(
                plugin=f'{PACKAGE}::{node.cls.__name__}',
                extra_arguments=[{'use_intra_process_comms': True}],
                **each,
            ),
        )
        for node, each in zip(nodes, keywords)
    ]
    if container != 'new':
        return [*actions, LoadComponents(components, container)]
    process = Node(
        package=PACKAGE,
        executable='component_container_mt',
        output='screen',
        name=f'{PACKAGE}_container',
        namespace='',
        parameters=[{'exit_on_failure': arguments['respawn'] != 'true'}],
        **on_exit,
    )

    def load(*_: object) -> Action:  # Also after a respawn.
        return LoadComponents(components, process.node_name)

    started = OnProcessStart(target_action=process, on_start=load)
    return [*actions, RegisterEventHandler(started), process]


def _late_processes() -> Action:
    """Return the action that ends processes which start after Ctrl-C reached the others."""

    def on_start(event: ProcessStarted, context: LaunchContext) -> Action | None:
        if not context.is_shutdown:
            return None
        is_it = matches_action(event.action)
        return EmitEvent(event=SignalProcess(signal_number=signal.SIGINT, process_matcher=is_it))

    return RegisterEventHandler(OnProcessStart(on_start=on_start))


def _load_request(context: LaunchContext, component: ComposableNode) -> LoadNode.Request:
    try:
        return get_composable_node_load_request(component, context)
    except Exception as error:
        raise ParameterError(
            'launch_ros cannot pass params_file to a component.',
            cause=str(error),
            remedy='Remove empty lists (`labels: []`), or set container:=none, where the nodes '
            'read the file themselves.',
        ) from error


def _exit_actions(arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the keyword arguments of launch for the exit of a process."""
    try:
        delay = float(arguments['respawn_delay'])
    except ValueError:
        delay = -1.0
    if not 0.0 <= delay < float('inf'):
        raise ParameterError(
            f'respawn_delay is {arguments["respawn_delay"]!r}.',
            remedy='Set it to a number of seconds, such as 2.0.',
        )
    if arguments['respawn'] == 'true':
        return {'respawn': True, 'respawn_delay': delay}
    return {'on_exit': _check_exit}


def _launch_values(parameters: Mapping[str, Any], cls: type[ManagedNode]) -> dict[str, Any]:
    """Return the values with their types, which launch_ros would guess from the text otherwise."""
    values = {}
    for name, value in parameters.items():
        each = specifications(cls.Parameters)[name]
        if each.entry_type is None:
            values[name] = ParameterValue(value, value_type=each.python_type)
        elif value:  # launch_ros has no empty lists; they are the default anyway.
            values[name] = ParameterValue(
                list(value), value_type=GenericAlias(list, (each.entry_type,))
            )
    return values


def transport(context: LaunchContext) -> list[Action]:
    """Return the actions that set fast_dds_variables()."""
    profile = Path(get_package_share_directory(PACKAGE)) / 'config' / 'fastdds.xml'
    found = fast_dds_variables(context.environment, str(profile))
    return [SetEnvironmentVariable(name, value) for name, value in found.items()]


def memory_copies(context: LaunchContext, machine: str = platform.machine()) -> list[Action]:
    """
    Return the action that makes glibc copy images past the caches of an x86 CPU.

    A GPU reads a page-locked copy of an image from memory; lines that are still in the caches of
    several cores slow it down (docs/gpu_benchmarks.md). glibc reads the variable at process start.
    """
    if machine != 'x86_64' or 'GLIBC_TUNABLES' in context.environment:
        return []
    return [
        SetEnvironmentVariable('GLIBC_TUNABLES', 'glibc.cpu.x86_non_temporal_threshold=262144')
    ]


def _check_exit(event: ProcessExited, context: LaunchContext) -> None:
    if event.returncode and not context.is_shutdown:
        raise RuntimeError(f'{event.process_name} exited with code {event.returncode}.')


def this_platform(compatible: Path = Path('/proc/device-tree/compatible')) -> str:
    """Return 'jetson' where the device tree names a Tegra, else 'x86'."""
    try:
        return 'jetson' if b'nvidia,tegra' in compatible.read_bytes() else 'x86'
    except OSError:
        return 'x86'
