"""Numbers of serialized messages of any type, by the names of their fields."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
import re
import struct
from typing import Any, NamedTuple

import numpy as np

from trt_ros.errors import BadFrameError, ParameterError, meant
from trt_ros.ros.dds.cdr import Fields
from trt_ros.ros.message_types import message_class

HEADER = 'std_msgs/Header'
_TEXT = 'text'
#: NumPy type by the type in a definition, as rosidl has it; _TEXT for text.
_TYPES = {
    **{'boolean': 'u1', 'octet': 'u1', 'uint8': 'u1', 'int8': 'i1', 'string': _TEXT},
    **{'uint16': 'u2', 'int16': 'i2', 'uint32': 'u4', 'int32': 'i4', 'uint64': 'u8'},
    **{'int64': 'i8', 'float': 'f4', 'double': 'f8'},
}
_DECLARED = re.compile(r'(?:sequence<)?([A-Za-z0-9_/]+)(?:<\d+>)?(?:\[(\d+)\])?(?:, \d+>|>)?')
_NO_BYTES = np.empty(0, np.uint8)
#: Field of the names of what the sequences beside it hold, as in sensor_msgs/JointState.
NAMES = 'name'


class Block(NamedTuple):
    """Neighboring numbers of one type, or text, by names; of a sequence, only its own."""

    dtype: str
    paths: tuple[str, ...]
    is_sequence: bool = False


def _blocks(kind: Any, prefix: str = '') -> Iterator[Block]:
    """Yield the fields of a message; text that is wide and sequences of messages end them."""
    for name, declared in kind.get_fields_and_field_types().items():
        path = f'{prefix}{name}'
        match = _DECLARED.fullmatch(declared)
        if match is None:
            yield Block('', (path,))
            return
        element, size = match[1], match[2]
        is_sequence = declared.startswith('sequence<')
        dtype = _TYPES.get(element, '')
        paths = [f'{path}.{index}' for index in range(int(size))] if size else [path]
        if dtype:
            yield Block(dtype, tuple(paths), is_sequence)
        elif is_sequence or '/' not in element:
            yield Block('', (path,))
            return
        else:
            nested = message_class(element.replace('/', '/msg/'))
            for each in paths:
                yield from _blocks(nested, f'{each}.')


def _joined(blocks: Sequence[Block]) -> Iterator[Block]:
    """Join neighboring numbers of one type."""

    def kind(index: int) -> tuple[str, int]:
        dtype, _, is_sequence = blocks[index]
        return dtype, index if is_sequence or dtype == _TEXT else -1

    for _, group in groupby(range(len(blocks)), kind):
        first, *others = group
        paths = [path for index in (first, *others) for path in blocks[index].paths]
        yield blocks[first]._replace(paths=tuple(paths))


class FieldPart(NamedTuple):
    """Numbers of one block by indices, or names where it is a sequence; () takes all."""

    block: int
    indices: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


class Alike:
    """Where the numbers are in messages that are like one that was read, but for these."""

    def __init__(
        self, message: np.ndarray, blocks: Sequence[Any], frame_id: str, has_header: bool
    ) -> None:
        self.frame_id, self._size, self._has_header = frame_id, message.size, has_header
        self._stamp = struct.Struct('<iI' if message[1] else '>iI')
        self._blocks, address = list(blocks), message.ctypes.data
        self._numbers = [
            (index, len(block), block.dtype, block.ctypes.data - address)
            for index, block in enumerate(blocks)
            if isinstance(block, np.ndarray) and len(block)
        ]
        # All else is compared: what precedes each of the numbers, and follows those before.
        self._same: list[tuple[slice, bytes]] = []
        begin = 0
        spans = [
            (start, start + count * dtype.itemsize) for _, count, dtype, start in self._numbers
        ]
        for start, end in [(4, 12), *spans] if has_header else spans:
            self._same.append((slice(begin, start), message[begin:start].tobytes()))
            begin = end

    def is_like(self, message: np.ndarray) -> bool:
        """Return whether a message has the same texts and the same numbers of elements."""
        view = message.data
        return message.size == self._size and all(
            bytes(view[where]) == had for where, had in self._same
        )

    def stamp(self, message: np.ndarray) -> tuple[int, int]:
        """Return the stamp of such a message."""
        return self._stamp.unpack_from(message.data, 4) if self._has_header else (0, 0)

    def blocks(self, message: np.ndarray) -> list[Any]:
        """Return the blocks of such a message."""
        found = self._blocks.copy()
        for index, count, dtype, start in self._numbers:
            found[index] = np.ndarray((count,), dtype, message, start)
        return found


class MessageLayout:
    """The fields of a message type; `has_header` if it begins with a std_msgs/Header."""

    def __init__(self, kind: Any) -> None:
        first = next(iter(kind.get_fields_and_field_types().values()), '')
        self.has_header = first == HEADER
        blocks = list(_blocks(kind))
        if self.has_header:
            del blocks[:3]  # Seconds, nanoseconds, frame.
        self._blocks = list(_joined(blocks))
        self._is_whole = all(block.dtype for block in self._blocks)
        self._type = kind.__name__
        self._paths = [
            path
            for block in self._blocks
            for path in block.paths
            if block.dtype not in ('', _TEXT)
        ]
        names = Block(_TEXT, (NAMES,), is_sequence=True)
        self.names = self._blocks.index(names) if names in self._blocks else None

    def find(self, field: str, elements: Sequence[str] = ()) -> tuple[FieldPart, ...]:
        """
        Return where the numbers of a field are.

        :param field: its name with those of the fields that it is in, 'pose.pose.position', or
            the end of that which is unique, 'position'; '' for all numbers of the message.
        :param elements: the numbers that are taken, in order; () takes all.
        :raises ParameterError: when there is no such field or element, or several.
        """
        path = self._path(field)
        start = f'{path}.' if path else ''
        found: dict[str, tuple[int, int]] = {}
        for number, block in enumerate(self._blocks):
            if block.is_sequence and path == block.paths[0]:
                return (self._of_sequence(field, number, block, elements),)
            for index, each in enumerate(block.paths):
                if each == path or each.startswith(start):
                    self._refuse_mixed(field, block)
                    found[each[len(start) :]] = number, index
        for element in elements:
            if element not in found:
                raise ParameterError(
                    f'{self._type} has no element {element!r} in the field {field!r}.',
                    remedy=f'{meant(element, found)}Its elements are {", ".join(found)}.',
                )
        pieces: list[FieldPart] = []
        for element in elements or found:
            number, index = found[element]
            before = pieces.pop().indices if pieces and pieces[-1].block == number else ()
            pieces.append(FieldPart(number, (*before, index)))
        return tuple(pieces)

    def covariance(self, field: str) -> FieldPart | None:
        """Return the first number of the covariance beside a field; None without one."""
        name = f'{field}_covariance'
        is_known = any(each.startswith(f'{name}.') for each in self._paths)
        return self.find(name, ('0',))[0] if is_known else None

    def name_of(self, block: int) -> str:
        """Return the name of the first number of a block, for errors."""
        return self._blocks[block].paths[0]

    def _path(self, field: str) -> str:
        if not field:
            return ''
        ancestors = dict.fromkeys(
            '.'.join(parts[:end])
            for parts in (path.split('.') for path in self._paths)
            for end in range(1, len(parts) + 1)
        )
        if field in ancestors:
            return field
        found = [each for each in ancestors if each.endswith(f'.{field}')]
        if len(found) == 1:
            return found[0]
        if found:
            raise ParameterError(
                f'{self._type} has several fields {field!r}: {", ".join(found)}.',
                remedy='Write one of them in full.',
            )
        fields = ', '.join(each for each in ancestors if '.' not in each)
        raise ParameterError(
            f'{self._type} has no field {field!r} of numbers.',
            cause='' if self._is_whole else 'Fields behind lists of messages are not read.',
            remedy=f'{meant(field, ancestors)}Its fields are {fields}.',
        )

    def _of_sequence(
        self, field: str, number: int, block: Block, elements: Sequence[str]
    ) -> FieldPart:
        if self.names is not None:
            if not elements:
                raise ParameterError(
                    f'The field {field!r} of {self._type} is bound without names.',
                    cause='The order of its elements is that of the publisher, which may change.',
                    remedy=f'List the names in the order of the network: {field}[NAME,..].',
                )
            return FieldPart(number, names=tuple(elements))
        if not all(map(str.isdecimal, elements)):
            raise ParameterError(
                f'The elements {", ".join(elements)} of {field!r} are no numbers.',
                cause=f'{field} of {self._type} is a sequence without names.',
                remedy=f'Write {field}, or the indices of its elements: {field}[0,1].',
            )
        return FieldPart(number, tuple(map(int, elements)))

    def _refuse_mixed(self, field: str, block: Block) -> None:
        """Check that a block within a field holds numbers, as many in all messages."""
        if block.is_sequence or block.dtype in ('', _TEXT):
            raise ParameterError(
                f'The field {block.paths[0]!r} of {self._type} is '
                f'{"a sequence" if block.is_sequence else "no number"}.',
                cause=f'inputs takes all of {field or self._type}.',
                remedy='Name the fields: TOPIC#FIELD,FIELD.',
            )

    def reader(self, wanted: Sequence[int]) -> Callable[[Fields], list[Any]]:
        """Return a function that reads blocks after the header: number views, or strings."""
        steps = [
            (block.paths[0], block.dtype, None if block.is_sequence else len(block.paths))
            for block in self._blocks[: max(wanted, default=-1) + 1]
        ]
        known: dict[str, tuple[np.ndarray, tuple[str, ...]]] = {}

        def read(fields: Fields) -> list[Any]:
            found: list[Any] = []
            for name, dtype, count in steps:
                if dtype == _TEXT:
                    known[name] = fields.texts(name, count, known.get(name, (_NO_BYTES, ())))
                    found.append(known[name][1])
                else:
                    found.append(fields.array(name, np.dtype(dtype), count))
            return found

        return read


def projected_gravity(orientation: np.ndarray) -> np.ndarray:
    """
    Return the direction of gravity in the body frame: R(q)^T (0, 0, -1).

    :param orientation: (4,) quaternion x, y, z, w of the body in a world with z up; of any length.
    :raises BadFrameError: 'bad orientation' when it is not finite, or zero.
    """
    numbers: list[float] = orientation.tolist()
    x, y, z, w = numbers
    squared = x * x + y * y + z * z + w * w
    if not 0 < squared < float('inf'):
        raise BadFrameError(
            'bad orientation',
            f'The orientation is ({x}, {y}, {z}, {w}).',
            cause='It is not a rotation.',
            remedy='Publish an orientation: drivers without one publish zeros.',
        )
    # The third row of the rotation matrix, negated.
    gravity = 2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - squared
    return np.array(gravity) / squared
