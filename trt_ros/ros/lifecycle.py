"""Base class of the lifecycle nodes: transitions, parameters, failures and release."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
import time
from typing import Any, TypeVar

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNodeMixin, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.publisher import Publisher

from trt_ros.errors import ParameterError, TrtRosError, log_text, printable, problem_of
from trt_ros.process_memory import freeze_garbage_collector, use_huge_pages
from trt_ros.progress import CancelledError
from trt_ros.ros.bond import Bond, bond_message
from trt_ros.ros.endpoints import EndpointNode
from trt_ros.ros.parameters import changes_of, declare, param, read
from trt_ros.ros.qos import overridden, unused_overrides
from trt_ros.ros.releases import can_trigger, count_clients
from trt_ros.ros.transition_thread import TransitionThread, log_traceback
from trt_ros.video import Cuda

T = TypeVar('T')

CLEANUP, SHUTDOWN = 'cleanup', 'shutdown'
_SHUTDOWN_FROM = {
    Transition.TRANSITION_UNCONFIGURED_SHUTDOWN: 'unconfigured',
    Transition.TRANSITION_INACTIVE_SHUTDOWN: 'inactive',
    Transition.TRANSITION_ACTIVE_SHUTDOWN: 'active',
}
_LABELS = {
    Transition.TRANSITION_CONFIGURE: 'configure',
    Transition.TRANSITION_CLEANUP: CLEANUP,
    Transition.TRANSITION_ACTIVATE: 'activate',
    Transition.TRANSITION_DEACTIVATE: 'deactivate',
    **dict.fromkeys(_SHUTDOWN_FROM, SHUTDOWN),
}
SECONDS_UNTIL_HINT = 2.0  # Launch files and lifecycle managers are faster.
STEADY_CLOCK = Clock(clock_type=ClockType.STEADY_TIME)


@dataclass(frozen=True)
class NodeParameters:
    """Parameters of every managed node."""

    autostart: bool = param(
        False, 'Whether the node configures and activates itself at startup.', read_only=True
    )
    bond_period: float = param(
        0.0,
        "Heartbeat period in seconds of the `bond` with nav2's lifecycle manager while the "
        'node is active; 0.0 disables the bond.',
        zero_or=(0.01, 10.0),
    )


class Resources(ExitStack):
    """A stack of resources, which it closes in reverse order."""

    def own(self, resource: T) -> T:
        """Return a resource, which has close(), that is closed with the stack."""
        closable: Any = resource
        self.callback(closable.close)
        return resource


class ManagedNode(EndpointNode):
    """
    Base class of lifecycle nodes: a subclass sets its parameter class and overrides three hooks.

    - `configure()` loads models and creates publishers; resources go onto `while_configured`. It
      runs in a thread of its own and may take minutes; it should check `cancelled`.
    - `activate()` starts subscriptions and timers; these go onto `while_active`.
    - `parameters_changed()` applies a change at run time.

    A hook fails by raising: the reason is logged, everything is released, and the node is
    unconfigured again. Both stacks are closed in reverse order by deactivate, cleanup, shutdown,
    an error and destroy_node().

    :param name: of the node; '' is that of its module, as in trt_ros.nodes.detector.
    :ivar parameters: an instance of `Parameters`; None while unconfigured.
    :ivar created_at: creation time in time.monotonic().
    :ivar failure: description of the last failure; '' after a successful transition.
    :ivar on_failed_start: called after an autostart that failed; None in a container.
    :ivar followers: called every second, by one thread: each wake-up of rclpy's executor costs.
    :ivar is_idle: whether every other second is enough for `followers`.
    :ivar largest_nbytes: size of the largest message received by topic, with its full name.
    :ivar jpegs_on_gpu: whether JPEG images become frames that are decoded on the GPU.
    :ivar video_gpu: the GPU that decodes video packets, as for VideoDecoder.
    """

    Parameters: type = NodeParameters

    def __init__(self, name: str = '', **kwargs: Any) -> None:
        Node.__init__(self, name or type(self).__module__.rpartition('.')[2], **kwargs)
        # Reentrant: otherwise rclpy serializes change_state and get_state in one group.
        LifecycleNodeMixin.__init__(self, callback_group=ReentrantCallbackGroup())
        for state_id, callback in self._callbacks.items():
            self._callbacks[state_id] = self._reported(callback)
        # rclpy awaits coroutine callbacks, which its annotation does not allow.
        service: Any = self._service_change_state
        service.callback = self._answer_change_state
        self.while_configured, self.while_active = Resources(), Resources()
        self.followers: list[Callable[[], None]] = []
        self.is_idle = False
        self._transitions = TransitionThread(self)
        self.cancelled = self._transitions.cancelled
        self.created_at = time.monotonic()
        self.failure = ''
        self.on_failed_start: Callable[[], None] | None = None
        self.largest_nbytes: dict[str, int] = {}
        self.jpegs_on_gpu = False
        self.video_gpu: Cuda | None = None
        self._warned: set[str] = set()
        self.parameters: Any = None
        self._fault: TrtRosError | None = None
        declare(self, self.Parameters)
        self.add_on_set_parameters_callback(self._check_parameters)
        starts = self.get_parameter('autostart').value
        self._start_timer = self.create_timer(
            0.0 if starts else SECONDS_UNTIL_HINT,
            self._autostart if starts else self._hint,  # Once the node is spun.
            callback_group=ReentrantCallbackGroup(),
            clock=STEADY_CLOCK,
        )

    # Hooks for subclasses.

    def configure(self) -> None:
        """Acquire the resources of the node; raise to fail."""

    def activate(self) -> None:
        """Start subscriptions and timers; raise to fail."""

    def parameters_changed(self) -> None:
        """Apply changed `parameters` while configured; must not raise."""

    # Services for subclasses.

    def now_ns(self) -> int:
        """Return the node time in nanoseconds, five times as fast as by the ROS clock."""
        now = time.time_ns()  # Before all else, which takes time.
        return int(self.get_clock().now().nanoseconds) if self.is_simulated else now

    @property
    def is_simulated(self) -> bool:
        """Whether the node time is that of /clock."""
        clock: Any = self.get_clock()  # A ROSClock, though rclpy annotates a Clock.
        return bool(clock.ros_time_is_active)

    def warn_once(self, text: str) -> None:
        """Log a warning that was not logged before."""
        if text not in self._warned:
            self._warned.add(text)
            self.get_logger().warning(printable(text))

    def publisher(self, message_type: type, topic: str, qos: Any) -> Publisher:
        """Create a publisher that lives while the node is configured; `qos` may be overridden."""
        qos = overridden(self, Publisher, topic, qos)
        made = self.create_publisher(message_type, topic, qos)
        return self.own(self.while_configured, self.destroy_publisher, made)

    def own(self, stack: ExitStack, destroy: Callable[[T], Any], entity: T) -> T:
        """Return a ROS entity that `stack` destroys: while_configured or while_active."""
        stack.callback(self.run_on_executor, partial(destroy, entity))
        return entity

    def run_on_executor(self, work: Callable[[], Any]) -> Any:
        """Run `work` where entities may be destroyed: spin() raises if another thread does."""
        return self._transitions.run_on_executor(work)

    def fail(self, fault: TrtRosError) -> None:
        """
        Deactivate because of `fault`: report it, release everything, become unconfigured.

        May be called from any thread, also one that `while_active` waits for; returns at once.
        """
        self._fault, self.failure = fault, fault.problem
        if self.state_label == 'active':
            self._transitions.start(lambda: self._trigger('deactivate'))

    @property
    def state_label(self) -> str:
        """Label of the lifecycle state: 'unconfigured', 'configuring', 'inactive', ..."""
        return str(self._state_machine.current_state[1])

    # Transitions: rclpy calls these.

    def on_configure(self, state: Any) -> TransitionCallbackReturn:
        """Read the parameters and run configure()."""
        self._fault = None
        self.parameters = self.run_on_executor(lambda: read(self, self.Parameters))
        if self.parameters.bond_period:
            bond_message()
        self.configure()
        freeze_garbage_collector()
        use_huge_pages()
        return super().on_configure(state)

    def on_activate(self, state: Any) -> TransitionCallbackReturn:
        """Run activate() and start the bond."""
        result = super().on_activate(state)
        self.activate()
        if self.parameters.bond_period:
            self.while_active.own(Bond(self, self.parameters.bond_period))
        for name in unused_overrides(self):
            self.get_logger().warning(f'{name} is ignored: this node does not have that topic.')
        return result

    def on_deactivate(self, state: Any) -> TransitionCallbackReturn:
        """Close `while_active`; fail if fail() was the reason."""
        self.while_active.close()
        if self._fault is not None:
            raise self._fault
        return super().on_deactivate(state)

    def on_cleanup(self, state: Any) -> TransitionCallbackReturn:
        """Release everything."""
        self._release()
        return super().on_cleanup(state)

    def on_shutdown(self, state: Any) -> TransitionCallbackReturn:
        """Release everything."""
        self._release()
        return super().on_shutdown(state)

    def on_error(self, state: Any) -> TransitionCallbackReturn:
        """Release everything; never raise, so that the node becomes unconfigured."""
        try:
            self._release()
        except Exception:  # A failure here would finalize the node permanently.
            log_traceback(self, 'Failed to release all resources.')
        return TransitionCallbackReturn.SUCCESS

    def stop(self) -> None:
        """Cancel a running configure and wait for its end; later transitions are refused."""
        self._transitions.stop()
        self.while_active.close()

    def destroy_node(self) -> None:
        """Stop, release everything and destroy the node."""
        try:
            self.stop()
            self._release()
        finally:
            super().destroy_node()
            # It references the ROS node, and this object is freed only by cycle collection.
            self._state_machine.destroy_when_not_in_use()

    def _release(self) -> None:
        try:
            self.while_active.close()
        finally:
            self.while_configured.close()
            self.parameters = None
            freeze_garbage_collector()

    def _reported(self, callback: Callable) -> Callable:
        """Log why a transition failed: rclpy drops exceptions silently."""

        def wrapper(state: Any) -> TransitionCallbackReturn:
            name = callback.__name__
            try:
                result = callback(state)
                if isinstance(result, TransitionCallbackReturn):
                    return result
                why = problem = f'It returned {result!r} instead of a TransitionCallbackReturn.'
            except CancelledError as error:
                self.get_logger().info(f'{name} was cancelled. {error}')
                return TransitionCallbackReturn.ERROR
            except Exception as error:
                why, problem = log_text(error), problem_of(error)
            self.failure = f'{name} failed. {problem}'
            self.get_logger().error(f'{name} failed. {why}')
            return TransitionCallbackReturn.ERROR

        return wrapper

    # Requests: one transition at a time, in a thread, while the executor continues.

    async def _answer_change_state(
        self, request: ChangeState.Request, response: ChangeState.Response
    ) -> ChangeState.Response:
        transition = request.transition
        label, state = transition.label or _LABELS.get(transition.id, ''), self.state_label
        response.success = False
        if label not in _LABELS.values():
            self._refuse(f'Unknown transition {transition.label!r} with id {transition.id}.')
            return response
        if label in (CLEANUP, SHUTDOWN) and state == 'configuring':
            self.get_logger().info(f'Cancelling configure: {label} requested.')
            self.cancelled.set()
            if self._transitions.done is not None:
                await self._transitions.done
            if label == CLEANUP and self.state_label == 'unconfigured':
                response.success = True
                return response
        elif not transition.label and _SHUTDOWN_FROM.get(transition.id, state) != state:
            self._refuse(f'Transition id {transition.id} does not apply while {state}.')
            return response
        done = self._transitions.start(lambda: self._trigger(label))
        if done is None:
            self._refuse(f'{label}: another transition is in progress ({self.state_label}).')
        else:
            response.success = await done
        return response

    def _end_start_timer(self) -> None:
        self._start_timer.cancel()
        self.destroy_timer(self._start_timer)

    def _hint(self) -> None:
        self._end_start_timer()
        name = self.get_fully_qualified_name()
        # By a launch file, or the lifecycle manager of nav2.
        is_managed = count_clients(self, f'{name}/change_state') > 0
        is_new = self.state_label == 'unconfigured' and self._transitions.done is None
        if is_new and not is_managed:
            self.get_logger().info(
                f'Waiting for configure: ros2 lifecycle set {name} configure, then '
                f'ros2 lifecycle set {name} activate. autostart:=true does both at startup.'
            )

    def _autostart(self) -> None:
        self._end_start_timer()

        def configure_and_activate() -> bool:
            is_active = (
                self._trigger('configure')
                and not self.cancelled.is_set()
                and self._trigger('activate')
            )
            if is_active:
                self.get_logger().info('Started: active.')
            elif not self.cancelled.is_set():
                self.get_logger().error('Startup failed: see the error above.')
                if self.on_failed_start is not None:
                    self.on_failed_start()
            return is_active

        self._transitions.start(configure_and_activate)

    def _trigger(self, label: str) -> bool:
        """Run a transition; refuse it where the state machine does not allow it."""
        before = self.state_label
        if not can_trigger(self, label):
            self._refuse(f'{label} is not possible while {before}.')
            return False
        is_done = getattr(self, f'trigger_{label}')() == TransitionCallbackReturn.SUCCESS
        if is_done:
            self.failure = ''
            self.get_logger().info(f'{label}: {before} -> {self.state_label}')
        return bool(is_done)

    def _refuse(self, why: str) -> None:
        self.get_logger().warning(printable(f'Transition refused. {why}'))

    # Parameters at run time.

    def _check_parameters(self, given: list[Parameter]) -> SetParametersResult:
        before = self.parameters
        try:
            changes = changes_of(self, self.Parameters, given, self.state_label)
            if before is not None and changes:
                self.parameters = replace(before, **changes)
                if self.state_label in ('inactive', 'activating', 'active', 'deactivating'):
                    self.parameters_changed()
        except ParameterError as error:
            self.parameters = before
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)
