"""Names of a network's classes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from trt_ros.errors import ParameterError, printable
from trt_ros.regular_file import MAX_TEXT_NBYTES, read_regular


def class_names(
    labels: Sequence[str], labels_path: str, metadata: Mapping[str, str], class_count: int | None
) -> tuple[str, ...]:
    """
    Find the class names: the parameter, else the file, else the model's metadata, else none.

    :param labels: names in the order of the classes; empty: look further.
    :param labels_path: UTF-8 text file with one name a line; '': look further.
    :param metadata: the ONNX file's; 'names' as ultralytics writes it, a Python dict or list.
    :param class_count: what the network's outputs say; None: not known.
    :returns: one name a class, or () when nothing names them. The background in front of the
        classes goes where the network does not count it.
    :raises ParameterError: when the file cannot be read, or there are too many names or too few.
    """
    if labels:
        names, source = tuple(labels), 'labels'
    elif labels_path:
        names, source = _from_file(labels_path), f'labels_path {labels_path!r}'
    else:
        names, source = _from_metadata(metadata), "the model's metadata"
    if begins_with_background(names) and len(names) - 1 == class_count:
        return names[1:]
    if names and class_count is not None and len(names) != class_count:
        raise ParameterError(
            f'{source} names {len(names)} classes, but the network has {class_count}.',
            remedy='Give one name a class, in their order, as `labels` or `labels_path`; also the '
            'background where the network counts it.',
        )
    return names


def begins_with_background(names: Sequence[str]) -> bool:
    return names[:1] != () and names[0].strip('_').lower() == 'background'


def name_of(names: Sequence[str], index: int) -> str:
    """Name a class; its number where it has no name."""
    return (names[index] if 0 <= index < len(names) else '') or str(index)


def _from_file(path: str) -> tuple[str, ...]:
    try:
        text = read_regular(Path(path).expanduser(), MAX_TEXT_NBYTES).decode('utf-8-sig')
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(
            f'The class names in {path!r} cannot be read.',
            cause=str(error),
            remedy='Set labels_path to a UTF-8 text file with one name a line.',
        ) from error
    names = tuple(line.strip() for line in text.rstrip().splitlines())
    if not names:
        raise ParameterError(f'{path!r} holds no class names.', remedy='Write one name a line.')
    return names


def _from_metadata(metadata: Mapping[str, str]) -> tuple[str, ...]:
    text = metadata.get('names', '()')
    if len(text) > MAX_TEXT_NBYTES:
        return ()
    try:
        names = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ()  # Another exporter's own format; names are a nicety.
    if isinstance(names, dict):
        names = [names.get(index) for index in range(len(names))]
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(map(printable, names))  # ROS messages and OpenCV take no lone surrogates.
