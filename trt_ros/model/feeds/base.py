"""Base class of feeds, the origins of network inputs, and the bindings that choose them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import re
from typing import Any, ClassVar, NamedTuple

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.tensors import Arrays, Shape, TensorSpec, numpy_dtype
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox

#: Setting of bindings to topics: maximum age in seconds of a sampled or held message.
MAX_AGE = 'max_age'
#: Setting: whether a run takes the newest message, however old, and none starts a run.
HELD = 'held'
#: Setting: the value before the first message or run.
INITIAL = 'initial'
_TOPIC = re.compile('[A-Za-z0-9_/~{}]+')


@dataclass(frozen=True)
class Binding:
    """
    The origin of one network input.

    :param input: name of the network input, or OTHERS for those without a binding of their own.
    :param kind: of the feed, see FEEDS.
    :param sources: as the feed parses them: topics, 'TOPIC#TENSOR', or an output's name.
    :param settings: values by name, as written; see Feed.settings.
    :param topics: the topics to subscribe to; none for a state.
    :param is_other: whether it was bound by OTHERS.
    :raises ParameterError: for a value of HELD or MAX_AGE that is none.
    """

    input: str
    kind: str
    sources: tuple[str, ...]
    settings: Mapping[str, str]
    topics: tuple[str, ...] = field(default=(), compare=False, repr=False)
    is_other: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        held, age = self.settings.get(HELD, 'false'), self.settings.get(MAX_AGE, '1')
        if held not in ('true', 'false'):
            raise invalid_setting(HELD, self.input, held, 'Set it to true or false.')
        try:
            is_age = 0 < float(age) < float('inf')
        except ValueError:
            is_age = False
        if not is_age:
            remedy = 'Set it to a positive number of seconds.'
            raise invalid_setting(MAX_AGE, self.input, age, remedy)

    @property
    def tensor(self) -> str:
        """Name of the tensor in the messages of its topic; '' if it was not given."""
        return self.sources[0].partition('#')[2] if self.topics else ''

    @property
    def is_held(self) -> bool:
        """Whether other topics start runs."""
        return self.settings.get(HELD) == 'true'

    @property
    def max_age(self) -> float | None:
        """Maximum age in seconds of a sampled or held message, above 0; None by default."""
        age = self.settings.get(MAX_AGE)
        return None if age is None else float(age)


class Given(NamedTuple):
    """
    The part of a run for one network input.

    :param rows: batch size of the run.
    :param frames: its images; of a batch, those of all rows, of which the last one pads it.
    :param array: as `Feed.check` returned it; None where the feed takes none.
    :param memory: as `Feed.initial` or `Feed.keep` returned it.
    """

    rows: int = 1
    frames: Sequence[Frame] = ()
    array: np.ndarray | None = None
    memory: Any = None


class Feed:
    """
    The origin of one network input in each run; one class per kind.

    :cvar kind: name in bindings.
    :cvar form: how to write a binding, after 'INPUT='.
    :cvar settings: names of the settings that a binding may have.
    :cvar is_name: whether the source may contain any character, such as '?' without a setting.
    :cvar has_memory: whether a run depends on the one before it.
    :ivar spec: the array that runs give, or the network input; images and constants have none.
    :ivar origin: name of the input whose array `check` computes this one from; '' for its own.
    :ivar parts: names of the inputs that it is joined from, which the network does not have.
    """

    kind: ClassVar[str]
    form: ClassVar[str]
    settings: ClassVar[tuple[str, ...]] = ()
    is_name: ClassVar[bool] = False
    has_memory: ClassVar[bool] = False
    origin: str = ''
    parts: tuple[str, ...] = ()

    # Bindings.

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the sources and topics of a binding by its text and source, or raise."""
        if not source:
            raise empty_source(text)
        return (source,), ()

    @classmethod
    def output_of(cls, sources: Sequence[str]) -> str | None:
        """Return the network output that the sources of a binding name; None if they name none."""
        return None

    @classmethod
    def size_of(cls, binding: Binding, outputs: Sequence[TensorSpec]) -> int | None:
        """Return the number of elements that a binding tells; None if the network input does."""
        return None

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        """Return the feed of a binding for the network input `spec`, or raise."""
        raise NotImplementedError

    def joined(self, feeds: Mapping[str, Feed]) -> Feed:
        """Return this feed beside those of all inputs, which it may depend on, or raise."""
        return self

    def describe(self, name: str) -> str:
        """Return a line for the log about the network input of this name."""
        return f'{name}: {self.kind}'

    @property
    def details(self) -> str:
        """Treatment of the messages of its topics, behind their names in the log."""
        return ''

    @property
    def full_shape(self) -> Shape | None:
        """Shape of the network input, the largest where it changes; None where runs decide."""
        spec: TensorSpec | None = getattr(self, 'spec', None)
        return None if spec is None or spec.is_dynamic else spec.shape

    # Runs.

    @property
    def image_count(self) -> int:
        """Number of images per run."""
        return 0

    @property
    def array(self) -> TensorSpec | None:
        """The array that a run gets for this input; None if it gets none."""
        return None

    def zeros(self) -> Any:
        """Return what to warm up with; None without `array`, or where it is dynamic."""
        spec = self.array
        if spec is None or spec.is_dynamic:
            return None
        return np.zeros(spec.shape, numpy_dtype(spec.dtype))

    def check(self, value: Any) -> np.ndarray:
        """Return the array of a run as `stage` takes it, of its value for `origin`; or raise."""
        raise NotImplementedError

    def initial(self) -> Any:
        """Return the memory before the first run, and after a reset; None without memory."""
        return None

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        """Return the network's input on the CPU, and the placement of each image."""
        raise NotImplementedError

    def keep(self, outputs: Arrays, memory: Any, staged: np.ndarray) -> Any:
        """Return the memory for the next run, from that of the last one and its outputs."""
        return None


def parse_topic(text: str, topic: str) -> str:
    """Return a topic of a binding; raise ParameterError if it is empty or invalid."""
    if not topic:
        raise empty_source(text)
    if not _TOPIC.fullmatch(topic):
        raise ParameterError(
            f'Invalid topic {topic!r} of the binding {text!r} in inputs.',
            remedy='Use letters, digits, underscores and slashes.',
        )
    return topic


def invalid_setting(name: str, network_input: str, text: str, remedy: str) -> ParameterError:
    """Return the error of a setting of a binding."""
    return ParameterError(
        f'{name} of the network input {network_input!r} is {text!r}.', remedy=remedy
    )


def lacks_setting(
    name: str, network_input: str, needed: str, value: str, cause: str = ''
) -> ParameterError:
    """Return the error of a setting of a binding without another one, which it needs."""
    return ParameterError(
        f'{name} is set for the network input {network_input!r}, but not {needed}.',
        cause=cause,
        remedy=f'Add {needed}={value}, or leave {name} out.',
    )


def empty_source(text: str) -> ParameterError:
    """Return the error of a binding without a source."""
    return ParameterError(
        f'The binding {text!r} in inputs has an empty source.',
        remedy='Write a topic or an output after the colon.',
    )
