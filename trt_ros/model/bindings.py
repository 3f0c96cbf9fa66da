"""Bindings of network inputs to topics, states and the like, parsed from text."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from trt_ros.errors import ParameterError, meant
from trt_ros.model.feeds import FEEDS
from trt_ros.model.feeds.base import Binding, Feed
from trt_ros.model.feeds.concat import ConcatFeed, sizes_of_parts
from trt_ros.model.feeds.image import ImageFeed
from trt_ros.tensors import TensorSpec

#: Name that stands for every network input without a binding of its own.
OTHERS = '*'
_FORMS = [f'INPUT={feed.form}' for feed in dict.fromkeys(FEEDS.values())]
_FORM = f'Write {", ".join(_FORMS[:-1])} or {_FORMS[-1]}.'


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
    for unknown in bound - {OTHERS, *inputs, *_parts(bindings, inputs)}:
        raise ParameterError(
            f'The network has no input {unknown!r}, which inputs binds.',
            remedy=f'{meant(unknown, inputs)}The inputs are {", ".join(inputs)}.',
        )
    others = [name for name in inputs if name not in bound and name not in constants]
    if others and OTHERS not in bound:
        raise ParameterError(
            f'No binding for the network inputs {", ".join(others)}.',
            remedy=f'Add them to inputs. {_FORM}',
        )
    for binding in bindings:
        output = FEEDS[binding.kind].output_of(binding.sources)
        if output is not None and output not in outputs:
            name, _, query = output.partition('?')
            if name in outputs:
                _settings(f'{binding.input}={binding.kind}:{output}', FEEDS[binding.kind], query)
            raise ParameterError(
                f'The network has no output {output!r}, whose state the input '
                f'{binding.input!r} is bound to.',
                remedy=f'{meant(output, outputs)}The outputs are {", ".join(outputs)}.',
            )
    resolved = tuple(
        each
        for binding in bindings
        for each in (
            [replace(binding, input=name, is_other=True) for name in others]
            if binding.input == OTHERS
            else [binding]
        )
    )
    if not any(binding.topics for binding in resolved):
        raise ParameterError(
            'No network input is bound to a topic.',
            remedy='Bind at least one to an image or a tensor: their messages start a run.',
        )
    return resolved


def _parts(bindings: Sequence[Binding], inputs: Sequence[str]) -> set[str]:
    kinds = {binding.input: FEEDS[binding.kind] for binding in bindings}
    parts: list[str] = []
    for binding in bindings:
        if FEEDS[binding.kind] is not ConcatFeed:
            continue
        for part in binding.sources:
            kind = kinds.get(part)
            is_fitting = kind is not None and not issubclass(kind, (ConcatFeed, ImageFeed))
            if part in (*inputs, *parts) or not is_fitting:
                raise ParameterError(
                    f'{part!r} cannot be a part of the network input {binding.input!r}.',
                    cause='It is a network input itself.'
                    if part in inputs
                    else 'It is a part already.'
                    if part in parts
                    else f'It is of the kind {kind.kind}.'
                    if kind is not None
                    else 'It has no binding.',
                    remedy=f'Add {part}=KIND:TOPIC#FIELD[ELEMENT,..] or the like to inputs.'
                    if kind is None
                    else 'Give the part another name, and bind it to numbers.',
                )
            parts.append(part)
    return set(parts)


def part_specs(
    bindings: Mapping[str, Binding], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> dict[str, TensorSpec]:
    """Return the parts of network inputs as inputs: vectors, or shaped as a state's output."""
    specs: dict[str, TensorSpec] = {}
    for spec in inputs:
        binding = bindings.get(spec.name)
        if binding is None or FEEDS[binding.kind] is not ConcatFeed:
            continue
        known = {
            part: FEEDS[bindings[part].kind].size_of(bindings[part], outputs)
            for part in binding.sources
        }
        for part, size in sizes_of_parts(spec, binding.sources, known).items():
            output = FEEDS[bindings[part].kind].output_of(bindings[part].sources)
            shapes = [each.shape for each in outputs if each.name == output]
            specs[part] = TensorSpec(part, shapes[0] if shapes else (size,), spec.dtype, 'input')
    return specs


def _parse(text: str) -> Binding:
    name, equals, rest = (part.strip() for part in text.partition('='))
    kind, colon, source = (part.strip() for part in rest.partition(':'))
    if not (name and equals and colon):
        raise ParameterError(f'Invalid binding {text!r} in inputs.', remedy=_FORM)
    feed = FEEDS.get(kind)
    if feed is None:
        raise ParameterError(
            f'Unknown kind {kind!r} of the binding {text!r} in inputs.',
            remedy=f'{meant(kind, FEEDS)}The kinds are {", ".join(FEEDS)}.',
        )
    settings: dict[str, str] = {}
    start, question_mark, query = source.rpartition('?')
    is_setting = query.partition('=')[0].strip() in feed.settings
    if question_mark and (is_setting or (feed.settings and not feed.is_name)):
        source, settings = start, _settings(text, feed, query)
    sources, topics = feed.parse(text, source.strip())
    if name == OTHERS and (feed is not FEEDS['tensor'] or '#' in source):
        raise ParameterError(
            f'Invalid binding {text!r} in inputs.',
            cause=f'{OTHERS} stands for several inputs.',
            remedy=f'Write {OTHERS}=tensor:TOPIC: each input takes the tensor of its own name.',
        )
    return Binding(name, kind, sources, settings, topics)


def _settings(text: str, feed: type[Feed], query: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in query.split('&'):
        name, equals, value = (part.strip() for part in pair.partition('='))
        if not (name and equals and value):
            raise ParameterError(
                f'Invalid setting {pair!r} of the binding {text!r} in inputs.',
                remedy='Write ?NAME=VALUE&NAME=VALUE after the topic.',
            )
        if name not in feed.settings:
            raise ParameterError(
                f'Unknown setting {name!r} of the binding {text!r} in inputs.',
                remedy=f'{meant(name, feed.settings)}Use {", ".join(feed.settings)}.',
            )
        if name in settings:
            raise ParameterError(
                f'Duplicate setting {name!r} of the binding {text!r} in inputs.',
                remedy='Give each setting once.',
            )
        settings[name] = value
    return settings
