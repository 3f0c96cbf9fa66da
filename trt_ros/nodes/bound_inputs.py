"""Topics that feed the inputs of a network, by the bindings of the parameter `inputs`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, ParameterError, printable
from trt_ros.model.feeds import FEEDS
from trt_ros.model.feeds.base import HELD, INITIAL, Binding
from trt_ros.model.feeds.image import ImageFeed
from trt_ros.model.feeds.message import TransformFeed
from trt_ros.model.feeds.prepared import PreparedFeed
from trt_ros.model.feeds.tensor import TensorFeed
from trt_ros.model.run_inputs import RunInputs, has_memory
from trt_ros.nodes.inputs import NodeInputs
from trt_ros.ros.codecs import CODECS, FORMATS, open_format
from trt_ros.ros.codecs.tensors import tensor_of
from trt_ros.ros.diagnostics import FrameCounts
from trt_ros.ros.inputs import SynchronizationParameters
from trt_ros.ros.lifecycle import Resources
from trt_ros.ros.parameters import param
from trt_ros.ros.topic import Topic, resolve_topic, without_partner
from trt_ros.ros.transforms import Transforms, import_tf2
from trt_ros.runtime.future import Finished, Future
from trt_ros.vision.frame import DEPTH_ENCODINGS, Frame


@dataclass(frozen=True)
class BindingParameters(SynchronizationParameters):
    """Parameters of the topics of `inputs`."""

    rate_hz: float = param(
        0.0,
        'Rate in Hz at which the newest messages of all inputs are sampled, whatever their '
        'stamps; 0.0 matches them by stamp instead.',
        zero_or=(0.001, 1000.0),
    )
    tensor_format: str = param(
        'auto',
        'Messages of tensors: TensorList of Isaac ROS 4 and earlier (isaac) or of Isaac ROS 5 '
        '(isaac5), or one std_msgs multi-array per tensor (multiarray); auto uses the first that '
        'is installed.',
        choices=FORMATS,
    )


class BoundInputs(NodeInputs):
    """
    The bindings of a node's pipeline, matched with its feeds.

    :param node: an InferenceNode whose pipeline is open, with one camera. The camera's counters
        are those of the primary topic's messages, and its topic becomes that of the first image.
    :param max_age: that of topics that start runs, in seconds, where their bindings have none.
    :raises ParameterError: when a topic is invalid, or a max_age has no effect.
    """

    def __init__(self, node: Any, max_age: float | None = None) -> None:
        pipeline, [camera] = node.pipeline, node.cameras
        self._max_age = max_age
        self._node, self._camera, self._feeds = node, camera, pipeline.feeds
        counts: FrameCounts = camera.counts
        self._format = open_format(node.parameters.tensor_format)
        self.has_state = has_memory(self._feeds)
        self._bindings = tuple(
            self._with_own_topic(each) if each.is_other else each for each in pipeline.bindings
        )
        bound: dict[str, list[Binding]] = {}
        for binding in self._bindings:
            for topic in binding.topics:
                bound.setdefault(topic, []).append(binding)
        self._refuse_two_spellings(list(bound))
        images = [name for name, each in bound.items() if self._feeds[each[0].input].image_count]
        self._has_images = bool(images)
        if images:
            camera.topic = images[0]
        awaited = [name for name, each in bound.items() if not each[0].is_held]
        if not awaited:
            raise ParameterError(
                f'All topics in inputs are held: {", ".join(bound)}.',
                cause='Messages of other topics start the runs.',
                remedy=f'Leave {HELD}=true out of one binding.',
            )
        primary = (images or awaited)[0]
        self.primary = list(bound).index(primary)
        self.topics = [
            self._topic(
                name,
                each,
                counts if len(bound) == 1 else FrameCounts(counts if name == primary else None),
            )
            for name, each in bound.items()
        ]
        self._takes = [(each.input, self._take(each)) for each in self._bindings if each.topics]
        counts.noun = self.topics[self.primary].codec.noun
        self._refuse_equal_stamps()
        self._transforms: Transforms | None = None
        self._transformed = {
            name: feed for name, feed in self._feeds.items() if isinstance(feed, TransformFeed)
        }
        if self._transformed:
            import_tf2('tf in inputs')
        self.log_lines = [printable(self._describe(each)) for each in self._bindings]

    def _with_own_topic(self, binding: Binding) -> Binding:
        """Return a binding that stands for all inputs, with the topic of its tensor."""
        topic = self._format.topic(binding.topics[0], binding.input)
        return replace(binding, sources=(topic,), topics=(topic,))

    def _refuse_two_spellings(self, names: Sequence[str]) -> None:
        """Check that the topics are valid, and that no two names are one topic."""
        spellings: dict[str, str] = {}
        for name in names:
            resolved = resolve_topic(self._node, name, 'inputs')
            other = spellings.setdefault(resolved, name)
            if other != name:
                raise ParameterError(
                    f'inputs has the topics {other!r} and {name!r}, which are both {resolved}.',
                    cause='Each topic has one subscription, whose messages go to all its inputs.',
                    remedy=f'Write {other!r} in both places, and check the remappings.',
                )

    def _topic(self, name: str, bound: Sequence[Binding], counts: FrameCounts) -> Topic:
        kinds = dict.fromkeys(
            'image' if issubclass(FEEDS[binding.kind], ImageFeed) else binding.kind
            for binding in bound
        )
        if len(kinds) > 1:
            raise ParameterError(
                f'The topic {name!r} has messages of several kinds in inputs: {", ".join(kinds)}.',
                remedy='Bind a topic to messages of one kind.',
            )
        arrays = [(each, self._feeds[each.input].array) for each in bound]
        codec = CODECS[bound[0].kind](self._node, name, arrays)
        if not codec.has_names:
            refuse_shared(name, bound)
        ages = [each.max_age for each in bound if each.max_age is not None]
        is_held = bound[0].is_held
        others = [each.input for each in bound if each.is_held != is_held]
        if others:
            raise ParameterError(
                f'The topic {name!r} in inputs is held for some of the network inputs '
                f'{bound[0].input}, {", ".join(others)}, and starts runs for others.',
                cause='A topic has one subscription.',
                remedy=f'Set {HELD} for all of them, or for none.',
            )
        if ages and not (is_held or self._node.parameters.rate_hz):
            raise ParameterError(
                f'The topic {name!r} has a max_age in inputs, but rate_hz is 0.0.',
                cause='max_age is the maximum age of a message when it is sampled, or held.',
                remedy='Set rate_hz to the rate of the samples, or leave max_age out.',
            )
        max_age = min(ages, default=None if is_held else self._max_age)
        first = self._first(bound) if is_held else None
        return Topic(self._node, name, codec, counts, max_age, is_held, first)

    def _first(self, bound: Sequence[Binding]) -> dict[str, np.ndarray] | None:
        """Return the arrays of a topic without a message, as its codec would; None for none."""
        firsts = {
            each.tensor or each.input: feed.first
            for each in bound
            if isinstance(feed := self._feeds[each.input], TensorFeed)
        }
        found = {name: first for name, first in firsts.items() if first is not None}
        if found and len(found) < len(firsts):
            raise ParameterError(
                f'Some inputs of the topic {bound[0].topics[0]!r} have {INITIAL}, others not.',
                remedy='Set it for all of them, or for none.',
            )
        return found or None

    def _refuse_equal_stamps(self) -> None:
        """Check that messages without a stamp are not matched by equal stamps."""
        parameters = self._node.parameters
        awaited = [topic for topic in self.topics if not topic.is_held]
        stampless = [topic.name for topic in awaited if not topic.codec.has_stamp]
        is_matched = len(awaited) > 1 and not parameters.rate_hz
        if stampless and is_matched and not parameters.approximate_sync:
            raise ParameterError(
                f'Messages of {stampless[0]!r} have no stamp, but inputs meet by equal stamps.',
                cause='The stamp of such messages is the time of arrival, which no other has.',
                remedy='Set rate_hz to a rate, or approximate_sync to true; for tensors, '
                'tensor_format to isaac or isaac5.',
            )

    def _describe(self, binding: Binding) -> str:
        feed = self._feeds[binding.input]
        if not binding.topics:
            return f'input {feed.describe(binding.input)}'
        codecs = [
            topic.codec for name in binding.topics for topic in self.topics if topic.name == name
        ]
        topics = ', '.join(self._node.resolve_topic_name(codec.topic) for codec in codecs)
        name = f'#{binding.tensor}' if binding.tensor else ''
        held = ', held' if binding.is_held else ''
        return f'input {binding.input}: {binding.kind} on {topics}{name}{held}{feed.details}'

    def ignored_parameters(self) -> set[str]:
        ignored = {'batch_wait_ms', 'max_batch_size'}
        awaited = [topic for topic in self.topics if not topic.is_held]
        if len(awaited) == 1 or self._node.parameters.rate_hz:
            ignored |= {'approximate_sync', 'approximate_sync_tolerance_seconds', 'queue_size'}
        if not any(binding.kind == 'tensor' for binding in self._bindings):
            ignored.add('tensor_format')
        if not any(issubclass(FEEDS[each.kind], ImageFeed) for each in self._bindings):
            ignored.add('image_transport')
        if self.has_state:
            ignored.add('frames_in_flight')
        return ignored

    def activate(self, while_active: Resources) -> None:
        if self._transformed:
            self._transforms = while_active.own(Transforms(self._node))

    def complete(self, header: Header) -> Sequence[Any]:
        """Return the transforms at the time of a set; raises BadFrameError without one."""
        return [self._numbers(feed, header) for feed in self._transformed.values()]

    def _numbers(self, feed: TransformFeed, header: Header) -> np.ndarray:
        assert self._transforms is not None
        rows = []
        try:
            for frame in feed.frames:
                source = Header(stamp=header.stamp, frame_id=frame)
                found = self._transforms.lookup(feed.target, source)
                rows.append(feed.numbers(found.rotation(), found.translation, found.quaternion))
        except BadFrameError:
            if feed.first is None:
                raise
            return feed.first
        return np.concatenate(rows)

    def start(self, sets: list[list[Any]]) -> Future[Sequence[Any]]:
        return Finished([self._node.infer_inputs(self._run_inputs(values)) for values in sets])

    def publish(self, number: int, result: Any, header: Header, values: list[Any]) -> None:
        frame = values[self.primary] if self._has_images else None
        self._node.publish(self._camera.outputs, result, header, frame)
        self._node.published(result)

    def _run_inputs(self, values: Sequence[Any]) -> RunInputs:
        """Return the inputs of a run from the value of one message per topic."""
        inputs: dict[str, Any] = dict(zip(self._transformed, values[len(self.topics) :]))
        for name, take in self._takes:
            inputs[name] = take(values)
        return inputs

    def _take(self, binding: Binding) -> Callable[[Sequence[Any]], Any]:
        """Return the function that takes an input of the values of the topics."""
        names, feed = [topic.name for topic in self.topics], self._feeds[binding.input]
        places = [names.index(topic) for topic in binding.topics]

        def images(values: Sequence[Any]) -> list[Any]:
            found = [values[place] for place in places]
            if image.has_second:
                self._refuse_depth(binding, found[0])
            return found

        def array(values: Sequence[Any]) -> np.ndarray:
            tensor = tensor_of(values[place], tensor_name, or_only=is_only)
            if is_held:  # Its feed knows it again.
                tensor.flags.writeable = False
            return tensor

        if isinstance(feed, (ImageFeed, PreparedFeed)):
            image = feed if isinstance(feed, ImageFeed) else feed.image
            return images
        place, topic = places[0], binding.topics[0]
        tensor_name, is_held = binding.tensor or binding.input, binding.is_held
        is_only = not binding.tensor and sum(topic in each.topics for each in self._bindings) == 1
        return array

    def _refuse_depth(self, binding: Binding, frame: Frame) -> None:
        """Check that the first of two images is not the depth image."""
        if frame.encoding in DEPTH_ENCODINGS:
            color, depth = map(self._node.resolve_topic_name, binding.topics)
            raise BadFrameError(
                'depth image',
                f'The image on {color} has the encoding {frame.encoding} of depth images.',
                cause=f'The network input {binding.input!r} takes colors from its first topic.',
                remedy=f'Swap the topics in inputs: {binding.input}=image:{depth},{color}.',
            )

    def why_no_result(self) -> str:
        if self._node.parameters.rate_hz and self._node.is_simulated:
            now = self._node.now_ns() * 1e-9
            return (
                f'(the time of /clock is {now:.3f} s; samples are taken while it advances: '
                'start the simulation or the bag, or set use_sim_time to false)'
            )
        remedy = 'set approximate_sync to true'
        if self._node.parameters.approximate_sync:
            remedy = 'raise approximate_sync_tolerance_seconds or queue_size'
        return without_partner(self._node, self.topics, remedy)


def refuse_shared(topic: str, bound: Sequence[Binding]) -> None:
    """Raise ParameterError if multi-arrays of a topic are to hold several or named tensors."""
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
