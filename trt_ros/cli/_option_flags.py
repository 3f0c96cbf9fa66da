"""Command line flags of the options of a network."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
import re
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from trt_ros.runtime.options import LabeledOptions

if TYPE_CHECKING:
    from argparse import _ArgumentGroup


def add_option_flags(parser: ArgumentParser | _ArgumentGroup, names: Sequence[str]) -> None:
    """Declare a flag per named field of LabeledOptions; --model stands for model_path."""
    types = get_type_hints(LabeledOptions)
    for each in fields(LabeledOptions):
        if each.name not in names:
            continue
        kind, described = types[each.name], each.metadata
        more: dict[str, Any] = {
            'type': _named(kind, described['names']),
            'metavar': kind.__name__.upper(),
        }
        if kind is bool:
            more = {'action': 'store_true'}
        elif kind is str:
            more['metavar'] = 'FILE' if each.name.endswith('path') else 'NAME'
        if get_args(kind):
            more = {'type': comma_separated(get_args(kind)[0]), 'metavar': 'A,B,..'}
        more.update(PARSERS.get(each.name, {}))
        if described['choices']:
            more = {'choices': described['choices']}
        flags = ['--' + each.name.replace('_', '-')]
        if each.name == 'model_path':
            flags, more['required'] = ['--model', *flags], True
        description = described['description'].rstrip('.').replace('%', '%%')
        if description[1].islower():
            description = description[0].lower() + description[1:]
        parser.add_argument(*flags, dest=each.name, default=each.default, help=description, **more)


def _named(kind: type, names: Mapping[str, int]) -> Callable[[str], Any]:
    """Return a parser of values, and of the names that stand for some."""
    if not names:
        return kind

    def parse(text: str) -> Any:
        return names[text] if text in names else kind(text)

    parse.__name__ = f'{kind.__name__} or {" or ".join(names)}'
    return parse


def _bindings(text: str) -> tuple[str, ...]:
    """Split bindings at the commas between them; their topics and settings have commas, too."""
    from trt_ros.model.feeds import FEEDS  # Imports NumPy.

    return _parts(rf',(?=[^,=?&]+=\s*(?:{"|".join(FEEDS)}):)', text)


def _parts(separator: str, text: str) -> tuple[str, ...]:
    """Split a list; brackets and quotes, as parameters and remedies have them, are removed."""
    text = text.strip()
    if text.startswith('[') and text.endswith(']'):
        text = text[1:-1]
    return tuple(part.strip().strip('\'"').strip() for part in re.split(separator, text))


def comma_separated(kind: type) -> Callable[[str], tuple[Any, ...]]:
    """Return a parser of values with commas between them."""

    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind(part) for part in _parts(',', text) if part)

    parse.__name__ = f'comma-separated {kind.__name__}'  # argparse shows it: "invalid .. value".
    return parse


def image_size(text: str) -> tuple[int, ...]:
    """
    Parse height and width: 480x640 or 480,640; one number is both, and nothing leaves it open.

    :raises ValueError: for another text.
    """
    size = tuple(int(part) for part in _parts('[x,]', text) if part)
    if len(size) > 2:
        raise ValueError(text)
    return size * 2 if len(size) == 1 else size


image_size.__name__ = 'image size'  # argparse shows it: "invalid image size value".

#: Arguments of the flags of options that are not parsed by their type alone.
PARSERS: Mapping[str, Mapping[str, Any]] = {
    'input_size': {'type': image_size, 'metavar': 'HxW'},
    'inputs': {'type': _bindings, 'metavar': 'INPUT=KIND:SOURCE,..'},
}
