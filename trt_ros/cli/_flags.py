"""Types of command line arguments, and flags of options."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from math import inf, isfinite
from pathlib import Path
import re
from typing import TYPE_CHECKING, Any, TypeVar

from trt_ros.errors import ParameterError
from trt_ros.parameter_field import Specification, specifications
from trt_ros.regular_file import FILE_SCHEMES, writing
from trt_ros.runtime.options import BUNDLE_SUFFIXES, REMOTE_SCHEMES, TiledOptions
from trt_ros.vision.thresholds import ThresholdOptions, Thresholds

if TYPE_CHECKING:
    from argparse import _ArgumentGroup


Options = TypeVar('Options')


def add_flags(parser: ArgumentParser | _ArgumentGroup, *rows: tuple[Any, ...]) -> None:
    """
    Declare flags, and arguments without one.

    :param rows: '--NAME METAVAR', type, default and help of a value, as in ('--count N', int, 2,
        'number of runs'), whose default ends the help, and is `...` where it is required; '--NAME'
        and help of a switch. '+' and '*' behind the METAVAR mark lists.
    """
    for names, *rest, text in rows:
        flag, *words = names.split()
        if not rest:
            parser.add_argument(flag, action='store_true', help=text)
            continue
        kind, default = rest
        more: dict[str, Any] = {'nargs': words.pop()} if {*words[-1:]} & {'+', '*'} else {}
        if more and flag.startswith('-'):
            more['action'] = 'extend'
        if default is ...:
            more['required'] = True
        elif default not in (None, (), [], ''):
            text += f' (default: {default})'
        more |= {} if default is ... else {'default': default}
        more |= {'metavar': words[0]} if words else {}
        parser.add_argument(flag, type=kind, help=text, **more)


def add_option_flags(
    parser: ArgumentParser | _ArgumentGroup,
    names: Collection[str] | None = None,
    cls: type = TiledOptions,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """
    Declare a flag per option of a class.

    :param names: options to declare; None for all.
    :param more: arguments of single flags, instead of those that follow from their types; `flags`
        are their names, and `note` ends their help.
    """
    more = {**PARSERS, **(more or {})}
    for each in specifications(cls).values():
        if names is not None and each.name not in names:
            continue
        arguments: dict[str, Any] = {
            'flags': ['--' + each.name.replace('_', '-')],
            'type': _named(each.python_type, each.names),
            'metavar': each.python_type.__name__.upper(),
        }
        if each.python_type is bool:
            flag = f'--no-{each.name}' if each.default else f'--{each.name}'
            arguments = {
                'flags': [flag.replace('_', '-')],
                'action': 'store_false' if each.default else 'store_true',
            }
        elif each.python_type is str:
            metavars = {'path': 'FILE', 'dir': 'DIR'}
            arguments['metavar'] = metavars.get(each.name.rpartition('_')[2], 'NAME')
        elif each.entry_type is not None:
            arguments |= {'type': comma_separated(each.entry_type), 'metavar': 'A,B,..'}
        arguments |= more.get(each.name, {})
        if each.choices:
            arguments['choices'] = each.choices
            arguments['metavar'] = f'{{{",".join(filter(None, each.choices))}}}'
        if 'type' in arguments and 'action' not in arguments:
            arguments['type'] = _checked(arguments['type'], each)
        flags = arguments.pop('flags')
        description = each.description.rstrip('.').replace('%', '%%')
        if description.partition(' ')[0][1:].islower():  # Not IoU, CUDA.
            description = description[0].lower() + description[1:]
        arguments.setdefault('default', each.default)
        description += arguments.pop('note', '')
        default = arguments['default']
        if type(default) in (int, float) or (default and default in each.choices):
            description += f' (default: {default})'
        parser.add_argument(*flags, dest=each.name, help=description, **arguments)


def given_options(args: Namespace, cls: type[Options]) -> Options:
    """Return the options of a class by the arguments of a verb, or raise ParameterError."""
    values = vars(args)
    if 'model' in values:
        values = {'model_path': str(args.model), **values}
    given = {each.name: values.get(each.name) for each in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in given.items() if value is not None})


def _checked(parse: Callable[[str], Any], option: Specification) -> Callable[[str], Any]:
    def checked(text: str) -> Any:
        value = parse(text)
        try:
            return option.check(value)
        except ParameterError as error:
            raise ArgumentTypeError(str(error)) from error

    checked.__name__ = parse.__name__
    return checked


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
    return _parts(r',(?=[^,=?&]+=\s*\w+:)', text)


def _parts(separator: str, text: str) -> tuple[str, ...]:
    """Split a list; brackets and quotes, as parameters and remedies have them, are removed."""
    text = text.strip()
    if text.startswith('[') and text.endswith(']'):
        text = text[1:-1]
    return tuple(part.strip().strip('\'"').strip() for part in re.split(separator, text))


def comma_separated(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a parser of values with commas between them."""

    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind(part) for part in _parts(',', text) if part)

    parse.__name__ = f'comma-separated {kind.__name__}'  # argparse shows it: "invalid .. value".
    return parse


