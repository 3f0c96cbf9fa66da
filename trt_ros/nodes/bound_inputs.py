"""Topics that feed the inputs of a network, by the bindings of the parameter `inputs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rclpy.exceptions import InvalidTopicNameException
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, ParameterError, printable
from trt_ros.model.feeds.base import Binding
from trt_ros.model.run_inputs import RunInputs, has_memory
from trt_ros.ros.dds.cdr import read_stamp
from trt_ros.ros.dds.cdr_tensors import TensorListView
from trt_ros.ros.dds.rcl import MemoryHooks
from trt_ros.ros.diagnostics import CameraCounts, FrameCounts
from trt_ros.ros.frames import to_frame
from trt_ros.ros.images import image_reader, image_topic, why_images_lost, why_no_image
from trt_ros.ros.inputs import InputStream, InputTopic, SamplingParameters
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.parameters import param
from trt_ros.ros.qos import why_lost, why_silent
from trt_ros.ros.sync import NO_PARTNER
from trt_ros.ros.tensors import FORMATS, TensorFormat, tensor_of
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import DEPTH_ENCODINGS, Frame


@dataclass(frozen=True)
class BindingParameters(SamplingParameters):
    """Parameters of the topics of `inputs`."""

    tensor_format: str = param(
        'auto',
        'Messages of tensors: TensorList of Isaac ROS 4 and earlier (isaac) or of Isaac ROS 5 '
        '(isaac5), or one std_msgs multi-array per tensor (multiarray); auto uses the first that '
        'is installed.',
        choices=FORMATS,
    )


@dataclass(frozen=True)
class BoundTopic:
    """
    A topic that feeds network inputs.

    :param name: as in the bindings.
    :param specs: the network inputs that it feeds with tensors; none for an image topic.
    """

    name: str
    counts: FrameCounts
    specs: tuple[TensorSpec, ...]
    max_age: float | None


class BoundInputs:
    """
    The bindings of a node's pipeline, matched with its feeds.

    :param node: its parameters include BindingParameters and those of InputStream.
    :param counts: counters of the node; with several topics, of the primary topic's messages.
    :ivar topics: by name, in the order of the bindings.
    :ivar primary: topic of the first image, else the first topic; results have its header.
    :ivar log_lines: a line per network input.
    :raises ParameterError: when a topic is invalid, or a max_age has no effect.
    """

    def __init__(
        self,
        node: ManagedNode,
        pipeline: Pipeline[Any],
        tensor_format: TensorFormat,
        counts: FrameCounts,
    ) -> None:
        self._node, self._pipeline, self._counts = node, pipeline, counts
        self._format = tensor_format
        self._types: dict[str, type] = {}  # Of the subscriptions to tensors, by topic.
        self._has_state = has_memory(pipeline.feeds)
        self._bindings = tuple(
            self._with_own_topic(each) if each.is_other else each for each in pipeline.bindings
        )
        by_topic: dict[str, list[Binding]] = {}
        for binding in self._bindings:
            for topic in binding.topics:
                by_topic.setdefault(topic, []).append(binding)
        self._refuse_two_spellings(list(by_topic))
        images = [name for name, bound in by_topic.items() if self._takes_images(bound[0])]
        self.primary = (images or list(by_topic))[0]
        counts.noun = 'image' if images else 'message'
        self.topics = {
            name: self._topic(name, bound, len(by_topic) == 1) for name, bound in by_topic.items()
        }
        self._refuse_equal_stamps()
        self.log_lines = tuple(printable(self._describe(each)) for each in self._bindings)

    def _with_own_topic(self, binding: Binding) -> Binding:
        """Return a binding that stands for all inputs, with the topic of its tensor."""
        topic = self._format.topic(binding.topics[0], binding.input)
        return replace(binding, sources=(topic,), topics=(topic,))

    def _takes_images(self, binding: Binding) -> bool:
        return bool(self._pipeline.feeds[binding.input].image_count)

    def _refuse_two_spellings(self, names: Sequence[str]) -> None:
        """Check that the topics are valid, and that no two names are one topic."""
        spellings: dict[str, str] = {}
        for name in names:
            try:
                resolved = self._node.resolve_topic_name(name)
            except (InvalidTopicNameException, RuntimeError) as error:
                raise ParameterError(
                    f'inputs has an invalid topic {name!r}.', cause=str(error)
                ) from error
            other = spellings.setdefault(resolved, name)
            if other != name:
                raise ParameterError(
                    f'inputs has the topics {other!r} and {name!r}, which are both {resolved}.',
                    cause='Each topic has one subscription, whose messages go to all its inputs.',
                    remedy=f'Write {other!r} in both places, and check the remappings.',
                )

    def _topic(self, name: str, bound: Sequence[Binding], is_only: bool) -> BoundTopic:
        if len({binding.kind for binding in bound}) > 1:
            raise ParameterError(
                f'The topic {name!r} is bound to an image and to a tensor in inputs.',
                remedy='Bind a topic to messages of one kind.',
            )
        arrays = [self._pipeline.feeds[binding.input].array for binding in bound]
        specs = tuple(spec for spec in arrays if spec is not None)
        if self._format.name == 'multiarray':
            refuse_shared(name, bound if specs else ())
        ages = [each.max_age for each in bound if each.max_age is not None]
        if ages and not self._node.parameters.rate_hz:
            raise ParameterError(
                f'The topic {name!r} has a max_age in inputs, but rate_hz is 0.0.',
                cause='max_age is the maximum age of a message when it is sampled.',
                remedy='Set rate_hz to the rate of the samples, or leave max_age out.',
            )
        if is_only:
            counts = self._counts
        elif name == self.primary:
            counts = CameraCounts(self._counts)
        else:
            counts = FrameCounts()
        counts.noun = 'message' if specs else 'image'
        return BoundTopic(name, counts, specs, min(ages, default=None))

    def _refuse_equal_stamps(self) -> None:
        """Check that messages without a stamp are not matched by equal stamps."""
        parameters = self._node.parameters
        tensors = [name for name, topic in self.topics.items() if topic.specs]
        has_stamps = self._format.has_header or not tensors or len(self.topics) == 1
        if not (has_stamps or parameters.rate_hz or parameters.approximate_sync):
            raise ParameterError(
                f'The topic {tensors[0]!r} has multi-arrays, but inputs meet by equal stamps.',
                cause='Multi-arrays have no stamp: it is the time of arrival, which no other '
                'message has.',
                remedy='Set rate_hz to a rate, approximate_sync to true, or tensor_format to '
                'isaac or isaac5.',
            )

    def _describe(self, binding: Binding) -> str:
        node, names = self._node, binding.topics
        if not names:
            return f'input {self._pipeline.feeds[binding.input].describe(binding.input)}'
        if self._takes_images(binding):
            names = tuple(image_topic(node, node.parameters, name)[1] for name in names)
        topics = ' and '.join(map(node.resolve_topic_name, names))
        name = f', tensor {binding.tensor}' if binding.tensor else ''
        return f'input {binding.input}: {binding.kind} on {topics}{name}'

    @property
    def has_images(self) -> bool:
        """Whether a network input is fed with images."""
        return any(not topic.specs for topic in self.topics.values())

    @property
    def has_state(self) -> bool:
        """Whether a network input is fed with an output of the previous run."""
        return self._has_state

    def ignored_parameters(self) -> set[str]:
        """Return the names of parameters that have no effect on these topics."""
        ignored = set()
        if len(self.topics) == 1 or self._node.parameters.rate_hz:
            ignored |= {'approximate_sync', 'approximate_sync_tolerance_seconds', 'queue_size'}
        if not any(topic.specs for topic in self.topics.values()):
            ignored.add('tensor_format')
        if self._has_state:
            ignored.add('frames_in_flight')
        return ignored

    def open_stream(
        self,
        infer: Callable[[RunInputs], Any],
        publish: Callable[[Any, Header, Frame | None], None],
        is_wanted: Callable[[], bool],
        jpegs_on_gpu: bool,
    ) -> InputStream:
        """
        Subscribe to the topics and run `infer` on their messages until close().

        :param publish: called with a result, and header and frame of the first image; the frame is
            None without images.
        :param jpegs_on_gpu: as for to_frame().
        """
        pipeline = self._pipeline

        def infer_all(contents: list[Any]) -> tuple[Any, Frame | None]:
            by_topic = dict(zip(self.topics, contents))
            frame = by_topic[self.primary] if self.has_images else None
            return infer(self._run_inputs(by_topic)), frame

        def publish_result(found: tuple[Any, Frame | None], header: Header) -> None:
            result, frame = found
            publish(result, header, frame)

        return InputStream(
            self._node,
            self._counts,
            [self._input_topic(topic, jpegs_on_gpu) for topic in self.topics.values()],
            infer_all,
            publish_result,
            primary=list(self.topics).index(self.primary),
            reset_state=pipeline.reset_state,
            is_wanted=is_wanted,
            in_flight=1 if self._has_state else self._node.parameters.frames_in_flight,
            hooks=MemoryHooks(pipeline.device.register, pipeline.device.unregister),
        )

    def _input_topic(self, topic: BoundTopic, jpegs_on_gpu: bool) -> InputTopic:
        node = self._node
        if topic.specs:
            return self._tensor_topic(topic)
        message_type, name = image_topic(node, node.parameters, topic.name)
        read_image, max_pixels = image_reader(node), node.parameters.max_image_pixels

        def read(message: np.ndarray) -> tuple[Frame, str]:
            image = read_image(message)
            return to_frame(image, jpegs_on_gpu, max_pixels), image.frame_id

        return InputTopic(name, message_type, topic.counts, read_stamp, read, topic.max_age)

    def _tensor_topic(self, topic: BoundTopic) -> InputTopic:
        spec = topic.specs[0]
        message_type = self._types[topic.name] = self._published_type(topic)
        read_tensors = self._format.reader(message_type, spec)

        def read(message: np.ndarray) -> tuple[TensorListView, str]:
            view = read_tensors(message)
            return view, view.frame_id

        return InputTopic(
            topic.name,
            message_type,
            topic.counts,
            self._format.stamp_of(self._node),
            read,
            topic.max_age,
            None if self._format.has_header else lambda: self._tensor_topic(topic),
        )

    def _published_type(self, topic: BoundTopic) -> type:
        """Return the type subscribed to as long as it is published, else the published one."""
        present = self._types.get(topic.name)
        infos = self._node.get_publishers_info_by_topic(topic.name)
        if present and (not infos or ros_type(present) in {info.topic_type for info in infos}):
            return present
        return self._format.message_type(self._node, topic.name, topic.specs[0])

    def _run_inputs(self, by_topic: Mapping[str, Any]) -> RunInputs:
        """Return the inputs of a run from the content of one message per topic."""
        inputs: dict[str, Any] = {}
        for binding in self._bindings:
            found = [by_topic[topic] for topic in binding.topics]
            if self._takes_images(binding):
                self._refuse_depth(binding, found[0])
                inputs[binding.input] = found
            elif found:
                is_only = len(self.topics[binding.topics[0]].specs) == 1
                inputs[binding.input] = tensor_of(
                    found[0],
                    binding.tensor or binding.input,
                    or_only=is_only and not binding.tensor,
                )
        return inputs

    def _refuse_depth(self, binding: Binding, frame: Frame) -> None:
        """Check that the first of two images is not the depth image."""
        if len(binding.topics) == 2 and frame.encoding in DEPTH_ENCODINGS:
            color, depth = map(self._node.resolve_topic_name, binding.topics)
            raise BadFrameError(
                'depth image',
                f'The image on {color} has the encoding {frame.encoding} of depth images.',
                cause=f'The network input {binding.input!r} takes colors from its first topic.',
                remedy=f'Swap the topics in inputs: {binding.input}=image:{depth},{color}.',
            )

    # Diagnostics.

    def counts_by_topic(self) -> Mapping[str, FrameCounts]:
        """Return the counters by topic, if there are several topics."""
        if len(self.topics) == 1:
            return {}
        return {topic.name: topic.counts for topic in self.topics.values()}

    def why_no_input(self, topic: str) -> str:
        """
        Return the resolved topic and the likely reason why it has no messages.

        :param topic: a name of `topics`; any if there is only one.
        """
        bound, node = self._bound_topic(topic), self._node
        if not bound.specs:
            return why_no_image(node, bound.name)
        why = why_silent(node, bound.name, ros_type(self._types[bound.name]))
        return f'on {node.resolve_topic_name(bound.name)}: {why}'

    def why_input_lost(self, topic: str) -> str:
        """Return the resolved topic and the likely reason why its messages are lost."""
        bound, node = self._bound_topic(topic), self._node
        if not bound.specs:
            return why_images_lost(node, bound.name)
        return f'on {node.resolve_topic_name(bound.name)}: {why_lost(node, bound.name)}'

    def why_no_result(self) -> str:
        """Return a clock that may stand still, or the topics without partners, and a remedy."""
        # A ROSClock, though rclpy annotates a Clock.
        clock: Any = self._node.get_clock()
        if self._node.parameters.rate_hz and clock.ros_time_is_active:
            now = clock.now().nanoseconds * 1e-9
            return (
                f'(the time of /clock is {now:.3f} s; samples are taken while it advances: '
                'start the simulation or the bag, or set use_sim_time to false)'
            )
        unmatched = {
            name: topic.counts.dropped[NO_PARTNER]
            for name, topic in self.topics.items()
            if topic.counts.dropped[NO_PARTNER]
        }
        if not unmatched:
            return ''
        counts = ', '.join(
            f'{self._node.resolve_topic_name(name)} {count}' for name, count in unmatched.items()
        )
        remedy = (
            'raise approximate_sync_tolerance_seconds or queue_size'
            if self._node.parameters.approximate_sync
            else 'set approximate_sync to true'
        )
        return f'(messages without partner: {counts}; {remedy})'

    def _bound_topic(self, topic: str) -> BoundTopic:
        return self.topics.get(topic) or next(iter(self.topics.values()))


def refuse_shared(topic: str, bound: Sequence[Binding]) -> None:
    """
    Check the bindings of a topic of multi-arrays.

    :raises ParameterError: when they expect several tensors, or one by its name.
    """
    names = [binding.input for binding in bound]
    other = [binding.tensor for binding in bound if binding.tensor not in ('', binding.input)]
    if len(names) > 1 or other:
        raise ParameterError(
            f'The topic {topic!r} is bound to the network inputs {", ".join(names)} in inputs.'
            if len(names) > 1
            else f'The network input {names[0]!r} is bound to {topic}#{other[0]} in inputs.',
            cause='With tensor_format multiarray, a message is one tensor without a name.',
            remedy='Bind each input to a topic of its own, without #TENSOR; or set tensor_format '
            'to isaac or isaac5.',
        )


def ros_type(message_type: type) -> str:
    """Return the ROS name of a message type, such as 'std_msgs/msg/Header'."""
    return f'{message_type.__module__.partition(".")[0]}/msg/{message_type.__name__}'
