"""Numbers of messages of any type: joints, bodies, commands, calibrations."""

from collections.abc import Callable, Sequence
from functools import partial
import math
from typing import Any

import numpy as np
from rclpy.node import Node

from trt_ros.errors import (
    BadFrameError,
    ParameterError,
    TensorMismatchError,
    counted,
    meant,
    printable,
)
from trt_ros.model.feeds.base import Binding
from trt_ros.model.feeds.message import GRAVITY, MESSAGES, TYPE, parse_fields
from trt_ros.ros.codecs.codec import Codec, Content
from trt_ros.ros.codecs.message_layout import Alike, FieldPart, MessageLayout, projected_gravity
from trt_ros.ros.dds.cdr import Fields
from trt_ros.ros.message_types import message_class
from trt_ros.tensors import TensorSpec

ORIENTATION = 'orientation'
#: Returns the numbers of a field from the content of the blocks.
Take = Callable[[Sequence[Any]], np.ndarray]


class MessageCodec(Codec):
    """Numbers of the messages of one topic by the fields of its bindings; or ParameterError."""

    def __init__(
        self, node: Node, topic: str, bound: Sequence[tuple[Binding, TensorSpec]]
    ) -> None:
        super().__init__(node, topic)
        self._bound = bound
        kind = bound[0][0].kind
        types = {binding.settings.get(TYPE) for binding, _ in bound} - {None}
        names = MESSAGES[kind] or tuple(filter(None, types))
        if len(types) != (0 if MESSAGES[kind] else 1):
            raise ParameterError(
                f'The topic {topic!r} in inputs has {len(types) or "no"} message types.',
                cause=f'{TYPE} is for the kind message, which needs one.',
                remedy='Write INPUT=message:TOPIC#FIELD?type=sensor_msgs/msg/Imu.',
            )
        self.message_types = tuple(map(message_class, names))
        self.message_type = self.message_types[0]
        self._told: set[str] = set()
        self._layouts = {each: MessageLayout(each) for each in self.message_types}
        self._readers = {each: self._reader(self._layouts[each]) for each in self.message_types}

    @property
    def has_stamp(self) -> bool:
        return self._layouts[self.message_type].has_header

    def reader(self) -> Callable[[np.ndarray], Content]:
        return self._readers[self.message_type]

    def _reader(self, layout: MessageLayout) -> Callable[[np.ndarray], Content]:
        wanted = [layout.names or 0]
        takes = {
            binding.tensor or binding.input: self._take(layout, binding, spec, wanted)
            for binding, spec in self._bound
        }
        read_blocks = layout.reader(wanted)
        alike: Alike | None = None  # Of the last message: most differ by their numbers only.

        def read(message: np.ndarray) -> Content:
            nonlocal alike
            last = alike
            if last is not None and last.is_like(message):
                stamp, frame_id, blocks = last.stamp(message), last.frame_id, last.blocks(message)
            else:
                fields = Fields(message)
                stamp, frame_id = (0, 0), ''
                if layout.has_header:
                    stamp, frame_id = fields.stamp(), fields.text('frame_id')
                blocks = read_blocks(fields)
                alike = Alike(message, blocks, frame_id, layout.has_header)
            return Content({name: take(blocks) for name, take in takes.items()}, frame_id, stamp)

        return read

    def _take(
        self, layout: MessageLayout, binding: Binding, spec: TensorSpec, wanted: list[int]
    ) -> Take:
        """Return the function that takes the numbers of a binding; add its blocks to `wanted`."""
        takes: list[Take] = []
        sizes: list[int] = []  # 0 where it differs between messages.
        for field, elements in parse_fields(binding.tensor):
            is_gravity = field == GRAVITY and not elements
            parts = layout.find(*(ORIENTATION, 'xyzw') if is_gravity else (field, elements))
            found = [self._numbers(layout, each) for each in parts]
            wanted += [each.block for each in parts]
            sizes += [3] if is_gravity else [len(each.indices or each.names) for each in parts]
            covariance = layout.covariance(ORIENTATION if is_gravity else field)
            if covariance is not None:
                wanted.append(covariance.block)
                found[0] = _measured(field, found[0], covariance)
            takes += [partial(_gravity, found[0])] if is_gravity else found
        return _of_size(binding, spec, takes, sum(sizes) if all(sizes) else None)

    def _numbers(self, layout: MessageLayout, part: FieldPart) -> Take:
        block = part.block
        if part.names:
            return partial(self._by_name, layout, part, {})
        if not part.indices:
            return lambda blocks: blocks[block]
        indices = np.array(part.indices)
        is_row = (np.diff(indices) == 1).all()
        chosen = slice(indices[0], indices[-1] + 1) if is_row else indices
        highest = indices.max()

        def take(blocks: Sequence[Any]) -> np.ndarray:
            if highest >= len(blocks[block]):
                raise _missing(layout.name_of(block), highest + 1, len(blocks[block]))
            found: np.ndarray = blocks[block][chosen]
            return found

        return take

    def _by_name(
        self,
        layout: MessageLayout,
        part: FieldPart,
        known: dict[tuple[str, ...], np.ndarray],
        blocks: Sequence[Any],
    ) -> np.ndarray:
        """Return numbers in the order of their names; `known` holds the last indices by names."""
        assert layout.names is not None
        names, values = blocks[layout.names], blocks[part.block]
        indices = known.get(names)
        if indices is None:
            missing = [name for name in part.names if name not in names]
            if missing:
                raise BadFrameError(
                    'missing joint',
                    f'The message has no joint {missing[0]!r}.',
                    cause=f'Its joints are {", ".join(names) or "none"}.',
                    remedy=f'{meant(missing[0], names)}Correct the names in inputs.',
                )
            repeated = [name for name in part.names if names.count(name) > 1]
            if repeated:
                raise BadFrameError(
                    'repeated joint',
                    f'The message has the joint {repeated[0]!r} more than once.',
                    cause=f'Its joints are {", ".join(names)}.',
                    remedy='Publish each joint once, under a name of its own.',
                )
            self._tell_extra(names)
            known.clear()
            indices = known[names] = np.array([names.index(name) for name in part.names])
        if len(values) != len(names):
            raise _missing(layout.name_of(part.block), len(names), len(values))
        found: np.ndarray = values[indices]
        return found

    def _tell_extra(self, names: Sequence[str]) -> None:
        """Log the joints that no binding takes, once for each set of them."""
        taken = {
            element
            for binding, _ in self._bound
            for _, elements in parse_fields(binding.tensor)
            for element in elements
        }
        extra = printable(', '.join(each for each in names if each not in taken))
        if extra and extra not in self._told:
            self._told.add(extra)
            topic = self.node.resolve_topic_name(self.topic)
            self.node.get_logger().info(f'No network input takes these joints of {topic}: {extra}')


