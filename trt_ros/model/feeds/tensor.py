"""Inputs that are arrays of messages or programs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trt_ros.device_array import DeviceArray, is_on_gpu
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.feeds.arithmetic import ARITHMETIC, Arithmetic
from trt_ros.model.feeds.base import (
    HELD,
    INITIAL,
    MAX_AGE,
    Binding,
    Feed,
    Given,
    lacks_setting,
    parse_topic,
)
from trt_ros.model.feeds.constant import read_value
from trt_ros.model.feeds.history import CHOICES, HISTORY, History
from trt_ros.model.feeds.padding import CAPACITY, PAD, Padding
from trt_ros.tensors import Arrays, Shape, TensorSpec, as_tensor, checked_tensor, numpy_dtype
from trt_ros.vision.letterbox import Letterbox

#: Held arrays up to this size are compared with the last one.
COMPARED_NBYTES = 1 << 16


@dataclass(frozen=True)
class TensorFeed(Feed):
    """An array of the shape of `spec`, after arithmetic and padding; `first` until one comes."""

    spec: TensorSpec
    arithmetic: Arithmetic | None = None
    first: np.ndarray | None = field(default=None, compare=False)
    padding: Padding | None = None
    kind = 'tensor'
    form = 'tensor:TOPIC#TENSOR'
    settings = (MAX_AGE, HELD, INITIAL, CAPACITY, PAD, HISTORY, *CHOICES, *ARITHMETIC)

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return 'TOPIC' or 'TOPIC#TENSOR', and the topic; see Feed.parse."""
        topic, number_sign, name = (part.strip() for part in source.partition('#'))
        if number_sign and not name:
            raise ParameterError(
                f'The binding {text!r} in inputs has an empty tensor name.',
                remedy='Write TOPIC#TENSOR, or TOPIC alone.',
            )
        topic = parse_topic(text, topic)
        return (f'{topic}{number_sign}{name}',), (topic,)

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        if spec.dtype == 'object':
            raise TensorMismatchError(
                f'The network input {spec.name} takes strings, which no message of tensors has.',
                remedy='Export the part of the network that takes numbers.',
            )
        text = binding.settings.get(INITIAL)
        if text is not None and not binding.is_held:
            cause = 'Without it, a run waits for a message.'
            raise lacks_setting(INITIAL, spec.name, HELD, 'true', cause)
        padding = Padding.parse(binding.settings, spec)
        if padding is not None:
            spec = padding.taken(spec)
        history = History.parse(binding.settings, spec)
        if history is not None:
            spec = history.value(spec)
        if padding is None and PAD in binding.settings:
            padding = Padding.of(spec, binding.settings)
            spec = padding.taken(spec)
        first = None if text is None else read_value(text, spec)
        arithmetic = Arithmetic.parse(binding.settings, spec)
        if history is not None:
            return HistoryFeed(spec, arithmetic, first, padding, history=history)
        is_fixed = padding is not None or not spec.is_dynamic
        made = HeldFeed if binding.is_held and is_fixed else TensorFeed
        return made(spec, arithmetic, first, padding)

    @property
    def details(self) -> str:
        arithmetic = f', with {self.arithmetic}' if self.arithmetic else ''
        padding = f', padded to {self.padding.spec.shape}' if self.padding else ''
        return f'{arithmetic}{padding}'

    def describe(self, name: str) -> str:
        return f'tensor {self.spec}{self.details}'

    @property
    def array(self) -> TensorSpec:
        return self.spec

    @property
    def full_shape(self) -> Shape | None:
        return super().full_shape if self.padding is None else self.padding.spec.shape

    def zeros(self) -> Any:
        spec = self.spec if self.padding is None else self.padding.spec
        return None if spec.is_dynamic else np.zeros(spec.shape, numpy_dtype(spec.dtype))

    def check(self, value: Any) -> Any:
        """Return the array after arithmetic, not padded, or a DeviceArray; see Feed.check."""
        if type(value) is not np.ndarray and is_on_gpu(value):
            return self._on_gpu(DeviceArray(value))
        array = checked_tensor(self.spec, value)
        if self.padding is not None:
            self.padding.check(array)
        return array if self.arithmetic is None else self.arithmetic(array)

    def _on_gpu(self, array: DeviceArray) -> DeviceArray:
        """Return an array in GPU memory, which is copied as it is; or raise."""
        if type(self) is not TensorFeed or self.padding or self.arithmetic:
            np.asarray(array)  # Raises the specific error.
        if not (self.spec.accepts(array) and array.is_contiguous()):
            raise TensorMismatchError(
                f'The network takes {self.spec}, but {self.spec.name} came in GPU memory as '
                f'({", ".join(map(str, array.shape))}) {array.dtype} with strides '
                f'{array.strides or "of contiguous memory"}.',
                remedy='Convert it there, to contiguous memory.',
            )
        return array

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        assert given.array is not None
        if self.padding is None:
            return as_tensor(self.spec, np.asarray(given.array)), ()
        padded = np.empty(self.padding.spec.shape, numpy_dtype(self.spec.dtype))
        self.padding.write(padded, given.array)
        return padded, ()


@dataclass(frozen=True)
class HeldFeed(TensorFeed):
    """An array of one shape that stays the same in many runs, and then costs nothing."""

    #: What the last array is known by, the value it came as, and the array; set at once.
    _last: list[tuple[object, Any, np.ndarray]] = field(
        default_factory=list, compare=False, repr=False
    )

    def check(self, value: Any) -> np.ndarray:
        """
        Return the array; see Feed.check.

        The same read-only object for the same read-only array, and for a small one of equal bytes.
        """
        given: object = None
        if isinstance(value, np.ndarray):
            if value.nbytes <= COMPARED_NBYTES:
                given = value.shape, value.dtype, value.tobytes()
            elif not value.flags.writeable:
                given = id(value)  # Kept below, so that no other array gets it.
        for last, _, array in self._last:
            if last == given:
                return array
        checked: np.ndarray = super().check(value)
        if given is not None:
            # A read-only array may be a view of memory that is written to.
            checked = checked.view() if isinstance(given, int) else checked.copy()
            checked.flags.writeable = False
            self._last[:] = [(given, value, checked)]
        return checked


@dataclass(frozen=True)
class HistoryFeed(TensorFeed):
    """The arrays of the last runs; `spec` is one of them, `history` their place."""

    history: History = field(kw_only=True)
    has_memory = True

    @property
    def details(self) -> str:
        return f'{super().details}, {self.history}'

    @property
    def full_shape(self) -> Shape:
        return self.history.shape

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        value, _ = super().stage(given)
        return self.history.pushed(given.memory, value), ()

    def keep(self, outputs: Arrays, memory: Any, staged: np.ndarray) -> np.ndarray:
        return staged
