"""Bindings of network inputs to image topics, tensor topics and states, parsed from text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
import re
from typing import Any, Literal, cast

from trt_ros.errors import ParameterError
from trt_ros.runtime.options import PipelineOptions

Kind = Literal['image', 'tensor', 'state']

#: Settings of an image binding; they override the pipeline's option of the same name.
IMAGE_SETTINGS = (
    'resize',
    'crop_fraction',
    'antialias',
    'pad_value',
    'channel_order',
    'mean',
    'std',
    'scale',
    'input_size',
)
#: Name that stands for every network input without a binding of its own.
OTHERS = '*'
#: Setting of image and tensor bindings: maximum age in seconds of a sampled message.
MAX_AGE = 'max_age'
#: Allowed settings by kind of binding.
SETTINGS: Mapping[str, tuple[str, ...]] = {
    'image': (*IMAGE_SETTINGS, MAX_AGE),
    'tensor': (MAX_AGE,),
    'state': (),
}
_FORM = 'Write INPUT=image:TOPIC, INPUT=tensor:TOPIC#TENSOR or INPUT=state:OUTPUT.'
_TOPIC = re.compile('[A-Za-z0-9_/~{}]+')


@dataclass(frozen=True)
class Binding:
    """
    The origin of one network input.

    :param input: name of the network input, or OTHERS for a tensor of the input's name.
    :param kind: 'image', 'tensor' or 'state'.
    :param sources: 'image': one or two topics, the second for the fourth channel; 'tensor':
        'TOPIC' or 'TOPIC#TENSOR'; 'state': name of the output of the previous run.
    :param settings: values by name, as written; see SETTINGS.
    """

    input: str
    kind: Kind
    sources: tuple[str, ...]
    settings: Mapping[str, str]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to subscribe to; none for a state."""
        if self.kind == 'tensor':
            return (self.sources[0].partition('#')[0],)
        return self.sources if self.kind == 'image' else ()

    @property
    def tensor(self) -> str:
        """Name of the tensor in the messages of its topic; '' if it was not given."""
        return self.sources[0].partition('#')[2] if self.kind == 'tensor' else ''

    @property
    def max_age(self) -> float | None:
        """
        Maximum age in seconds of a sampled message; None if it was not given.

        :raises ParameterError: when it is not a positive number.
        """
        text = self.settings.get(MAX_AGE)
        if text is None:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float('inf'):
            raise ParameterError(
                f'{MAX_AGE} of the network input {self.input!r} is {text!r}.',
                remedy='Set it to a positive number of seconds.',
            )
        return seconds


def parse_bindings(texts: tuple[str, ...]) -> tuple[Binding, ...]:
    """
    Parse the bindings of a network's inputs; whitespace around the parts is ignored.

    >>> parse_bindings(('left=image:left/image_raw?resize=stretch', 'h=state:hn'))
    (Binding(input='left', kind='image', sources=('left/image_raw',), settings={'resize': \
'stretch'}), Binding(input='h', kind='state', sources=('hn',), settings={}))

    :raises ParameterError: when a binding is malformed or an input is bound twice.
    """
    bindings = tuple(map(_parse, texts))
    names = [binding.input for binding in bindings]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(
                f'The network input {name!r} is bound {names.count(name)} times.',
                remedy='List each network input once in inputs.',
            )
    return bindings


def resolve_bindings(
    bindings: Sequence[Binding],
    inputs: Sequence[str],
    outputs: Collection[str],
    constants: Collection[str] = (),
) -> tuple[Binding, ...]:
    """
    Match bindings with a network: one per input, in their order; OTHERS in the network's order.

    :param inputs: names of the network's inputs.
    :param outputs: names of the network's outputs.
    :param constants: inputs that need no binding.
    :raises ParameterError: when a binding names an unknown input or output, an input has none, or
        all are states.
    """
    bound = {binding.input for binding in bindings}
    for unknown in bound - {OTHERS, *inputs}:
        raise ParameterError(
            f'The network has no input {unknown!r}, which inputs binds.',
            remedy=f'Use the names of its inputs: {", ".join(inputs)}.',
        )
    others = [name for name in inputs if name not in bound and name not in constants]
    if others and OTHERS not in bound:
        raise ParameterError(
            f'No binding for the network inputs {", ".join(others)}.',
            remedy=f'Add them to inputs. {_FORM}',
        )
    for binding in bindings:
        if binding.kind == 'state' and binding.sources[0] not in outputs:
            raise ParameterError(
                f'The network has no output {binding.sources[0]!r}, whose state the input '
                f'{binding.input!r} is bound to.',
                remedy=f'Use the names of its outputs: {", ".join(outputs)}.',
            )
    resolved = tuple(
        replace(binding, input=name)
        for binding in bindings
        for name in (others if binding.input == OTHERS else [binding.input])
    )
    if all(binding.kind == 'state' for binding in resolved):
        raise ParameterError(
            'No network input is bound to a topic.',
            remedy='Bind at least one to an image or a tensor: their messages start a run.',
        )
    return resolved


