"""Names of a network's classes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from trt_ros.errors import ParameterError, printable
from trt_ros.regular_file import MAX_TEXT_NBYTES, read_regular

#: Built-in lists of class names, files in `class_lists`; docs/models.md states their sources.
BUILT_IN = ('ade20k', 'cityscapes', 'coco', 'coco_91', 'imagenet', 'voc')


def class_names(
    labels: Sequence[str], labels_path: str, metadata: Mapping[str, str], class_count: int | None
) -> tuple[str, ...]:
    """
    Return the class names from the parameter, else the file, else the metadata of the model.

    :param labels: names in the order of the classes, or one of `BUILT_IN`; empty: not set.
    :param labels_path: UTF-8 text file with one name per line; '': not set.
    :param metadata: metadata of the ONNX file; 'names' in the format of ultralytics, a Python dict
        or list.
    :param class_count: number of classes in the network's outputs; None: unknown.
    :returns: one name per class, or () without any source. A leading background class is removed
        if the network does not count it.
    :raises ParameterError: when the file cannot be read, or the number of names is wrong.
    """
    if len(labels) == 1 and labels[0] in BUILT_IN:
        names, source = built_in_names(labels[0]), f'labels {labels[0]!r}'
    elif labels:
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
            remedy='Set `labels` or `labels_path` to one name per class, in their order, '
            'including the background if the network counts it.',
        )
    return names


def begins_with_background(names: Sequence[str]) -> bool:
    """Return whether the first class name is the background."""
    return names[:1] != () and names[0].strip('_').lower() == 'background'


def name_of(names: Sequence[str], index: int) -> str:
    """Return the name of a class, or its index if it has none."""
    return (names[index] if 0 <= index < len(names) else '') or str(index)


def built_in_names(name: str) -> tuple[str, ...]:
    """Return one of the lists of `BUILT_IN`."""
    lists = files('trt_ros.vision') / 'class_lists'
    return tuple((lists / f'{name}.txt').read_text(encoding='utf-8').splitlines())


def _from_file(path: str) -> tuple[str, ...]:
    try:
        text = read_regular(Path(path).expanduser(), MAX_TEXT_NBYTES).decode('utf-8-sig')
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(
            f'Cannot read the class names in {path!r}.',
            cause=str(error),
            remedy='Set labels_path to a UTF-8 text file with one name per line.',
        ) from error
    names = tuple(line.strip() for line in text.rstrip().splitlines())
    if not names:
        raise ParameterError(
            f'{path!r} contains no class names.', remedy='Write one name per line.'
        )
    return names


def _from_metadata(metadata: Mapping[str, str]) -> tuple[str, ...]:
    text = metadata.get('names', '()')
    if len(text) > MAX_TEXT_NBYTES:
        return ()
    try:
        names = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ()  # Format of another exporter; names are optional.
    if isinstance(names, dict):
        names = [names.get(index) for index in range(len(names))]
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(map(printable, names))  # ROS messages and OpenCV refuse lone surrogates.
