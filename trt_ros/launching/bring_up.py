"""The start of nodes: loaded, configured, activated, or the launch fails."""

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

TRANSITIONS = {  # From which state, by which transition.
    'configured': (State.PRIMARY_STATE_UNCONFIGURED, Transition.TRANSITION_CONFIGURE),
    'activated': (State.PRIMARY_STATE_INACTIVE, Transition.TRANSITION_ACTIVATE),
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

    Where launch starts a process again, its nodes are brought up again, and so are those that the
    end of that process kept from coming up.
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
        self._not_up = list(processes)
        self._is_over = threading.Event()  # The attempt under way is given up.
        self._clients: dict[str, Any] = {}

    def execute(self, context: LaunchContext) -> None:
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
                self._not_up = [
                    each for each in self._processes if each is process or each in self._not_up
                ]
                self._start(context)

        context.register_event_handler(OnProcessStart(target_action=process, on_start=on_start))

    def _start(self, context: LaunchContext) -> None:
        self._is_over.set()
        is_over = self._is_over = threading.Event()
        names = [each.node_name for each in self._not_up]
        services = Services(context, is_over, self._clients)

        def succeed() -> None:
            if not is_over.is_set():
                self._not_up = []

        def fail(why: str) -> None:
            if not (is_over.is_set() or context.is_shutdown):
                context.emit_event_sync(StartFailed(why))

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
        if isinstance(container, Node):
            container = container.node_name
        for request in self._components:
            loaded = services.load(container, request)
            if not loaded.success:
                raise RuntimeError(
                    f'{request.plugin_name} could not be loaded into '
                    f'{container}: {loaded.error_message}'
                )
            names.append(loaded.full_node_name)
        for done, (before, transition) in TRANSITIONS.items() if self._activate else ():
            for name in names:
                if not services.change(name, before, transition):
                    raise RuntimeError(f'{name} could not be {done}: see its error above.')
        if self._components and container is self._container:  # It logs on another screen.
            done = 'active' if self._activate else 'loaded'
            get_logger(__name__).info(f'{", ".join(names)}: {done} in {container}.')


class Services:
    """
    Calls services from any thread while launch_ros spins its node.

    A call waits as long as it takes: a node may build an engine. An answer is lost when the server
    has not yet discovered who asked. So first something harmless is asked of the same node, again
    and again, by a client made later: with its answer, the server knows both.

    :param is_over: ends every call, as a shutdown of launch does, by InterruptedError.
    :param clients: those made so far, by service.
    """

    def __init__(
        self, context: LaunchContext, is_over: threading.Event, clients: dict[str, Any]
    ) -> None:
        self._context, self._node = context, get_ros_node(context)
        self._is_over, self._clients = is_over, clients

    def load(self, container: str, request: LoadNode.Request) -> LoadNode.Response:
        client = self._client(LoadNode, f'{container}/_container/load_node')
        self._ask(
            self._client(ListNodes, f'{container}/_container/list_nodes'), ListNodes.Request()
        )
        return self._call(client, request)

    def change(self, node: str, before: int, transition: int) -> bool:
        """Make a transition, unless the node is past it; tell whether it succeeded."""
        client = self._client(ChangeState, f'{node}/change_state')
        get_state = self._client(GetState, f'{node}/get_state')
        while True:
            state = self._ask(get_state, GetState.Request()).current_state.id
            if state < State.TRANSITION_STATE_CONFIGURING:
                break
            self._is_over.wait(POLL_SECONDS)  # An attempt that was given up has begun this.
        return (
            state != before
            or self._call(
                client, ChangeState.Request(transition=Transition(id=transition))
            ).success
        )

    def _client(self, kind: type, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._node.create_client(kind, service)
        for attempt in itertools.count(1):
            if self._clients[service].wait_for_service(POLL_SECONDS):
                return self._clients[service]
            self._check()
            if attempt * POLL_SECONDS == PATIENCE_SECONDS:
                get_logger(__name__).warning(f'Nobody offers {service} yet; waiting for it.')

    def _ask(self, client: Any, request: Any) -> Any:
        """Ask again and again until there is an answer."""
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
        """Wait a while for an answer."""
        self._check()
        answered = threading.Event()
        future.add_done_callback(lambda _: answered.set())
        return answered.wait(POLL_SECONDS)

    def _check(self) -> None:
        if self._context.is_shutdown or self._is_over.is_set():
            raise InterruptedError


def _fail(context: LaunchContext) -> None:
    raise RuntimeError(context.locals.event.why)
