"""Names of a network's classes, and their ids in the results format of COCO."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
import json
from pathlib import Path
import re
from typing import Any

from trt_ros.errors import ParameterError, counted, meant, printable, requires
from trt_ros.regular_file import MAX_TEXT_NBYTES, parsing, read_regular

#: Built-in lists of class names, files in `class_lists`; docs/models.md states their sources.
BUILT_IN = ('ade20k', 'cityscapes', 'coco', 'coco_91', 'imagenet', 'voc')

#: Keys of names in metadata: Ultralytics and YOLOv5, then others.
METADATA_KEYS = ('names', 'class_names', 'classes', 'labels', 'label_names', 'id2label', 'CLASSES')

# `0: person`, `0 person`, `0, person`.
_NUMBERED = re.compile(r'(\d{1,5})(?:\s*[:,=]\s*|\s+)(\S.*)')


def class_names(
    labels: Sequence[str], labels_path: str, metadata: Mapping[str, str], class_count: int | None
) -> tuple[str, ...]:
    """
    Return the class names from the parameter, else the file, else the metadata of the model.

    :param labels: names in the order of the classes, or one of `BUILT_IN`; empty: not set.
    :param labels_path: UTF-8 text file with one name per line, or YAML or JSON with a list or a
        mapping of names, also below a key `names`; '': not set.
    :param metadata: metadata of the ONNX file: a list or mapping below one of `METADATA_KEYS`, or
        the lines of `character`, as RapidOCR writes them.
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
            f'{source} names {counted(len(names), "class")}, but the network has {class_count}.',
            remedy=meant_by(labels)
            + 'Set `labels` or `labels_path` to one name per class, in their order, '
            'including the background if the network counts it.',
        )
    return names


def meant_by(labels: Sequence[str]) -> str:
    """Return the built-in list or the file that a single name may stand for, a sentence; or ''."""
    if len(labels) != 1 or labels[0] in BUILT_IN:
        return ''
    close = meant(labels[0].lower(), BUILT_IN)
    if close:
        return close
    if Path(labels[0]).suffix:
        return f'If {labels[0]!r} is a file, set `labels_path` to it. '
    return ''


def begins_with_background(names: Sequence[str]) -> bool:
    """Return whether the first class name is the background."""
    return len(names) > 0 and names[0].strip('_').lower() == 'background'


def describe_names(names: tuple[str, ...], given: tuple[str, ...]) -> str:
    """Return a line for the log about the names of a network, which is `given` some."""
    if not names:
        return 'no class names: results have class indices'
    number = counted(len(names), 'class name')
    if len(names) >= len(given):
        return number
    return f'{number}, without {given[0]!r}, which is not a class of the network'


def repeated_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that several classes have, but for those of gaps in a list."""
    counts = Counter(names)
    return tuple(name for name in counts if counts[name] > 1 and name not in ('', 'N/A'))


def name_of(names: Sequence[str], index: int) -> str:
    """Return the name of a class, or its index if it has none."""
    return (names[index] if 0 <= index < len(names) else '') or str(index)


def built_in_names(name: str) -> tuple[str, ...]:
    """Return one of the lists of `BUILT_IN`."""
    lists = files('trt_ros.results') / 'class_lists'
    return tuple((lists / f'{name}.txt').read_text(encoding='utf-8').splitlines())


def _from_file(path: str) -> tuple[str, ...]:
    remedy = 'Set labels_path to a UTF-8 text file with one name per line.'
    with parsing(f'Cannot read the class names in {path!r}.', remedy):
        text = read_regular(Path(path).expanduser(), MAX_TEXT_NBYTES).decode('utf-8-sig')
    if Path(path).suffix.lower() in ('.yaml', '.yml', '.json'):
        return _from_yaml(path, text)
    names = tuple(line.strip() for line in text.rstrip().splitlines())
    if not names:
        raise ParameterError(
            f'{path!r} contains no class names.', remedy='Write one name per line.'
        )
    first = next(name for name in names if name)
    if first[0] in '[{' or re.match(r'item\s*\{', first):
        raise ParameterError(
            f'{path!r} is no list of class names.',
            cause=f'It begins with {first[:40]!r}.',
            remedy='Write one name per line, or name a file in YAML or JSON .yaml or .json.',
        )
    return _without_numbers(names)


def _without_numbers(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of lines that all begin with a class index, ascending from 0."""
    found = [_NUMBERED.fullmatch(line) for line in lines if line]
    names = {int(each[1]): each[2] for each in found if each}
    is_numbered = len(names) == len(found) > 1 and min(names) == 0
    # The 80 classes of COCO have indices up to 89; "0 degrees", "90 degrees" are names.
    if not is_numbered or list(names) != sorted(names) or max(names) >= 2 * len(names):
        return lines
    return tuple(names.get(index, '') for index in range(max(names) + 1))


