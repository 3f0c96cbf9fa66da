"""Ids in the results format of COCO (https://cocodataset.org/#format-results)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

from trt_ros.errors import ParameterError
from trt_ros.regular_file import read_regular
from trt_ros.results.labels import begins_with_background, built_in_names, name_of

MAX_ANNOTATIONS_NBYTES = 1 << 30


@dataclass(frozen=True)
class CocoIds:
    """Ids of COCO annotations: images by the last part of `file_name`, categories by name."""

    images: Mapping[str, int]
    categories: Mapping[str, int]

    @classmethod
    def read(cls, path: Path) -> CocoIds:
        """Read the ids of a file such as instances_val2017.json, or raise ParameterError."""
        try:
            found = json.loads(read_regular(path, MAX_ANNOTATIONS_NBYTES))
            return cls(
                {Path(each['file_name']).name: int(each['id']) for each in found['images']},
                {str(each['name']): int(each['id']) for each in found['categories']},
            )
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise ParameterError(
                f'Cannot read {path} as annotations in COCO format.',
                cause=f'{type(error).__name__}: {error}',
                remedy='Choose a JSON file with `images` and `categories`.',
            ) from error


class _AnyCategory(dict[int, int]):
    """Category ids of a network whose classes are unknown: index + 1. Has those asked for."""

    def __missing__(self, index: int) -> int:
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
