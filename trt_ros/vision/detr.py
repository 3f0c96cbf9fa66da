"""DETR, RT-DETR, RT-DETRv2, D-FINE, RF-DETR: a fixed number of queries, none of which compete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.boxes import BoxesHead, box_outputs
from trt_ros.vision.detections import Detections
from trt_ros.vision.family import Family, Head, Network, corners, is_scores, single
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import detections
from trt_ros.vision.yolov8 import STRIDES
from trt_ros.vision.yolov10 import EndToEndHead

SIZES_INPUT = 'orig_target_sizes'


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Turn (Q, C) logits into (Q, C) scores, each class for itself: RT-DETR, D-FINE, RF-DETR."""
    return np.asarray(1 / (1 + np.exp(-logits)))


def softmax_without_last(logits: np.ndarray) -> np.ndarray:
    """
    Turn (Q, C + 1) logits, of which the last is "no object", into (Q, C) scores: DETR.

    Only a query's best class (the first of equals) has one; the others are 0.
    """
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = (powers / powers.sum(axis=1, keepdims=True))[:, :-1]
    best = scores.argmax(axis=1)[:, None]
    only: np.ndarray = np.zeros_like(scores)
    np.put_along_axis(only, best, np.take_along_axis(scores, best, axis=1), axis=1)
    return only


def as_they_are(scores: np.ndarray) -> np.ndarray:
    return scores


@dataclass(frozen=True)
class DetrHead:
    """
    Reads logits (1, Q, C) and boxes (1, Q, 4): cx, cy, w, h, 0 to 1 of the input.

    Of the Q * C scores the Q best are taken, so a query may be found as two classes. Source:
    `RTDETRPostProcessor` of RT-DETR; `post_process_object_detection` of transformers'
    RTDetrImageProcessor and DetrImageProcessor.

    :param logits_name: of the output with the boxes before the scores where `boxes_name` is ''.
    """

    logits_name: str
    boxes_name: str
    class_count: int | None
    to_scores: Callable[[np.ndarray], np.ndarray] = sigmoid

    def __call__(
            self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, *,
            score_threshold: float, iou_threshold: float, max_detections: int) -> Detections:
        logits = single(outputs, self.logits_name)
        if self.boxes_name:
            boxes = single(outputs, self.boxes_name)
        else:
            boxes, logits = logits[:, :4], logits[:, 4:]
        if len(logits) != len(boxes) or boxes.shape[1] != 4 or not logits.size:
            raise TensorMismatchError(
                f'Boxes {boxes.shape} and scores {logits.shape} are not one a query.')
        with np.errstate(invalid='ignore', over='ignore'):  # What is not finite is dropped.
            scores = self.to_scores(logits.astype(np.float32))
            queries, labels = np.nonzero((scores >= score_threshold) & np.isfinite(scores))
            xyxy = corners(boxes[queries].astype(np.float32))
            return detections(
                xyxy * np.array(letterbox.input_hw[::-1] * 2, np.float32),
                scores[queries, labels], labels, letterbox, iou_threshold=None,
                max_detections=min(max_detections, len(logits)))


def _raw_outputs(network: Network) -> tuple[TensorSpec, TensorSpec] | None:
    """Find logits and boxes by name; there may be more outputs (hidden states)."""
    found = []
    for ending in ('logits', 'boxes'):
        named = [spec for spec in network.outputs if spec.name.endswith(ending)]
        if len(named) != 1 or not is_scores(named[0]):
            return None
        found.append(named[0])
    logits, boxes = found
    return (logits, boxes) if boxes.shape[2] in (4, -1) else None


def _recognises_detr(network: Network) -> str | None:
    return _recognises_raw(network, 1, 92, 'softmax over the classes and "no object"')


def _recognises_rtdetr(network: Network) -> str | None:
    parts = box_outputs(network)
    if parts is not None and parts.labels is not None and _sizes_input(network) is not None:
        return f'{parts} with the input {SIZES_INPUT}, as its deployed model'
    if _ultralytics(network):
        return f"{network.only_output} is a row a query: Ultralytics' metadata"
    return _recognises_raw(network, 0, 80, 'sigmoid, a score a class')


