"""Loading, configuring and activating of the launched nodes."""

from __future__ import annotations

from collections.abc import Callable
import itertools
import os
import signal
import threading
import time
from typing import Any

from composition_interfaces.srv import ListNodes, LoadNode, UnloadNode
from launch import Action, Event, EventHandler, LaunchContext
from launch.actions import EmitEvent, OpaqueFunction
from launch.event_handlers import OnProcessStart
from launch.events import matches_action
from launch.events.process import SignalProcess
from launch.logging import get_logger
from launch_ros.actions import Node
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node as RosNode

TRANSITIONS = {  # State before the transition, transition.
    'configured': (State.PRIMARY_STATE_UNCONFIGURED, Transition.TRANSITION_CONFIGURE),
    'activated': (State.PRIMARY_STATE_INACTIVE, Transition.TRANSITION_ACTIVATE),
}
POLL_SECONDS = 0.5  # Longest time until a shutdown is noticed.
SECONDS_UNTIL_WARNING = 10.0  # Then a missing service is logged.
SECONDS_TO_UNLOAD = 10.0


class StartFailed(Event):
    """An event for a node that could not be started."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class BringUp(Action):
    """
    A launch action that loads components, then configures and activates all nodes.

    A failure ends the launch, and so does Ctrl-C; nodes that it loaded into a container that was
    already running are unloaded. The action calls the services itself: launch_ros has no lifecycle
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

        def on_start(event: Event, context: LaunchContext) -> Action | None:
            if context.is_shutdown:  # Ctrl-C reached the other processes of the terminal before.
                return EmitEvent(
                    event=SignalProcess(
                        signal_number=signal.SIGINT, process_matcher=matches_action(process)
                    )
                )
            if next(starts):
                self._pending = [
                    each for each in self._processes if each is process or each in self._pending
                ]
                self._start(context)
            return None

        context.register_event_handler(OnProcessStart(target_action=process, on_start=on_start))

    def _start(self, context: LaunchContext) -> None:
        self._is_over.set()
        is_over = self._is_over = threading.Event()
        names = [each.node_name for each in self._pending]

        def succeed() -> None:
            if not is_over.is_set():
                self._pending = []

        def fail(reason: str) -> None:
            if not (is_over.is_set() or context.is_shutdown):
                context.emit_event_sync(StartFailed(reason))

        def start() -> None:
            in_loop = context.asyncio_loop.call_soon_threadsafe
            try:
                with Services(lambda: is_over.is_set() or context.is_shutdown) as services:
                    self._bring_up(names, services)
                in_loop(succeed)
            except Exception as error:
                in_loop(fail, str(error))

        context.add_completion_future(context.asyncio_loop.run_in_executor(None, start))

    def _bring_up(self, names: list[str], services: Services) -> None:
        container = self._container
        if isinstance(container, Node):
            self._start_nodes(names, services, container.node_name, log='above', remedy='')
            return
        try:
            self._start_nodes(
                names,
                services,
                container,
                log=f'in the log of {container}' if self._components else 'above',
                remedy=f'Remedy: Start the container {container} in this ROS domain, or set '
                'container:=new; `ros2 component list` shows the running ones.',
            )
        except Exception:
            services.unload()
            raise
        if self._components:  # The log of the container appears in another terminal.
            done = 'active' if self._activate else 'loaded'
            get_logger(__name__).info(f'{", ".join(names)}: {done} in {container}.')

    def _start_nodes(
        self, names: list[str], services: Services, container: str, *, log: str, remedy: str
    ) -> None:
        if self._activate:
            services.announce(names)
        for request in self._components:
            loaded = services.load(container, request, remedy)
            if not loaded.success:
                raise RuntimeError(
                    f'Failed to load {request.plugin_name} into {container}: '
                    f'{loaded.error_message}'
                )
            names.append(loaded.full_node_name)
            if self._activate:
                services.announce(names)
        for done, (before, transition) in TRANSITIONS.items() if self._activate else ():
            for name in names:
                if not services.change(name, before, transition):
                    raise RuntimeError(f'{name} could not be {done}; see its error {log}.')


