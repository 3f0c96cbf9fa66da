"""Boxes after NMS as MMDetection and the object detection API of TensorFlow write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.boxes import BoxesHead, BoxOutputs
from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    image_output,
    is_float,
)
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Out
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class MmdetectionHead(Head[Detections]):
    """
    A decoder of (1, K, 5): x1, y1, x2, y2 in input pixels, score; and of (1, K) class indices.

    Source: MMDeploy, whose exports of MMDetection end in NMS. Unused rows have a score of 0 or
    less, or the class -1.
    """

    boxes_name: str
    labels_name: str
    class_count: None = None

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        rows = image_output(outputs, self.boxes_name)
        if rows.shape[1] != 5:
            raise _not_mmdetection(f'(1, {rows.shape[0]}, {rows.shape[1]})')
        parts = _parts(self.boxes_name, 'score', self.labels_name)
        values = {
            self.boxes_name: rows[None, :, :4],
            'score': rows[None, :, 4],
            self.labels_name: image_output(outputs, self.labels_name, 1)[None],
        }
        return BoxesHead(parts, None, suppress=False)(values, letterbox, thresholds)


@dataclass(frozen=True)
class TensorflowHead(Head[Detections]):
    """
    A decoder of y1, x1, y2, x2 in 0 to 1 of the input, of scores and of classes that begin at 1.

    Class 1 of the network is class 0 of the result: TensorFlow's class 0 is the background.
    Source: TensorFlow's object detection API, `postprocess` and its documented outputs.

    :param names: of the boxes (1, K, 4), scores (1, K) and classes (1, K); and of the number of
        valid boxes, '' where there is none.
    :param class_count: number of classes without background that the user names; None: unknown.
    """

    names: tuple[str, str, str, str]
    class_count: int | None

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        boxes, scores, classes, count = self.names
        y_first = image_output(outputs, boxes)
        if y_first.shape[1] != 4:
            raise _not_tensorflow(f'boxes (1, {y_first.shape[0]}, {y_first.shape[1]})')
        values = {
            boxes: y_first[None][..., [1, 0, 3, 2]],
            scores: image_output(outputs, scores, 1)[None],
            classes: image_output(outputs, classes, 1)[None].astype(np.float32) - 1,
        }
        if count:
            values[count] = np.asarray(outputs[count])
        parts = _parts(boxes, scores, classes, count)
        return BoxesHead(parts, None, True, suppress=False)(values, letterbox, thresholds)


def _parts(boxes: str, scores: str, labels: str, count: str = '') -> BoxOutputs:
    def spec(name: str, *shape: int) -> TensorSpec:
        return TensorSpec(name, (1, -1, *shape), 'float32', 'output')

    return BoxOutputs(spec(boxes, 4), spec(scores), spec(labels), spec(count) if count else None)


class MmdetectionOutputs(NamedTuple):
    """The two outputs of an export by MMDeploy."""

    boxes: TensorSpec
    labels: TensorSpec

    def __str__(self) -> str:
        return f'{self.boxes}, {self.labels}'


def find_mmdetection(network: NetworkDescription) -> MmdetectionOutputs | None:
    """Find (1, K, 5) and integers (1, K); None: these are not the only outputs."""
    found = sorted(network.outputs, key=lambda spec: -len(spec.shape))
    if [len(spec.shape) for spec in found] != [3, 2]:
        return None
    boxes, labels = found
    fits = (
        boxes.shape[0] in (1, -1)
        and boxes.shape[2] == 5
        and is_float(boxes)
        and not is_float(labels)
        and (boxes.shape[1] == labels.shape[1] or -1 in (boxes.shape[1], labels.shape[1]))
    )
    return MmdetectionOutputs(boxes, labels) if fits else None


class TensorflowOutputs(NamedTuple):
    """Outputs of the object detection API; others, such as raw boxes, are ignored."""

    boxes: TensorSpec
    scores: TensorSpec
    classes: TensorSpec
    valid: TensorSpec | None

    def __str__(self) -> str:
        return ', '.join(str(spec) for spec in self if spec is not None)


def find_tensorflow(network: NetworkDescription) -> TensorflowOutputs | None:
    """Find the outputs by their names; None: there are no such names or other shapes."""

    def named(word: str, axes: int) -> TensorSpec | None:
        found = [
            spec
            for spec in network.outputs
            if spec.name.split(':')[0] == word and len(spec.shape) == axes
        ]
        return found[0] if len(found) == 1 else None

    boxes, scores = named('detection_boxes', 3), named('detection_scores', 2)
    classes = named('detection_classes', 2)
    if boxes is None or scores is None or classes is None or boxes.shape[2] not in (4, -1):
        return None
    count = named('num_detections', 1) or named('num_detections', 2)
    return TensorflowOutputs(boxes, scores, classes, count)


def _open_mmdetection(network: NetworkDescription) -> MmdetectionHead:
    found = find_mmdetection(network)
    if found is None:
        raise _not_mmdetection(str(network))
    return MmdetectionHead(found.boxes.name, found.labels.name)


def _open_tensorflow(network: NetworkDescription) -> TensorflowHead:
    found = find_tensorflow(network)
    if found is None:
        raise _not_tensorflow(str(network))
    boxes, scores, classes, count = found
    named = network.class_count and network.class_count - network.has_background
    return TensorflowHead(
        (boxes.name, scores.name, classes.name, count.name if count else ''), named or None
    )


def _not_mmdetection(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        'Not an MMDetection export: expected boxes with scores (1, K, 5) and integers (1, K), got '
        f'{seen}.',
        remedy='Export the detector with MMDeploy without masks, or choose another decoder.',
    )


def _not_tensorflow(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        "Not outputs of TensorFlow's object detection API: expected detection_boxes (1, K, 4), "
        f'detection_scores (1, K) and detection_classes (1, K), got {seen}.',
        remedy='Convert the saved model with its output names, or choose another decoder.',
    )


MMDETECTION = Family(
    'mmdetection',
    'detect',
    {**IMAGENET_PREPROCESS, 'resize': 'letterbox_topleft', 'pad_value': 114},
    _open_mmdetection,
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 scores:1'), Out('B N', 'label:1', is_float=False)),
            coding=CORNERS,
            uses_nms=False,
        ),
    ),
)
TENSORFLOW = Family(
    'tensorflow',
    'detect',
    {'resize': 'stretch', 'channel_order': 'rgb', 'scale': 1.0},
    _open_tensorflow,
    layouts=tuple(
        BoxLayout(
            (
                Out('B N V', 'box:4', ('detection_boxes',)),
                Out('B N', 'scores:1', ('detection_scores',)),
                Out('B N', 'label:1', ('detection_classes',), is_float=None),
                *count,
            ),
            coding=Coding('corners', is_normalized=True, is_y_first=True),
            label_offset=1,
            uses_nms=False,
            ignores_others=True,
        )
        for count in ((Out('1', 'count:1', ('num_detections',), is_float=None),), ())
    ),
)
