"""Results of one image as JSON, and as files beside its picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.coco import run_lengths
from trt_ros.vision.decoders.obb import hull
from trt_ros.vision.decoders.semantic import MaskHeads
from trt_ros.vision.detections import Detections
from trt_ros.vision.labels import name_of
from trt_ros.vision.results import (
    Classification,
    ClassMask,
    Depth,
    Instances,
    OrientedBoxes,
    Poses,
    unlabeled,
)

MAX_CLASSES = 5

#: Writes an array to a file named after the picture, such as 'mask.png'; returns its name.
WriteArray = Callable[[str, np.ndarray], str]


def result_as_json(
    result: object, pipeline: Pipeline[Any], write_array: WriteArray | None
) -> dict[str, Any]:
    """
    Return a result of the pipeline as JSON data; see the help of `trt-ros infer`.

    :param write_array: called for masks and depth; None: they are not written.
    """
    names, head = pipeline.class_names, pipeline.decoder.head
    if isinstance(result, Classification):
        return {'classes': _classes(result, names)}
    if isinstance(result, Depth):
        return {'depth': _depth(result, write_array)}
    if isinstance(result, ClassMask):
        return {'mask': _mask(result, names, 'mask', write_array)}
    if isinstance(head, MaskHeads) and isinstance(result, Mapping):
        names_by_output = head.names_by_output(names)
        return {
            'masks': {
                name: _mask(mask, names_by_output[name], f'{_file_name(name)}_mask', write_array)
                for name, mask in result.items()
            }
        }
    return {'detections': _detections(result, names)}


def _classes(found: Classification, names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            'label': name_of(names, label),
            'class_index': label,
            'score': round(float(found.scores[label]), 4),
        }
        for label in found.top(MAX_CLASSES).tolist()
    ]


def _depth(found: Depth, write_array: WriteArray | None) -> dict[str, Any]:
    finite = found.values[np.isfinite(found.values)]
    values = np.percentile(finite, [0, 50, 100]).tolist() if finite.size else [None] * 3
    entry: dict[str, Any] = {
        name: value if value is None else float(f'{value:.5g}')  # In any unit.
        for name, value in zip(('min', 'median', 'max'), values)
    }
    if write_array is not None:
        entry['file'] = write_array('depth.tiff', found.values)
    return entry


def _mask(
    mask: ClassMask, names: Sequence[str], name: str, write_array: WriteArray | None
) -> dict[str, Any]:
    labels, counts = np.unique(mask.labels, return_counts=True)
    entry: dict[str, Any] = {
        'classes': [
            {
                'label': name_of(names, label),
                'class_index': label,
                'fraction': round(count / mask.labels.size, 5),
            }
            for label, count in zip(labels.tolist(), counts.tolist())
            if label != unlabeled(mask.labels.dtype)
        ]
    }
    if write_array is not None:
        entry['file'] = write_array(f'{name}.png', mask.labels)
    return entry


def _detections(result: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    if isinstance(result, OrientedBoxes):
        xyxy = np.hstack(hull(np.column_stack([result.cxcywh, result.theta])))
        found = Detections(xyxy, result.scores, result.labels)
    else:
        found = result.detections if isinstance(result, (Instances, Poses)) else result
    return [
        {
            'label': name_of(names, int(label)),
            'class_index': int(label),
            'score': round(float(score), 4),
            'xyxy': _rounded(edges),
            **_extras(result, index),
        }
        for index, (edges, score, label) in enumerate(zip(found.xyxy, found.scores, found.labels))
    ]


def _extras(result: Any, index: int) -> dict[str, Any]:
    if isinstance(result, OrientedBoxes):
        return {
            'cxcywh': _rounded(result.cxcywh[index]),
            'theta': round(float(result.theta[index]), 5),
        }
    if isinstance(result, Instances):
        mask, origin_xy = result.masks[index], result.origins_xy[index]
        return {'mask': run_lengths(mask, origin_xy, result.image_wh)}
    if isinstance(result, Poses):
        return {
            'keypoints': [
                [*_rounded(point[:2]), round(float(point[2]), 4)]
                for point in result.keypoints[index]
            ]
        }
    return {}


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 2) for value in values]


def _file_name(output: str) -> str:
    return ''.join(letter if letter.isalnum() else '_' for letter in output)