def _from_yaml(path: str, text: str) -> tuple[str, ...]:
    """Return the names in YAML or JSON: a list, or a mapping by index, also below `names`."""
    remedy = 'sudo apt install python3-yaml, or pip install pyyaml.'
    with requires('PyYAML', f'The file of class names {path!r}', remedy):
        import yaml
    problem = f'{path!r} contains no list of class names.'
    remedy = 'Write a list or a mapping of indices from 0, also below the key `names`.'
    with parsing(problem, remedy, yaml.YAMLError):
        names = yaml.safe_load(text)
        if isinstance(names, dict) and 'names' in names:
            names = names['names']
        if isinstance(names, dict):
            by_index = {int(index): name for index, name in names.items()}
            names = [by_index[index] for index in range(len(by_index))]
    has_names = isinstance(names, list) and bool(names)
    if not has_names or any(isinstance(each, (list, dict)) for each in names):
        raise ParameterError(problem, remedy=remedy)
    return tuple(printable(str(name).strip()) for name in names)


def _from_metadata(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names below the first key that has some; those of others are optional."""
    for key in METADATA_KEYS:
        text = metadata.get(key, '')
        names = _parsed(text) if len(text) <= MAX_TEXT_NBYTES else ()
        if names:
            return tuple(map(printable, names))
    found = tuple(map(printable, metadata.get('character', '').splitlines()))
    reads_text = sum(len(each) == 1 for each in found) > len(found) / 2
    return ('blank', *found, ' ') if reads_text else found


def _parsed(text: str) -> tuple[str, ...]:
    """Return the names in a list or mapping of Python or JSON, in lines, or between commas."""
    values: Any = None
    for parse in (ast.literal_eval, json.loads):
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            values = parse(text)
            break
    else:
        split = text.splitlines() if '\n' in text.strip() else text.split(',')
        values = [name.strip() for name in split if name.strip()]
        values = values if len(values) > 1 else ()
    if isinstance(values, dict):
        by_index = {str(index): name for index, name in values.items()}
        values = [by_index.get(str(index)) for index in range(len(by_index))]
    are_names = isinstance(values, (list, tuple)) and all(isinstance(n, str) for n in values)
    return tuple(values) if are_names else ()


MAX_ANNOTATIONS_NBYTES = 1 << 30


@dataclass(frozen=True)
class CocoIds:
    """Ids of COCO annotations: images by the last part of `file_name`, categories by name."""

    images: Mapping[str, int]
    categories: Mapping[str, int]

    @classmethod
    def read(cls, path: Path) -> CocoIds:
        """Read the ids of a file such as instances_val2017.json, or raise ParameterError."""
        problem = f'Cannot read {path} as annotations in COCO format.'
        with parsing(problem, 'Choose a JSON file with `images` and `categories`.'):
            found = json.loads(read_regular(path, MAX_ANNOTATIONS_NBYTES))
            return cls(
                {name: int(number) for name, number in ids_by_name(found['images']).items()},
                {str(each['name']): int(each['id']) for each in found['categories']},
            )


def ids_by_name(images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the ids of annotated images by the last part of `file_name`, or ParameterError."""
    names = [Path(each['file_name']).name for each in images]
    check_unique(names, 'The annotations have')
    return {name: each['id'] for name, each in zip(names, images)}


def check_unique(names: Iterable[str], subject: str) -> None:
    """Raise ParameterError if names, by which images and their annotations match, are equal."""
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise ParameterError(
                f'{subject} {count} images of the name {name}.',
                cause='Images and annotations are matched by the last part of their names.',
                remedy='Use the images of one folder at a time, with annotations of these alone.',
            )


class _AnyCategory(dict[int, int]):
    """Category ids of a network whose classes are unknown: index + 1. Has those asked for."""

    def get(self, index: int, default: Any = None) -> int:
        return self.setdefault(index, index + 1)


def category_ids(
    class_names: Sequence[str], class_count: int, categories: Mapping[str, int] | None = None
) -> dict[int, int]:
    """
    Return the category id of each class.

    Without `categories`, the classes of COCO have its category numbers, 1 to 90 with gaps, and
    others their index + 1; in a list that begins with the background, their index.

    :param class_count: number of classes; 0: unknown, then `class_names` counts; without names,
        there is an id for every class, and those that were looked up are listed.
    :param categories: ids by name; classes that are not among them are left out.
    :raises ParameterError: when no class is among `categories`.
    """
    classes = range(max(class_count, len(class_names)))
    names = [name_of(class_names, index) for index in classes]
    if categories is not None:
        found = {index: categories[name] for index, name in enumerate(names) if name in categories}
        if not found:
            raise ParameterError(
                'No class of the network is a category of the annotations.',
                cause=f'The classes are {_some(names)}; the categories are {_some(categories)}.',
                remedy="Set labels or labels_path to the annotations' names.",
            )
        return found
    if not names:
        return _AnyCategory()
    numbers = {
        name: number for number, name in enumerate(built_in_names('coco_91')) if name != 'N/A'
    }
    named = {index: numbers[name] for index, name in enumerate(names) if name in numbers}
    if len(set(named.values()) - {0}) == len(numbers) - 1:
        return {index: number for index, number in named.items() if number}
    first = 0 if begins_with_background(names) else 1
    return {index: index + first for index in classes if index + first}


def _some(names: Any) -> str:
    shown = ', '.join(list(names)[:10])
    return f'{shown}, ..' if len(names) > 10 else shown or 'none'