def _parse(text: str) -> Binding:
    name, equals, rest = (part.strip() for part in text.partition('='))
    kind, colon, source = (part.strip() for part in rest.partition(':'))
    if not (name and equals and colon):
        raise ParameterError(f'Invalid binding {text!r} in inputs.', remedy=_FORM)
    if kind not in SETTINGS:
        raise ParameterError(
            f'Unknown kind {kind!r} of the binding {text!r} in inputs.', remedy=_FORM
        )
    settings: dict[str, str] = {}
    if kind == 'state':  # The rest is a name, which may contain any character.
        if not source:
            raise _empty_source(text)
        sources: tuple[str, ...] = (source,)
    else:
        source, question, query = source.rpartition('?') if '?' in source else (source, '', '')
        settings = _settings(text, kind, query) if question else {}
        sources = _image_topics(text, source) if kind == 'image' else (_tensor(text, source),)
    if name == OTHERS and (kind != 'tensor' or '#' in sources[0]):
        raise ParameterError(
            f'Invalid binding {text!r} in inputs.',
            cause=f'{OTHERS} stands for several inputs.',
            remedy=f'Write {OTHERS}=tensor:TOPIC: each input takes the tensor of its own name.',
        )
    return Binding(name, cast(Kind, kind), sources, settings)


def _settings(text: str, kind: str, query: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in query.split('&'):
        name, equals, value = (part.strip() for part in pair.partition('='))
        if not (name and equals and value):
            raise ParameterError(
                f'Invalid setting {pair!r} of the binding {text!r} in inputs.',
                remedy='Write ?NAME=VALUE&NAME=VALUE after the topic.',
            )
        if name not in SETTINGS[kind]:
            raise ParameterError(
                f'Unknown setting {name!r} of the binding {text!r} in inputs.',
                remedy=f'Use {", ".join(SETTINGS[kind])}.',
            )
        if name in settings:
            raise ParameterError(
                f'Duplicate setting {name!r} of the binding {text!r} in inputs.',
                remedy='Give each setting once.',
            )
        settings[name] = value
    return settings


def _image_topics(text: str, source: str) -> tuple[str, ...]:
    topics = tuple(_topic(text, topic.strip()) for topic in source.split(','))
    if len(topics) > 2 or len(set(topics)) < len(topics):
        raise ParameterError(
            f'The binding {text!r} in inputs has {len(topics)} image topics.',
            remedy='Give one topic, or two different ones: the second is the fourth channel.',
        )
    return topics


def _tensor(text: str, source: str) -> str:
    topic, number_sign, name = (part.strip() for part in source.partition('#'))
    if number_sign and not name:
        raise ParameterError(
            f'The binding {text!r} in inputs has an empty tensor name.',
            remedy='Write TOPIC#TENSOR, or TOPIC alone.',
        )
    return f'{_topic(text, topic)}{number_sign}{name}'


def _topic(text: str, topic: str) -> str:
    if not topic:
        raise _empty_source(text)
    if not _TOPIC.fullmatch(topic):
        raise ParameterError(
            f'Invalid topic {topic!r} of the binding {text!r} in inputs.',
            remedy='Use letters, digits, underscores and slashes.',
        )
    return topic


def _empty_source(text: str) -> ParameterError:
    return ParameterError(f'The binding {text!r} in inputs has an empty source.', remedy=_FORM)


def with_settings(options: PipelineOptions, settings: Mapping[str, str]) -> PipelineOptions:
    """
    Return options with the settings of a binding; those of other names are left out.

    :raises ParameterError: when a value is invalid.
    """
    values: dict[str, Any] = {
        each.name: _parsed(each.name, each.default, settings[each.name])
        for each in fields(options)
        if each.name in settings
    }
    return replace(options, **values) if values else options


def _parsed(name: str, default: Any, text: str) -> Any:
    """Return a setting as the type of its option; tuples are separated by commas."""
    try:
        if isinstance(default, bool):
            return {'true': True, 'false': False}[text.lower()]
        if isinstance(default, tuple):
            parse = int if name == 'input_size' else float
            return tuple(parse(part) for part in text.split(','))
        return type(default)(text)
    except (ValueError, KeyError):
        raise ParameterError(
            f'{name} is {text!r} in a binding of inputs.',
            remedy='Use a value as for the parameter of that name, with commas between numbers.',
        ) from None
