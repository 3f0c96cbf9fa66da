"""Annotations or counts of pictures, and the agreement of results with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
import json
from pathlib import Path
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.regular_file import read_regular
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.results.classes import Classification
from trt_ros.results.coco import MAX_ANNOTATIONS_NBYTES
from trt_ros.vision.nms import iou

MIN_IOU = 0.5


@dataclass(frozen=True)
class Truth:
    """
    Objects of a picture, or its class.

    :param names: class name per object, or of the picture; () with only a number.
    :param xyxy: (N, 4) boxes in pixels; None: only the number of objects is known.
    """

    count: int
    names: tuple[str, ...] = ()
    xyxy: np.ndarray | None = None


def read_truths(path: Path, pictures: Sequence[Path]) -> list[Truth | None]:
    """
    Read the objects of pictures from annotations in COCO format; None: a picture has none.

    :raises ParameterError: when the file cannot be read, or has none of the pictures.
    """
    try:
        found = json.loads(read_regular(path, MAX_ANNOTATIONS_NBYTES))
        names = {each['id']: str(each['name']) for each in found['categories']}
        ids = {Path(each['file_name']).name: each['id'] for each in found['images']}
        shown: dict[Any, list[tuple[str, list[float]]]] = {each: [] for each in ids.values()}
        for each in found['annotations']:
            shown[each['image_id']].append((names[each['category_id']], each['bbox']))
        truths = [_truth(shown[ids[each.name]]) if each.name in ids else None for each in pictures]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ParameterError(
            f'Cannot read {path} as annotations in COCO format.',
            cause=f'{type(error).__name__}: {error}',
            remedy='Choose a JSON file with `images`, `categories` and `annotations`.',
        ) from error
    if not any(truths):
        raise ParameterError(
            f'The annotations {path} have none of the pictures.',
            cause=f'They have {", ".join(list(ids)[:3])} and others.',
            remedy='Choose the pictures of the annotations.',
        )
    return truths


def _truth(shown: Sequence[tuple[str, list[float]]]) -> Truth:
    xywh = np.array([box for _, box in shown], np.float64).reshape(-1, 4)
    xyxy = np.hstack([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]])
    return Truth(len(shown), tuple(name for name, _ in shown), xyxy)


@singledispatch
def agreement_with(result: Result, truth: Truth) -> float:
    """
    Return the agreement of a result with the objects of its picture, 0 to 1.

    Of boxes, twice the scores of those that are true over the sum of all scores and the number of
    true boxes; names count where the network has some of them.

    :raises ParameterError: for results of neither objects nor class scores.
    """
    raise ParameterError(
        f'Annotations and counts do not apply to {type(result).__name__}.',
        remedy='Leave them out: the readings are ranked by the results alone.',
    )


@agreement_with.register
def _(result: Objects, truth: Truth) -> float:
    if truth.xyxy is None:
        return 1 - abs(len(result) - truth.count) / max(len(result), truth.count, 1)
    if not len(result) and not truth.count:
        return 1.0
    are_alike = iou(result.xyxy[:, None], truth.xyxy) >= MIN_IOU
    if {*truth.names} & {*result.class_names}:
        are_alike &= np.array(result.names)[:, None] == np.array(truth.names, str)
    is_free, true = np.ones(truth.count, bool), 0.0
    for row, score in zip(are_alike, result.scores.tolist()):
        if (row & is_free).any():
            is_free[(row & is_free).argmax()] = False
            true += score
    return 2 * true / (float(result.scores.sum()) + truth.count)


@agreement_with.register
def _(result: Classification, truth: Truth) -> float:
    if not truth.names or not result.class_names:
        raise ParameterError(
            'The annotations of a classifier need the names of its classes.',
            remedy='Set labels or labels_path to the names of the annotations.',
        )
    pairs = zip(result.class_names, result.scores.tolist())
    return float(sum(score for name, score in pairs if name in truth.names))
