"""Results in the results format of COCO (https://cocodataset.org/#format-results)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.regular_file import read_regular
from trt_ros.vision.decoders.obb import hull
from trt_ros.vision.decoders.registry import Decoder
from trt_ros.vision.decoders.semantic import MaskHeads
from trt_ros.vision.detections import Detections
from trt_ros.vision.labels import begins_with_background, built_in_names, name_of
from trt_ros.vision.results import ClassMask, Instances, OrientedBoxes, Poses, unlabeled

MAX_ANNOTATIONS_NBYTES = 1 << 30


@dataclass(frozen=True)
class CocoIds:
    """
    Ids of annotations in COCO format.

    :param images: image ids by the last part of `file_name`.
    :param categories: category ids by name.
    """

    images: Mapping[str, int]
    categories: Mapping[str, int]

    @classmethod
    def read(cls, path: Path) -> CocoIds:
        """
        Read the ids of an annotation file such as instances_val2017.json.

        :raises ParameterError: when the file cannot be read or has another format.
        """
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


def check_has_format(decoder: Decoder[Any]) -> None:
    """
    Check that the format has the results of a decoder.

    :raises ParameterError: when it has not.
    """
    if isinstance(decoder.head, MaskHeads):
        raise ParameterError(
            'COCO has no format for several masks per image.',
            remedy='Choose one output with --outputs, or leave --coco out.',
        )
    if decoder.task in ('classify', 'depth'):
        raise ParameterError(
            f'COCO has no format for the results of decoder {decoder.name}.',
            remedy='Leave --coco out.',
        )


def coco_entries(
    result: object,
    image_id: int,
    categories: Mapping[int, int],
    *,
    with_area: bool = False,
) -> Iterator[dict[str, Any]]:
    """
    Yield the entries of the results of an image; none for results that the format does not have.

    Boxes are x, y, width and height in pixels. Rotated boxes have the polygon of their corners,
    instances a compressed RLE, poses x, y and visibility per keypoint. Of a class mask, each class
    is an entry without box and score, as in the stuff format.

    :param categories: category id by class index; other classes are left out.
    :param with_area: add `area` in pixels: that of the mask, else of the box.
    """
    if isinstance(result, ClassMask):
        yield from _stuff(result, image_id, categories, with_area=with_area)
        return
    if isinstance(result, OrientedBoxes):
        found = Detections(
            np.hstack(hull(np.column_stack([result.cxcywh, result.theta]))),
            result.scores,
            result.labels,
        )
    elif isinstance(result, (Instances, Poses)):
        found = result.detections
    elif isinstance(result, Detections):
        found = result
    else:
        return
    for index, (xyxy, score, label) in enumerate(
        zip(found.xyxy.tolist(), found.scores.tolist(), found.labels.tolist())
    ):
        category = _category_of(label, categories)
        if category is None:
            continue
        left, top, right, bottom = xyxy
        entry: dict[str, Any] = {
            'image_id': image_id,
            'category_id': category,
            'bbox': [_rounded(each) for each in (left, top, right - left, bottom - top)],
            'score': round(score, 5),
            **_shape(result, index),
        }
        if with_area:
            _, _, width, height = entry['bbox']
            entry['area'] = (
                int(result.masks[index].sum())
                if isinstance(result, Instances)
                else _rounded(width * height)
            )
        yield entry


def _category_of(label: int, categories: Mapping[int, int]) -> int | None:
    """Return the category id of a class, also one that only __missing__ has; None: left out."""
    try:
        return categories[label]
    except KeyError:
        return None


def _shape(result: object, index: int) -> dict[str, Any]:
    """Return the corners, mask or keypoints of an object."""
    if isinstance(result, OrientedBoxes):
        corners = result.corners()[index].ravel().tolist()
        return {'segmentation': [[_rounded(each) for each in corners]]}
    if isinstance(result, Instances):
        mask, origin_xy = result.masks[index], result.origins_xy[index]
        return {'segmentation': run_lengths(mask, origin_xy, result.image_wh)}
    if isinstance(result, Poses):
        points = result.keypoints[index].ravel().tolist()
        return {'keypoints': [_rounded(each) for each in points]}
    return {}


def _stuff(
    mask: ClassMask, image_id: int, categories: Mapping[int, int], *, with_area: bool
) -> Iterator[dict[str, Any]]:
    labels, wh = mask.labels, (mask.labels.shape[1], mask.labels.shape[0])
    for label in np.unique(labels).tolist():
        if label == unlabeled(labels.dtype):
            continue
        category = _category_of(label, categories)
        if category is not None:
            pixels = labels == label
            yield {
                'image_id': image_id,
                'category_id': category,
                'segmentation': run_lengths(pixels, np.zeros(2, np.int32), wh),
                **({'area': int(pixels.sum())} if with_area else {}),
            }


def _rounded(value: float) -> float:
    return round(value, 2)


def run_lengths(
    mask: np.ndarray, origin_xy: np.ndarray, image_wh: tuple[int, int]
) -> dict[str, Any]:
    """
    Encode a mask as the compressed run-length encoding (RLE) of COCO.

    :param mask: (h, w) bool, inside the image.
    :param origin_xy: (2,) pixel of its upper-left corner.
    :param image_wh: size of the image.
    :returns: `size`, height and width of the image, and `counts`, as text.
    """
    (width, height), (left, top) = image_wh, origin_xy.tolist()
    columns = np.zeros((mask.shape[1], height), bool)  # Runs go down the columns.
    columns[:, top : top + mask.shape[0]] = mask.T
    edges = np.flatnonzero(np.diff(columns.ravel(), prepend=False, append=False))
    counts = np.diff(np.concatenate([[0], edges + left * height, [width * height]]))
    if len(edges) and not counts[-1]:
        counts = counts[:-1]  # The last run is of 1.
    return {'size': [height, width], 'counts': _as_text(counts)}


def _as_text(counts: np.ndarray) -> str:
    """
    Return run lengths as text.

    From the third on, they are differences from the one before the last; each is a signed number
    of 5 bits per character, the lowest first, where bit 5 says that more follow, plus 48.
    """
    rest = counts.copy()
    rest[3:] -= counts[1:-2]
    characters, present = [], []
    is_open = np.ones(len(rest), bool)
    while is_open.any():
        low = rest & 31
        rest = rest >> 5
        has_more = np.where(low & 16, rest != -1, rest != 0)
        characters.append(low + 32 * has_more + 48)
        present.append(is_open)
        is_open = is_open & has_more
    text = np.stack(characters, 1)[np.stack(present, 1)]
    return str(text.astype(np.uint8).tobytes(), 'ascii')
