"""Node that runs a control policy: observations in, commands of joints or a body out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
import math
import threading
import time
from typing import Any

import numpy as np
from rclpy.duration import Duration
from rclpy.publisher import Publisher
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Header
from std_srvs.srv import SetBool

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.families.registry import TENSORS
from trt_ros.model.run_inputs import RunInputs
from trt_ros.nodes.bound_inputs import BoundInputs
from trt_ros.nodes.inference import Camera, InferenceNode, InferenceParameters
from trt_ros.nodes.inputs import NodeInputs
from trt_ros.nodes.policy_parameters import CommandParameters
from trt_ros.policy.chunks import ActionChunks
from trt_ros.policy.safety import (
    DEACTIVATED,
    EXPECTED,
    IDLE,
    JUMPED_BACK,
    LATE,
    LOST_GPU,
    NOT_FINITE,
    Safety,
)
from trt_ros.results.arrays import Tensors
from trt_ros.ros.commands import Command
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.ros.diagnostics import HARMLESS, WITHOUT_RESULT
from trt_ros.ros.lifecycle import Resources
from trt_ros.ros.qos import CALIBRATIONS, RESULTS
from trt_ros.ros.ticks import Ticks
from trt_ros.runtime.options import PipelineOptions
from trt_ros.tensors import is_finite


@dataclass(frozen=True)
class PolicyParameters(InferenceParameters, CommandParameters, PipelineOptions):
    """Parameters of the policy node, which are also the options of its pipeline."""


class PolicyInputs(BoundInputs):
    """The inputs of a policy, whose times it learns."""

    _node: PolicyNode

    def complete(self, header: Header) -> Any:
        """Take the time of a set, sampled: by the topic that expires first; see the base."""
        node = self._node
        expiries = [
            topic.stamp[0] + 1e-9 * topic.stamp[1] + topic.max_age
            for topic in self.topics
            if not topic.is_held and topic.max_age
        ]
        if expiries:
            node.observe(min(min(expiries) - node.parameters.max_age, node.now_ns() * 1e-9))
        else:
            node.observe(node.seconds_of(header))
        return super().complete(header)


class PolicyNode(InferenceNode):
    """
    A node that runs a control policy, and commands the hold where that fails.

    Runs are started by messages or by `rate_hz`. A timer at the rate of the actions checks the
    policy, and sends the actions of chunks; a policy without chunks sends its action at once.
    """

    Parameters = PolicyParameters
    families = TENSORS

    def __init__(self, name: str = '', **kwargs: Any) -> None:
        self._lock = threading.Lock()  # For what the timer, the services and the runs share.
        self._began: dict[int, float] = {}  # Of the runs in progress, by thread.
        self._safety: Safety | None = None
        self._holds: Counter[str] = Counter()  # By reason, since the start of the node.
        self._dropped: dict[tuple[str, str], int] = {}
        self._measured: np.ndarray | None = None
        self._joint_states: Any = None
        self._last_sent = 0.0
        self._is_allowed = False, True  # While inactive: stopped, and enabled.
        super().__init__(name, **kwargs)

    def configure(self) -> None:
        self.while_configured.callback(self._forget)
        super().configure()
        self._subscribe(self.while_configured, Bool, 'estop', self._stop, RESULTS)

    def make_inputs(self) -> NodeInputs:
        if not self.parameters.rate_hz and self.pipeline.frequency:
            self.parameters = replace(self.parameters, rate_hz=self.pipeline.frequency)
        parameters: PolicyParameters = self.parameters
        return PolicyInputs(self, parameters.max_age if parameters.rate_hz else None)

    def open(self) -> Iterable[str]:
        if not self.options().has_bindings:
            raise ParameterError(
                'inputs is empty.',
                cause='A policy gets numbers of messages.',
                remedy="Set inputs, as in ['q=joints:joint_states#position[hip,knee]'] "
                '(docs/policies.md).',
            )
        lines = list(super().open())
        outputs, given = self.parameters.of_bundle(self.pipeline.outputs, self.pipeline.commands)
        parameters: PolicyParameters = replace(self.parameters, **given)
        given, told = parameters.of_metadata(self.pipeline.metadata)
        self.parameters = parameters = replace(parameters, **given)
        fields = parameters.fields_of(outputs)
        self._columns = parameters.columns(outputs, fields)
        self._period = 1 / parameters.command_rate()
        self._command: Command = parameters.command(self._columns, self._period)
        self._safety_options = parameters.safety_options(self._columns)
        rate = f'{1 / self._period:g} Hz'
        return [*lines, *told, f'commands: {", ".join(fields)} on {self._command.topic}, {rate}']

    def advertise(self, camera: Camera) -> Publisher:
        kind, topic = self._command.type, self._command.topic
        publisher = (
            camera.publisher(kind, topic[2:])
            if topic.startswith('~/')
            else self.publisher(kind, topic, RESULTS)
        )
        self._publish_serialized = serialized_publish(self, publisher)
        return publisher

    def activate(self) -> None:
        parameters: PolicyParameters = self.parameters
        with self._lock:
            is_stopped, is_enabled = self._is_allowed
            self._safety = Safety(
                self._safety_options,
                holds=self._holds,
                is_stopped=is_stopped,
                is_enabled=is_enabled,
            )
            self._chunks = ActionChunks(
                parameters.chunk_mode, self._period, parameters.chunk_actions
            )
            self._measured = None if 'position' in self._columns.fields else self._columns.zeros()
            self._dropped = self._errors()
        self.while_active.callback(self._hold_at_the_end)
        if parameters.blend_seconds and self._measured is None:
            self._joint_states = self._subscribe(
                self.while_active, JointState, 'joint_states', self._measure, CALIBRATIONS
            )
        service = self.create_service(SetBool, '~/enable', self._enable)
        self.own(self.while_active, self.destroy_service, service)
        super().activate()
        # Between two samples, which are taken at the same rate in most cases.
        ticks = Ticks(self, self._period, self._tick, 1.5 * self._period)
        self.while_active.own(ticks)

    def _subscribe(self, owner: Resources, kind: Any, topic: str, callback: Any, qos: Any) -> Any:
        made = self.create_subscription(kind, topic, callback, qos)
        return self.own(owner, self.destroy_subscription, made)

    # Time.

    def _now(self) -> float:
        return self.now_ns() * 1e-9

    def _elapsed(self) -> float:
        return self._now() if self.is_simulated else time.monotonic()

    def seconds_of(self, header: Header) -> float:
        """Return the time of an observation; that of now without a stamp."""
        stamp = header.stamp.sec + 1e-9 * header.stamp.nanosec
        return stamp or self._now()

    # Runs, in threads of the worker.

    def observe(self, time: float) -> None:
        """Take the time of the observation of a run that begins."""
        with self._lock:
            if self._safety is not None:
                self._safety.observe(time)

    def infer_inputs(self, inputs: RunInputs) -> Tensors:
        """Run the policy; raises BadFrameError for bad values, and for a run that was too long."""
        arrays = [each for each in inputs.values() if isinstance(each, np.ndarray)]
        if not all(map(is_finite, arrays)):
            self._fail(NOT_FINITE)
            raise BadFrameError(NOT_FINITE, 'An observation has values that are not finite.')
        thread, began = threading.get_ident(), self._elapsed()
        self._began[thread] = began
        try:
            result: Tensors = super().infer_inputs(inputs)
        finally:
            del self._began[thread]
        seconds = self._elapsed() - began
        if seconds > self._deadline():
            self._fail(LATE)
            raise BadFrameError(
                LATE,
                f'A run took {1e3 * seconds:.1f} ms.',
                cause=f'The deadline is {1e3 * self._deadline():.1f} ms.',
                remedy='Use a faster network or GPU, a lower rate, or a later deadline.',
            )
        return result

    def _deadline(self) -> float:
        """Return the maximum duration of a run: that of the actions that it gives."""
        chosen: float = self.parameters.deadline
        return chosen or self._period * max(self._chunks.horizon, self._columns.horizon)

    def publish(self, outputs: Publisher, result: Tensors, header: Header, frame: Any) -> None:
        actions = self._columns.actions(result)
        if not np.isfinite(actions).all():
            self._fail(NOT_FINITE)
            if self.inputs.has_state:
                self.pipeline.reset_state()
            raise BadFrameError(
                NOT_FINITE,
                'An action is not finite.',
                cause='Overflow in the network, or an observation beyond what it knows.',
                remedy='Check the observations, or set precision to fp32.',
            )
        start = self.seconds_of(header)
        with self._lock:
            if self._safety is None:
                return
            now = self._now()
            self._chunks.add(start, actions, now)
            self._safety.recover()
            if len(actions) == 1:
                self._send(now)

    def _fail(self, reason: str) -> None:
        with self._lock:
            if self._safety is not None:
                self._safety.fail(reason)

    # Commands, with the lock.

    def _tick(self) -> None:
        with self._lock:
            safety, now = self._safety, self._now()
            if safety is None:
                return
            began = min(self._began.copy().values(), default=math.inf)
            if self._elapsed() - began > self._deadline():
                safety.fail(LATE)
            for (_, cause), count in (errors := self._errors()).items():
                if count > self._dropped.get((_, cause), 0):
                    safety.fail(cause)
            self._dropped = errors
            if self._joint_states is not None and safety.last is not None:
                states, self._joint_states = self._joint_states, None
                assert self.executor is not None
                self.executor.create_task(partial(self.destroy_subscription, states))
            reason = safety.why_hold(now)
            if reason == JUMPED_BACK:
                self._chunks.clear()
            if reason or self._chunks.horizon != 1:
                self._send(now)

    def _errors(self) -> dict[tuple[str, str], int]:
        return {
            (topic.name, cause): count
            for topic in self.inputs.topics
            for cause, count in topic.counts.dropped.copy().items()
            if cause not in HARMLESS and cause not in WITHOUT_RESULT
        }

    def _send(self, now: float) -> None:
        safety = self._safety
        assert safety is not None
        before = safety.reason
        command = safety.command(now, self._chunks.at(now), self._measured)
        if safety.reason != before:
            self._log(safety.reason, before)
        if command is None:
            return
        rows = command[np.newaxis]
        points = self.parameters.trajectory_points
        if points > 1 and not safety.reason and not safety.is_blending(now):
            later = self._chunks.after(now + self._period, points - 1)
            rows = np.concatenate([rows, safety.clip(later)]) if len(later) else rows
        self._publish(rows, bool(safety.reason))
        sent = time.monotonic()
        if not (before or safety.reason):
            jitter = abs(sent - self._last_sent - self._period)
            self._counts.record_duration('period jitter', jitter)
        self._last_sent = sent

    def _publish(self, rows: np.ndarray, is_holding: bool) -> None:
        is_damping = is_holding and self.parameters.hold == 'damping'
        self._publish_serialized(
            self._command.serialized(rows, self.now_ns(), is_damping=is_damping)
        )

    def _log(self, reason: str, before: str) -> None:
        logger = self.get_logger()
        if not reason:
            logger.info('Executing actions.')
        elif reason not in IDLE:
            logger.warning(f'Holding: {reason}.')
        elif not before:
            logger.info(f'Holding: {reason}.')

    def _hold_at_the_end(self) -> None:
        """Command the hold once, after the last run: the node is deactivated, or the GPU lost."""
        with self._lock:
            safety, self._safety = self._safety, None
            if safety is not None:
                self._is_allowed = safety.is_stopped, safety.is_enabled
            if safety is None or safety.last is None or not self.context.ok():
                return
            safety.fail(LOST_GPU if self._fault else DEACTIVATED)
            command = safety.command(self._now(), None)
            assert command is not None
            self._publish(command[np.newaxis], True)
            self._log(safety.reason, '')
        # A publisher that is destroyed does not send what it still has.
        self.cameras[0].outputs.wait_for_all_acked(Duration(seconds=1.0))

    # Services and topics beside the inputs.

    def _enable(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        with self._lock:
            assert self._safety is not None
            is_enabled = self._safety.enable(request.data)
            response.success = is_enabled == request.data
            response.message = 'enabled' if is_enabled else 'not enabled'
            if not response.success:
                response.message = 'The emergency stop is pressed.'
        return response

    def _stop(self, message: Bool) -> None:
        with self._lock:
            if self._safety is None:  # Inactive.
                self._is_allowed = message.data, self._is_allowed[1] and not message.data
                return
            self._safety.stop(message.data)
            if message.data:
                self._send(self._now())

    def _measure(self, message: JointState) -> None:
        """Keep the pose that the first command starts from."""
        measured = self._columns.measured(message.name, message.position)
        if measured is None:
            self.warn_once(
                f'A message of {self.resolve_topic_name("joint_states")} lacks positions that '
                f'the first command begins at. Its joints: {", ".join(message.name)}. '
                'Remedy: correct joints, remap joint_states, or set blend_seconds to 0.0.'
            )
            return
        with self._lock:
            self._measured = measured

    def _diagnostics(self) -> Mapping[str, str]:
        diagnostics = dict(super()._diagnostics())
        safety = self._safety
        if safety is not None:
            diagnostics |= {
                'holding': safety.reason or 'no',
                'clipped values': str(safety.clipped),
                'delay (actions)': str(self._chunks.delay),
            }
        holds = self._holds.copy().items()
        return {**diagnostics, **{f'holds: {reason}': str(count) for reason, count in holds}}

    def _warning(self) -> str:
        safety = self._safety
        is_holding = safety is not None and safety.reason not in ('', *EXPECTED)
        return f'holding: {safety.reason}' if safety and is_holding else super()._warning()

    def _forget(self) -> None:
        self._safety = None
