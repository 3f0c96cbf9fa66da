"""Loading of components into a container."""

from __future__ import annotations

from collections.abc import Sequence
import itertools
import threading
from typing import Any

from composition_interfaces.srv import ListNodes, LoadNode
from launch import Action, Event, EventHandler, LaunchContext
from launch.actions import OpaqueFunction
from launch.logging import get_logger
from launch_ros.ros_adapters import get_ros_node

SECONDS_UNTIL_WARNING = 10  # Then a missing container is logged.


class LoadFailed(Event):
    """An event for a component that could not be loaded."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class LoadComponents(Action):
    """
    A launch action that loads components; a failure ends the launch, which launch_ros only logs.

    :param container: its full name.
    """

    def __init__(self, requests: Sequence[LoadNode.Request], container: str) -> None:
        super().__init__()
        self._requests, self._container = requests, container

    def execute(self, context: LaunchContext) -> None:
        """Start loading; several components at a time, since a response may be lost."""
        if context.is_shutdown:  # By Ctrl-C before the container started.
            return
        context.register_event_handler(
            EventHandler(
                matcher=lambda event: isinstance(event, LoadFailed),
                entities=[OpaqueFunction(function=_fail)],
                handle_once=True,
            )
        )
        node, services = get_ros_node(context), f'{self._container}/_container'
        load = node.create_client(LoadNode, f'{services}/load_node')
        # Created later: a container that answers it has discovered both clients.
        probe = node.create_client(ListNodes, f'{services}/list_nodes')
        for request in self._requests:
            context.add_completion_future(
                context.asyncio_loop.run_in_executor(
                    None, self._try_to_load, load, probe, request, context
                )
            )

    def _try_to_load(
        self, load: Any, probe: Any, request: LoadNode.Request, context: LaunchContext
    ) -> None:
        try:
            self._load(load, probe, request, context)
        except Exception:
            if not context.is_shutdown:  # It destroys the clients.
                raise

    def _load(
        self, load: Any, probe: Any, request: LoadNode.Request, context: LaunchContext
    ) -> None:
        for seconds in itertools.count():  # A service may be that of a container that was killed.
            if context.is_shutdown:
                return
            if _is_answered(probe.call_async(ListNodes.Request())):
                break
            if seconds == SECONDS_UNTIL_WARNING:
                get_logger(__name__).warning(
                    f'Waiting for service {load.srv_name}. Remedy: Start the container '
                    f'{self._container} in this ROS domain, or set container:=new; '
                    '`ros2 component list` shows the running ones.'
                )
        future = load.call_async(request)
        while not _is_answered(future):
            if context.is_shutdown:
                return
        loaded = future.result()
        if loaded.success:
            get_logger(__name__).info(f'{loaded.full_node_name}: loaded in {self._container}.')
            return
        reason = f'{request.plugin_name} into {self._container}: {loaded.error_message}'
        context.asyncio_loop.call_soon_threadsafe(
            context.emit_event_sync, LoadFailed(f'Failed to load {reason}')
        )


def _is_answered(future: Any) -> bool:
    """Return whether a call is answered within a second."""
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    return done.wait(1.0)


def _fail(context: LaunchContext) -> None:
    raise RuntimeError(context.locals.event.reason)
