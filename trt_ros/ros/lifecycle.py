"""A lifecycle node that answers while it works, says why it failed, and leaks nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import wraps
import gc
import threading
import time
import traceback
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode, LifecycleNodeMixin, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.publisher import Publisher
from rclpy.task import Future

from trt_ros.errors import ParameterError, TrtRosError
from trt_ros.progress import CancelledError
from trt_ros.ros.bond import Bond, bond_message
from trt_ros.ros.parameters import declare, is_same, param, read, specifications
from trt_ros.ros.qos import overridden, unused_overrides

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
SECONDS_UNTIL_HINT = 2.0  # A launch file or a lifecycle manager is faster.
STEADY_CLOCK = Clock(clock_type=ClockType.STEADY_TIME)


@dataclass(frozen=True)
class NodeParameters:
    """What every managed node has."""

    autostart: bool = param(
        False, 'Whether the node configures and activates itself at startup.', read_only=True
    )
    bond_period: float = param(
        0.0,
        "Heartbeat period in seconds of the `bond` with nav2's lifecycle manager while the "
        'node is active; 0.0 disables the bond.',
        between=(0.01, 10.0),
        or_zero=True,
    )


class ManagedNode(LifecycleNode):
    """
    Base of our nodes: a subclass names its parameter class and fills in three hooks.

    - `configure()` loads and creates publishers; what it takes goes onto `while_configured`. It
      runs in a thread of its own and may take minutes; it should look at `cancelled`.
    - `activate()` starts what lets data in; it goes onto `while_active`.
    - `parameters_changed()` follows a change at run time.

    A hook that raises is the one way to fail: the reason is logged, everything is released, the
    node is unconfigured again. Both stacks are closed in reverse order by deactivate, cleanup,
    shutdown, an error and destroy_node().

    :ivar parameters: a `Parameters`, from configure on.
    :ivar created_at: in time.monotonic().
    """

    Parameters: type = NodeParameters

    def __init__(self, name: str, **kwargs: Any) -> None:
        Node.__init__(self, name, **kwargs)
        # Reentrant: rclpy would put change_state and get_state into one group, one at a time.
        LifecycleNodeMixin.__init__(self, callback_group=ReentrantCallbackGroup())
        for state_id, callback in self._callbacks.items():
            self._callbacks[state_id] = self._reported(callback)
        self._service_change_state.callback = self._answer_change_state
        self.while_configured, self.while_active = ExitStack(), ExitStack()
        self.cancelled = threading.Event()
        self.created_at = time.monotonic()
        self.failure = ''
        self.parameters: Any = None
        self._fault: TrtRosError | None = None
        self._stopping = threading.Event()
        self._transition_lock = threading.Lock()
        self._transition_thread: threading.Thread | None = None
        self._transition_done: Future | None = None
        declare(self, self.Parameters)
        self.add_on_set_parameters_callback(self._check_parameters)
        if self.get_parameter('autostart').value:
            # A timer: its first tick comes when somebody spins the node.
            self._start_timer = self.create_timer(
                0.0, self._autostart, callback_group=ReentrantCallbackGroup(), clock=STEADY_CLOCK
            )
        else:
            self._start_timer = self.create_timer(
                SECONDS_UNTIL_HINT,
                self._hint,
                callback_group=ReentrantCallbackGroup(),
                clock=STEADY_CLOCK,
            )

    # What a subclass fills in.

    def configure(self) -> None:
        """Take what the node needs; raise to fail."""

    def activate(self) -> None:
        """Let data in; raise to fail."""

    def parameters_changed(self) -> None:
        """Follow `parameters`, which were just changed while configured; must not raise."""

    # What a subclass uses.

    def publisher(self, message_type: type, topic: str, qos: Any) -> Publisher:
        """Create a publisher that lives while the node is configured; `qos` may be overridden."""
        publisher = self.create_publisher(
            message_type, topic, overridden(self, Publisher, topic, qos)
        )
        self.while_configured.callback(
            lambda: self.between_callbacks(lambda: self.destroy_publisher(publisher))
        )
        return publisher

    def between_callbacks(self, work: Callable[[], Any]) -> Any:
        """
        Run `work` on the executor's thread and wait for its end.

        An executor that waits for an entity which another thread destroys raises InvalidHandle
        out of spin().

        :returns: what `work` returns; what it raises is raised here.
        """
        executor = self.executor
        if executor is None or threading.current_thread() is not self._transition_thread:
            return work()
        claim, done, outcome = threading.Lock(), threading.Event(), []

        def once() -> None:
            if not claim.acquire(blocking=False):
                return
            try:
                outcome.append((work(), None))
            except Exception as error:
                outcome.append((None, error))
            done.set()

        executor.create_task(once)
        while not done.wait(0.05):
            if self._stopping.is_set() or not self.context.ok():
                once()  # The executor's thread waits for this one, or spins no more.
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    def fail(self, fault: TrtRosError) -> None:
        """
        Stop being active because of `fault`: tell it, release everything, be unconfigured.

        From any thread, also one that `while_active` waits for; returns at once.
        """
        self._fault, self.failure = fault, fault.problem
        if self.state_label == 'active':
            self._start(lambda: self._trigger('deactivate'))

    @property
    def state_label(self) -> str:
        """'unconfigured', 'configuring', 'inactive', ..."""
        return self._state_machine.current_state[1]

    # Transitions: rclpy calls these.

    def on_configure(self, state: Any) -> TransitionCallbackReturn:
        self._fault = None
        self.parameters = self.between_callbacks(lambda: read(self, self.Parameters))
        if self.parameters.bond_period:
            bond_message()
        self.configure()
        freeze_garbage_collector()
        return super().on_configure(state)

    def on_activate(self, state: Any) -> TransitionCallbackReturn:
        result = super().on_activate(state)
        self.activate()
        if self.parameters.bond_period:
            self.while_active.enter_context(closing(Bond(self, self.parameters.bond_period)))
        for name in unused_overrides(self):
            self.get_logger().warning(f'{name} is ignored: this node has no such topic.')
        return result

    def on_deactivate(self, state: Any) -> TransitionCallbackReturn:
        self.while_active.close()
        if self._fault is not None:
            raise self._fault
        return super().on_deactivate(state)

    def on_cleanup(self, state: Any) -> TransitionCallbackReturn:
        self._release()
        return super().on_cleanup(state)

    def on_shutdown(self, state: Any) -> TransitionCallbackReturn:
        self._release()
        return super().on_shutdown(state)

    def on_error(self, state: Any) -> TransitionCallbackReturn:
        try:
            self._release()
        except Exception:  # A failure here would end the node: finalized for ever.
            self.get_logger().error(f'Not everything was released.\n{traceback.format_exc()}')
        return TransitionCallbackReturn.SUCCESS

    def stop(self) -> None:
        """Cancel a configure under way and wait for its end; later transitions are refused."""
        self._stopping.set()
        self.cancelled.set()
        thread = self._transition_thread
        if thread is not None:
            thread.join()
        self.while_active.close()

    def destroy_node(self) -> None:
        try:
            self.stop()
            self._release()
        finally:
            super().destroy_node()
            # It holds the ROS node, and this object goes only when its cycles are collected.
            self._state_machine.destroy_when_not_in_use()

    def _release(self) -> None:
        try:
            self.while_active.close()
        finally:
            self.while_configured.close()
            self.parameters = None
            freeze_garbage_collector()

    def _reported(self, callback: Callable) -> Callable:
        """Log why a transition failed: rclpy drops an exception without a word."""

        @wraps(callback)
        def wrapper(state: Any) -> TransitionCallbackReturn:
            name = callback.__name__
            try:
                result = callback(state)
                if isinstance(result, TransitionCallbackReturn):
                    return result
                why = problem = f'It returned {result!r}, not a TransitionCallbackReturn.'
            except CancelledError as error:
                self.get_logger().info(f'{name} was cancelled. {error}')
                return TransitionCallbackReturn.ERROR
            except TrtRosError as error:
                why, problem = str(error), error.problem
            except Exception as error:
                why, problem = traceback.format_exc(), repr(error)
            self.failure = f'{name} failed. {problem}'
            self.get_logger().error(f'{name} failed. {why}')
            return TransitionCallbackReturn.ERROR

        return wrapper

    # Requests: one transition at a time, in a thread, while the executor goes on.

    async def _answer_change_state(
        self, request: ChangeState.Request, response: ChangeState.Response
    ) -> ChangeState.Response:
        asked = request.transition
        label = asked.label or _LABELS.get(asked.id, '')
        response.success = False
        if label not in _LABELS.values():
            self._refuse(f'There is no transition {asked.label!r} with id {asked.id}.')
            return response
        if label in (CLEANUP, SHUTDOWN) and self.state_label == 'configuring':
            self.get_logger().info(f'Cancelling configure: {label} was asked for.')
            self.cancelled.set()
            if self._transition_done is not None:
                await self._transition_done
            if label == CLEANUP and self.state_label == 'unconfigured':
                response.success = True
                return response
        elif (
            not asked.label
            and asked.id in _SHUTDOWN_FROM
            and _SHUTDOWN_FROM[asked.id] != self.state_label
        ):
            self._refuse(f'Id {asked.id} is no shutdown from {self.state_label}.')
            return response
        done = self._start(lambda: self._trigger(label))
        if done is None:
            self._refuse(f'{label}: another transition is under way ({self.state_label}).')
        else:
            response.success = await done
        return response

    def _end_start_timer(self) -> None:
        self._start_timer.cancel()
        self.destroy_timer(self._start_timer)

    def _hint(self) -> None:
        self._end_start_timer()
        if self.state_label == 'unconfigured' and self._transition_done is None:
            name = self.get_fully_qualified_name()
            self.get_logger().info(
                f'Waiting for configure: ros2 lifecycle set {name} configure, then '
                f'ros2 lifecycle set {name} activate. With autostart:=true it starts by itself.'
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
                self.get_logger().error('Not started: see the error above.')
            return is_active

        self._start(configure_and_activate)

    def _start(self, work: Callable[[], bool]) -> Future | None:
        """Start `work` in the transition thread; None when it is busy or the node goes down."""
        if self._stopping.is_set() or not self._transition_lock.acquire(blocking=False):
            return None
        done = Future(executor=self.executor)
        # Awaiting alone would not wake the executor; a done callback does.
        done.add_done_callback(lambda _: None)
        self.cancelled.clear()
        if self._stopping.is_set():
            self.cancelled.set()

        def run() -> None:
            result = False
            try:
                result = work()
            except Exception:
                self.get_logger().error(f'A transition failed.\n{traceback.format_exc()}')
            finally:
                self._transition_thread = None
                self._transition_lock.release()
                done.set_result(result)

        self._transition_done = done
        self._transition_thread = threading.Thread(target=run, name='transition')
        self._transition_thread.start()
        return done

    def _trigger(self, label: str) -> bool:
        """Make a transition; refuse it where the state machine does not have it."""
        before = self.state_label
        try:
            result = getattr(self, f'trigger_{label}')()
        except rclpy_implementation.RCLError:
            self._refuse(f'{label} is not possible while {before}.')
            return False
        is_done = result == TransitionCallbackReturn.SUCCESS
        if is_done:
            self.failure = ''
            self.get_logger().info(f'{label}: {before} -> {self.state_label}')
        return is_done

    def _refuse(self, why: str) -> None:
        self.get_logger().warning(f'Refused a transition. {why}')

    # Parameters at run time.

    def _check_parameters(self, given: list[Parameter]) -> SetParametersResult:
        known = specifications(self.Parameters)
        changes = {}
        try:
            for each in given:
                if each.name not in known:
                    continue
                specification = known[each.name]
                if is_same(each, self.get_parameter(each.name)):
                    continue  # As of a file that `ros2 param dump` has written.
                value = specification.check(each.value)
                if not specification.mutable and self.state_label != 'unconfigured':
                    raise ParameterError(
                        f'{each.name} needs a rebuild and cannot change while {self.state_label}.',
                        remedy='Deactivate and clean up the node, set it, configure again.',
                    )
                changes[each.name] = value
            if self.parameters is not None and changes:
                self.parameters = replace(self.parameters, **changes)
                if self.state_label in ('inactive', 'activating', 'active', 'deactivating'):
                    self.parameters_changed()
        except ParameterError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)


def freeze_garbage_collector() -> None:
    """
    Take all that lives now out of the collector's sight, and what was garbage out of memory.

    A full collection then costs nothing, instead of 3 ms for a bare node and 60 ms beside torch.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
