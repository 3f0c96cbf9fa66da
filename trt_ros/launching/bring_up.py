"""The start of nodes: loaded, configured, activated, or the launch fails."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from composition_interfaces.srv import ListNodes, LoadNode
from launch import Action, Event, EventHandler, LaunchContext
from launch.actions import OpaqueFunction
from launch.logging import get_logger
from launch_ros.actions import Node
from launch_ros.actions.load_composable_nodes import get_composable_node_load_request
from launch_ros.descriptions import ComposableNode
from launch_ros.ros_adapters import get_ros_node
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState

TRANSITIONS = {
    'configured': Transition.TRANSITION_CONFIGURE,
    'activated': Transition.TRANSITION_ACTIVATE,
}
POLL_SECONDS = 0.5  # How soon a shutdown is seen.
PATIENCE_SECONDS = 10.0  # Then it is said what is waited for.


class StartFailed(Event):
    """A node could not be started."""

    def __init__(self, why: str) -> None:
        self.why = why


class BringUp(Action):
    """
    Loads components, then configures and activates all nodes; a failure ends the launch.

    It asks the services itself: launch_ros knows no lifecycle of components, and waits for ever
    for a transition event that was sent before it listened.
    """

    def __init__(
            self, processes: list[Node], components: list[ComposableNode],
            container: Node | str, *, activate: bool) -> None:
        super().__init__()
        self._processes, self._components = processes, components
        self._container, self._activate = container, activate

    def execute(self, context: LaunchContext) -> None:
        context.register_event_handler(EventHandler(
            matcher=lambda event: isinstance(event, StartFailed),
            entities=[OpaqueFunction(function=_fail)]))
        try:
            requests = [get_composable_node_load_request(each, context)
                        for each in self._components]
        except Exception as error:
            # Raised here it would make launch forget the processes that it has just started.
            context.emit_event_sync(StartFailed(str(error)))
            return
        container, names = self._container, [each.node_name for each in self._processes]
        if isinstance(container, Node):
            container = container.node_name
        services = Services(context)

        def start() -> None:
            for request in requests:
                loaded = services.call(
                    LoadNode, f'{container}/_container/load_node', request,
                    ListNodes, f'{container}/_container/list_nodes')
                if not loaded.success:
                    raise RuntimeError(f'{request.plugin_name} could not be loaded into '
                                       f'{container}: {loaded.error_message}')
                names.append(loaded.full_node_name)
            for done, transition in TRANSITIONS.items() if self._activate else ():
                for name in names:
                    changed = services.call(
                        ChangeState, f'{name}/change_state',
                        ChangeState.Request(transition=Transition(id=transition)),
                        GetState, f'{name}/get_state')
                    if not changed.success:
                        raise RuntimeError(f'{name} could not be {done}: see its error above.')

        def start_or_fail() -> None:
            try:
                start()
            except Exception as error:
                failed = StartFailed(str(error))
                if not context.is_shutdown:
                    context.asyncio_loop.call_soon_threadsafe(context.emit_event_sync, failed)

        context.add_completion_future(
            context.asyncio_loop.run_in_executor(None, start_or_fail))


class Services:
    """Calls services from any thread while launch_ros spins its node, until launch shuts down."""

    def __init__(self, context: LaunchContext) -> None:
        self._context, self._node = context, get_ros_node(context)
        self._clients: dict[str, Any] = {}

    def call(self, kind: type, service: str, request: Any,
             harmless_kind: type, harmless_service: str) -> Any:
        """
        Call once and wait as long as it takes: a node may build an engine.

        An answer is lost when the server has not yet discovered who asked. So first something
        harmless is asked of the same node, again and again, by a client made later: with its
        answer, the server knows both.
        """
        client = self._client(kind, service)
        harmless = self._client(harmless_kind, harmless_service)
        while not self._answered(harmless.call_async(harmless_kind.Request())):
            pass
        future = client.call_async(request)
        while not self._answered(future):
            pass
        return future.result()

    def _client(self, kind: type, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._node.create_client(kind, service)
        for attempt in itertools.count(1):
            if self._clients[service].wait_for_service(POLL_SECONDS):
                return self._clients[service]
            self._check()
            if attempt * POLL_SECONDS == PATIENCE_SECONDS:
                get_logger(__name__).warning(f'Nobody offers {service} yet; waiting for it.')

    def _answered(self, future: Any) -> bool:
        """Wait a while for an answer."""
        self._check()
        answered = threading.Event()
        future.add_done_callback(lambda _: answered.set())
        return answered.wait(POLL_SECONDS)

    def _check(self) -> None:
        if self._context.is_shutdown:
            raise InterruptedError


def _fail(context: LaunchContext) -> None:
    raise RuntimeError(context.locals.event.why)