class Services:
    """
    A node that calls services, for one thread.

    A call waits without a time limit: a node may build an engine. A response is lost when the
    server has not discovered the client yet. So a second client, created later, first repeats a
    request without side effects to the same node: once it has a response, the server has
    discovered both clients.

    :param is_over: whether to end every call with InterruptedError.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._clients: dict[str, Any] = {}
        self._loading: list[tuple[str, Any]] = []
        self._context = Context()
        self._context.init([], initialize_logging=False)
        self._node = RosNode(
            f'trt_ros_launch_{os.getpid()}',
            context=self._context,
            enable_rosout=False,
            start_parameter_services=False,
        )
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def announce(self, nodes: list[str]) -> None:
        """Create the clients that tell nodes not to ask for a configure."""
        for node in nodes:
            self._client(ChangeState, f'{node}/change_state')

    def load(self, container: str, request: LoadNode.Request, remedy: str) -> LoadNode.Response:
        """Load a component; log `remedy` until its container runs; RuntimeError if it has it."""
        services = f'{container}/_container'
        client = self._available(LoadNode, f'{services}/load_node', remedy)
        self._available(UnloadNode, f'{services}/unload_node')
        listed = self._request_until_answered(
            self._available(ListNodes, f'{services}/list_nodes'), ListNodes.Request()
        )
        name = f'{request.node_namespace.rstrip("/")}/{request.node_name}'
        for unique_id, other in zip(listed.unique_ids, listed.full_node_names):
            if other == name:
                raise RuntimeError(
                    f'{container} already has a node {name}.\nRemedy: Unload it '
                    f'(ros2 component unload {container} {unique_id}), or set another name.'
                )
        future = client.call_async(request)
        self._loading.append((services, future))
        return self._result(future)

    def unload(self) -> None:
        """Unload what load() has loaded, within SECONDS_TO_UNLOAD."""
        deadline = time.monotonic() + SECONDS_TO_UNLOAD
        self._is_over = lambda: time.monotonic() > deadline
        try:
            for services, future in reversed(self._loading):
                loaded = self._result(future)
                if loaded.success:
                    client = self._clients[f'{services}/unload_node']
                    request = UnloadNode.Request(unique_id=loaded.unique_id)
                    self._result(client.call_async(request))
                    get_logger(__name__).info(f'Unloaded {loaded.full_node_name}.')
        except InterruptedError:
            get_logger(__name__).warning(
                f'The nodes were not unloaded within {SECONDS_TO_UNLOAD:.0f} s; '
                '`ros2 component list` shows them.'
            )

    def change(self, node: str, before: int, transition: int) -> bool:
        """Trigger a transition, unless the node is past it; return whether it succeeded."""
        client = self._available(ChangeState, f'{node}/change_state')
        get_state = self._available(GetState, f'{node}/get_state')
        while True:
            state = self._request_until_answered(get_state, GetState.Request()).current_state.id
            if state < State.TRANSITION_STATE_CONFIGURING:
                break
            time.sleep(POLL_SECONDS)  # An abandoned attempt has started this transition.
        if state != before:
            return True
        request = ChangeState.Request(transition=Transition(id=transition))
        return bool(self._result(client.call_async(request)).success)

    def _client(self, kind: type, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._node.create_client(kind, service)
        return self._clients[service]

    def _available(self, kind: type, service: str, remedy: str = '') -> Any:
        client = self._client(kind, service)
        for attempt in itertools.count(1):
            self._check()
            if client.wait_for_service(POLL_SECONDS):
                return client
            if attempt * POLL_SECONDS == SECONDS_UNTIL_WARNING:
                get_logger(__name__).warning(f'Waiting for service {service}. {remedy}')

    def _request_until_answered(self, client: Any, request: Any) -> Any:
        while True:
            future = client.call_async(request)
            if self._is_answered(future):
                return future.result()

    def _result(self, future: Any) -> Any:
        while not self._is_answered(future):
            pass
        return future.result()

    def _is_answered(self, future: Any) -> bool:
        self._check()
        self._executor.spin_until_future_complete(future, POLL_SECONDS)
        return bool(future.done())

    def _check(self) -> None:
        if self._is_over():
            raise InterruptedError


def _fail(context: LaunchContext) -> None:
    raise RuntimeError(context.locals.event.reason)