def image_size(text: str) -> tuple[int, ...]:
    """Parse 480x640, 480,640, one number for both, or nothing; raise ValueError for others."""
    size = tuple(int(part) for part in _parts('[x,]', text) if part)
    if len(size) > 2:
        raise ValueError(text)
    return size * 2 if len(size) == 1 else size


image_size.__name__ = 'image size'  # argparse shows it: "invalid image size value".

#: Arguments of the flags of options that are not parsed by their type alone.
PARSERS: Mapping[str, Mapping[str, Any]] = {
    'model_path': {'flags': ['--model', '--model-path'], 'metavar': 'FILE', 'required': True},
    'input_size': {'type': image_size, 'metavar': 'HxW'},
    'tiles': {'metavar': 'CxR'},
    'inputs': {'type': _bindings, 'metavar': 'INPUT=KIND:SOURCE,..'},
}


def number(kind: type, low: float = -inf, high: float = inf) -> Callable[[str], Any]:
    """Return a parser of finite numbers from `low` to `high`."""

    def parse(text: str) -> Any:
        value = kind(text)
        if not (low <= value <= high and isfinite(value)):
            bounds = f'{low} or above' if high == inf else f'{low} to {high}'
            raise ArgumentTypeError(f'{text} is not {"finite" if low == -inf else bounds}')
        return value

    parse.__name__ = kind.__name__
    return parse


finite, fraction, positive = number(float), number(float, 0, 1), number(int, 1)


def model_argument(text: str) -> Path | str:
    """Return the path of a model, or its address."""
    return text if text.startswith((*FILE_SCHEMES, *REMOTE_SCHEMES)) else Path(text)


#: The flag of the similarity that an engine must reach.
MIN_COSINE = (
    '--min-cosine X',
    number(float, -1, 1),
    0.99,
    'fail below this cosine similarity of any output',
)


def refuse_without_effect(*rows: tuple[str, object, object, str]) -> None:
    """
    Raise ParameterError for a flag that is given where it has no effect.

    :param rows: the flag, whether it is given, whether it has an effect, and what it needs for it.
    """
    for flag, is_given, has_effect, needed in rows:
        if is_given and not has_effect:
            raise ParameterError(
                f'{flag} has no effect without {needed}.',
                remedy=f'Use {needed}, or leave {flag} out.',
            )


def refuse_bundle(model: Path | str, user: str) -> None:
    """Raise ParameterError for the path of a bundle; `user` takes one network."""
    if str(model).endswith(BUNDLE_SUFFIXES):
        raise ParameterError(
            f'{user} is for one network, but {model} is a bundle.',
            remedy='Give the ONNX file of one of its networks.',
        )


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Create the folder of --output, or raise ParameterError; delete it if it stays empty."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for each in new:
                each.rmdir()


def thresholds_of(args: Namespace) -> Thresholds:
    """Return the thresholds of a command line; raise ParameterError if a score is invalid."""
    return given_options(args, ThresholdOptions).thresholds()