def _recognises_raw(network: Network, extra: int, of_coco: int, how: str) -> str | None:
    """:param extra: channels beside the classes; `of_coco`: channels for COCO."""
    outputs = _raw_outputs(network)
    if outputs is None:
        return None
    logits, boxes = outputs
    channels = logits.shape[2]
    if network.class_count:
        if channels not in (-1, extra + network.class_count):
            return None
        why = f'{channels} logits for {network.class_count} classes'
    elif channels in (80, 92):
        if channels != of_coco:
            return None
        why = f'{channels} logits, as for COCO'
    else:
        why = 'nothing tells whether the last logit is "no object"'
    return f'{logits}, {boxes} by {how}: {why}'


def _recognises_rfdetr(network: Network) -> str | None:
    outputs = _rf_outputs(network)
    return outputs and f'{outputs[0]}, {outputs[1]}: named as its exporter does'


def _rf_outputs(network: Network) -> tuple[TensorSpec, TensorSpec] | None:
    named = {spec.name: spec for spec in network.outputs if is_scores(spec)}
    if 'dets' in named and 'labels' in named and named['dets'].shape[2] == 4:
        return named['labels'], named['dets']
    return None


def _ultralytics(network: Network) -> Literal['', 'scores', 'finished']:
    """
    Tell whether this is RT-DETR as Ultralytics exports it: a row a query of cx, cy, w, h, 0 to 1
    of the input, then C scores, or ('finished', since 8.4) the score and the class.
    """
    if network.metadata.get('task') != 'detect' or len(network.outputs) != 1:
        return ''
    spec, classes = network.only_output, network.class_count
    if not is_scores(spec) or network.metadata.get('end2end') == 'True':
        return ''
    if network.is_ultralytics_rtdetr:
        is_finished = spec.shape[2] == 6 and ('head' in network.metadata or classes != 2)
        return 'finished' if is_finished else 'scores'
    # Its other networks have the boxes in columns, or finished.
    if classes is not None and spec.shape[2] == 4 + classes and (
            spec.shape[1] not in [network.anchor_count(strides) for strides in STRIDES]):
        return 'scores'
    return ''


def _open_detr(network: Network) -> Head:
    return _open_raw(network, _raw_outputs(network), softmax_without_last, 1)


def _open_rtdetr(network: Network) -> Head:
    parts = box_outputs(network)
    if parts is not None and parts.labels is not None:
        return BoxesHead(parts, None, suppress=False)
    if len(network.outputs) == 1 and is_scores(network.only_output):
        spec = network.only_output
        if _ultralytics(network) == 'finished':
            return EndToEndHead(spec.name, None, is_rtdetr=True)
        return DetrHead(spec.name, '', spec.shape[2] - 4 if spec.shape[2] > 4 else None,
                        as_they_are)
    return _open_raw(network, _raw_outputs(network), sigmoid, 0)


def _open_rfdetr(network: Network) -> Head:
    return _open_raw(network, _rf_outputs(network) or _raw_outputs(network), sigmoid, 0)


def _open_raw(
        network: Network, outputs: tuple[TensorSpec, TensorSpec] | None,
        to_scores: Callable[[np.ndarray], np.ndarray], extra: int) -> DetrHead:
    if outputs is None:
        raise TensorMismatchError(
            'Not a DETR: expected logits (1, queries, classes) and pred_boxes (1, queries, 4).',
            cause=f'Seen: {network}.', remedy='Export both, by these names.')
    logits, boxes = outputs
    classes = logits.shape[2] - extra
    return DetrHead(logits.name, boxes.name, classes if classes > 0 else None, to_scores)


def _sizes_input(network: Network) -> TensorSpec | None:
    for spec in network.inputs:
        if spec.name == SIZES_INPUT and len(spec.shape) == 2:
            return spec
    return None


def _feed_input_size(network: Network) -> Mapping[str, np.ndarray]:
    """Say that each image is as large as the input: then boxes come back in input pixels."""
    spec = _sizes_input(network)
    if spec is None or spec.dtype == 'bfloat16':
        return {}
    height, width = network.input_hw
    return {spec.name: np.array([[width, height]], spec.dtype)}


STRETCHED: Mapping[str, object] = {'resize': 'stretch', 'channel_order': 'rgb', 'scale': 1 / 255}
IMAGENET: Mapping[str, object] = {
    **STRETCHED, 'mean': (0.485, 0.456, 0.406), 'std': (0.229, 0.224, 0.225)}
DETR = Family('detr', 'detect', IMAGENET, _recognises_detr, _open_detr)
RTDETR = Family('rtdetr', 'detect', STRETCHED, _recognises_rtdetr, _open_rtdetr, _feed_input_size)
RFDETR = Family('rfdetr', 'detect', IMAGENET, _recognises_rfdetr, _open_rfdetr)