def _of_size(binding: Binding, spec: TensorSpec, takes: Sequence[Take], count: int | None) -> Take:
    """Return the function that joins `count` numbers of a binding; None: the number differs."""
    if count not in (None, math.prod(spec.shape)) and not spec.is_dynamic:
        raise TensorMismatchError(
            f'The network takes {spec}, but its binding has {counted(count or 0, "number")}.',
            cause=f'They are {binding.kind}:{binding.sources[0]}.',
            remedy='Bind as many elements as the network input has, in its order.',
        )
    if len(takes) == 1:
        return takes[0]
    return lambda blocks: np.concatenate([take(blocks) for take in takes])


def _missing(field: str, wanted: int, count: int) -> BadFrameError:
    return BadFrameError(
        'missing tensor',
        f'The field {field} has {count} elements, but {wanted} are needed.',
        remedy='Publish them, or bind another field.',
    )


def _measured(field: str, take: Take, covariance: FieldPart) -> Take:
    def take_measured(blocks: Sequence[Any]) -> np.ndarray:
        if blocks[covariance.block][covariance.indices[0]] == -1:
            raise BadFrameError(
                'not measured',
                f'The message has no {field}.',
                cause='Element 0 of its covariance is -1, as sensor_msgs/Imu defines it.',
                remedy='Use a driver that measures it, or bind another field.',
            )
        return take(blocks)

    return take_measured


def _gravity(take: Take, blocks: Sequence[Any]) -> np.ndarray:
    return projected_gravity(take(blocks))
