"""Loading, configuring and activating of the launched nodes."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from composition_interfaces.srv import ListNodes, LoadNode
from launch import Action, Event, EventHandler, LaunchContext
from launch.actions import OpaqueFunction
from launch.event_handlers import OnProcessStart
from launch.logging import get_logger
from launch_ros.actions import Node
from launch_ros.ros_adapters import get_ros_node
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState

TRANSITIONS = {  # State before the transition, transition.
    'configured': (State.PRIMARY_STATE_UNCONFIGURED, Transition.TRANSITION_CONFIGURE),
    'activated': (State.PRIMARY_STATE_INACTIVE, Transition.TRANSITION_ACTIVATE),
}
POLL_SECONDS = 0.5  # Longest time until a shutdown is noticed.
SECONDS_UNTIL_WARNING = 10.0  # Then a missing service is logged.


class StartFailed(Event):
    """An event for a node that could not be started."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class BringUp(Action):
    """
    A launch action that loads components, then configures and activates all nodes.

    A failure ends the launch. The action calls the services itself: launch_ros has no lifecycle
    management for components, and waits for ever for a transition event that was sent before it
    subscribed.

    When launch restarts a process, its nodes are brought up again, and so are the nodes whose
    start was interrupted by the exit of that process.
    """

    def __init__(
        self,
        processes: list[Node],
        components: list[LoadNode.Request],
        container: Node | str,
        *,
        activate: bool,
    ) -> None:
        super().__init__()
        self._processes, self._components = processes, components
        self._container, self._activate = container, activate
        self._pending = list(processes)
        self._is_over = threading.Event()  # Set when the current attempt is abandoned.
        self._clients: dict[str, Any] = {}

    def execute(self, context: LaunchContext) -> None:
        """Register event handlers and start bringing up the nodes."""
        context.register_event_handler(
            EventHandler(
                matcher=lambda event: isinstance(event, StartFailed),
                entities=[OpaqueFunction(function=_fail)],
            )
        )
        for process in (*self._processes, self._container):
            if isinstance(process, Node):
                self._watch(process, context)
        self._start(context)

    def _watch(self, process: Node, context: LaunchContext) -> None:
        starts = itertools.count()

        def on_start(event: Event, context: LaunchContext) -> None:
            if next(starts):
                self._pending = [
                    each for each in self._processes if each is process or each in self._pending
                ]
                self._start(context)

        context.register_event_handler(OnProcessStart(target_action=process, on_start=on_start))

    def _start(self, context: LaunchContext) -> None:
        self._is_over.set()
        is_over = self._is_over = threading.Event()
        names = [each.node_name for each in self._pending]
        services = Services(context, is_over, self._clients)

        def succeed() -> None:
            if not is_over.is_set():
                self._pending = []

        def fail(reason: str) -> None:
            if not (is_over.is_set() or context.is_shutdown):
                context.emit_event_sync(StartFailed(reason))

        def start() -> None:
            in_loop = context.asyncio_loop.call_soon_threadsafe
            try:
                self._bring_up(names, services)
                in_loop(succeed)
            except Exception as error:
                if not context.is_shutdown:
                    in_loop(fail, str(error))

        context.add_completion_future(context.asyncio_loop.run_in_executor(None, start))

    def _bring_up(self, names: list[str], services: Services) -> None:
        container = self._container
        log = 'above'
        remedy = ''
        if isinstance(container, Node):
            container = container.node_name
        elif self._components:
            log = f'in the log of {container}'
            remedy = (
                f'Remedy: Start the container {container} in this ROS domain, or set '
                'container:=new; `ros2 component list` shows the running ones.'
            )
        for request in self._components:
            loaded = services.load(container, request, remedy)
            if not loaded.success:
                raise RuntimeError(
                    f'Failed to load {request.plugin_name} into {container}: '
                    f'{loaded.error_message}'
                )
            names.append(loaded.full_node_name)
        for done, (before, transition) in TRANSITIONS.items() if self._activate else ():
            for name in names:
                if not services.change(name, before, transition):
                    raise RuntimeError(f'{name} could not be {done}; see its error {log}.')
        if (
            self._components and container is self._container
        ):  # Its log appears in another terminal.
            done = 'active' if self._activate else 'loaded'
            get_logger(__name__).info(f'{", ".join(names)}: {done} in {container}.')


class Services:
    """
    A caller of services from any thread, while launch_ros spins its node.

    A call waits without a time limit: a node may build an engine. A response is lost when the
    server has not discovered the client yet. So a second client, created later, first repeats a
    request without side effects to the same node: once it has a response, the server has
    discovered both clients.

    :param is_over: ends every call with InterruptedError, as a shutdown of launch does.
    :param clients: the clients created so far, by service name.
    """

    def __init__(
        self, context: LaunchContext, is_over: threading.Event, clients: dict[str, Any]
    ) -> None:
        self._context, self._node = context, get_ros_node(context)
        self._is_over, self._clients = is_over, clients

    def load(self, container: str, request: LoadNode.Request, remedy: str) -> LoadNode.Response:
        """
        Load a component into a container and return the response.

        :param remedy: logged while the container does not run.
        """
        client = self._client(LoadNode, f'{container}/_container/load_node', remedy)
        self._request_until_answered(
            self._client(ListNodes, f'{container}/_container/list_nodes'), ListNodes.Request()
        )
        return self._call(client, request)

    def change(self, node: str, before: int, transition: int) -> bool:
        """Trigger a transition, unless the node is past it; return whether it succeeded."""
        client = self._client(ChangeState, f'{node}/change_state')
        get_state = self._client(GetState, f'{node}/get_state')
        while True:
            state = self._request_until_answered(get_state, GetState.Request()).current_state.id
            if state < State.TRANSITION_STATE_CONFIGURING:
                break
            self._is_over.wait(POLL_SECONDS)  # An abandoned attempt has started this transition.
        if state != before:
            return True
        request = ChangeState.Request(transition=Transition(id=transition))
        return bool(self._call(client, request).success)

    def _client(self, kind: type, service: str, remedy: str = '') -> Any:
        if service not in self._clients:
            self._clients[service] = self._node.create_client(kind, service)
        for attempt in itertools.count(1):
            if self._clients[service].wait_for_service(POLL_SECONDS):
                return self._clients[service]
            self._check()
            if attempt * POLL_SECONDS == SECONDS_UNTIL_WARNING:
                get_logger(__name__).warning(f'Waiting for service {service}. {remedy}')

    def _request_until_answered(self, client: Any, request: Any) -> Any:
        """Repeat a request until there is a response."""
        while True:
            future = client.call_async(request)
            if self._is_answered(future):
                return future.result()

    def _call(self, client: Any, request: Any) -> Any:
        future = client.call_async(request)
        while not self._is_answered(future):
            pass
        return future.result()

    def _is_answered(self, future: Any) -> bool:
        """Wait up to POLL_SECONDS for a response."""
        self._check()
        answered = threading.Event()
        future.add_done_callback(lambda _: answered.set())
        return answered.wait(POLL_SECONDS)

    def _check(self) -> None:
        if self._context.is_shutdown or self._is_over.is_set():
            raise InterruptedError


def _fail(context: LaunchContext) -> None:
    raise RuntimeError(context.locals.event.reason)
