"""DETR, RT-DETR, RT-DETRv2, D-FINE, RF-DETR: a fixed number of queries, without NMS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.boxes import BoxesHead, box_outputs
from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    STRETCH_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    corners,
    image_output,
    is_scores,
    sigmoid,
)
from trt_ros.families.guards import HasInput, by_name_only
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Out
from trt_ros.families.yolov8 import cell_counts
from trt_ros.families.yolov10 import EndToEndHead
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes
from trt_ros.vision.scores import passing
from trt_ros.vision.thresholds import Thresholds

SIZES_INPUT = 'orig_target_sizes'


def sigmoid_without_last(logits: np.ndarray) -> np.ndarray:
    """Compute (Q, C) scores of (Q, C + 1) logits: RF-DETR trained on C classes."""
    return sigmoid(logits[:, :-1])


def softmax_without_last(logits: np.ndarray) -> np.ndarray:
    """
    Compute (Q, C) scores of DETR's (Q, C + 1) logits, the last of which is "no object".

    Only the best class of a query (the first among equals) has a score; the others are NaN, which
    passes no threshold.
    """
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = (powers / powers.sum(axis=1, keepdims=True))[:, :-1]
    best = scores.argmax(axis=1)[:, None]
    only: np.ndarray = np.full_like(scores, np.nan)
    np.put_along_axis(only, best, np.take_along_axis(scores, best, axis=1), axis=1)
    return only


def identity(scores: np.ndarray) -> np.ndarray:
    """Return scores unchanged."""
    return scores


@dataclass(frozen=True)
class DetrHead(Head[Detections]):
    """
    A decoder of logits (1, Q, C) and boxes (1, Q, 4): cx, cy, w, h, 0 to 1 of the input.

    The Q best of the Q * C scores are used, so one query may be detected as two classes. Source:
    `RTDETRPostProcessor` of RT-DETR; `post_process_object_detection` of transformers'
    RTDetrImageProcessor and DetrImageProcessor.

    :param logits_name: output of the logits; with `boxes_name` '' the output that holds the boxes
        in front of the scores.
    """

    logits_name: str
    boxes_name: str
    class_count: int | None
    to_scores: Callable[[np.ndarray], np.ndarray] = sigmoid

    @property
    def counts_background(self) -> bool:
        """Whether class 0 is the background where it is named first: in COCO's numbers."""
        return True

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        return self.choose(outputs, letterbox, thresholds)[1]

    def choose(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> tuple[np.ndarray, Detections]:
        """Decode the outputs for one image; also return the (K,) queries of the detections."""
        logits = image_output(outputs, self.logits_name)
        if self.boxes_name:
            boxes = image_output(outputs, self.boxes_name)
        else:
            boxes, logits = logits[:, :4], logits[:, 4:]
        if len(logits) != len(boxes) or boxes.shape[1] != 4 or not logits.size:
            raise TensorMismatchError(
                f'Boxes {boxes.shape} and scores {logits.shape} do not match: expected one row '
                'per query.'
            )
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            logits = logits.astype(np.float32)
            scores = self.to_scores(logits)
            passes = passing(scores, thresholds.score) & np.isfinite(logits[:, : scores.shape[1]])
            queries, labels = np.nonzero(passes)
            xyxy = corners(boxes[queries].astype(np.float32))
            best, found = choose_boxes(
                xyxy * np.array(letterbox.input_hw[::-1] * 2, np.float32),
                scores[queries, labels],
                labels,
                letterbox,
                thresholds,
                uses_nms=False,
                limit=len(logits),
            )
        return queries[best], found


class Queries(NamedTuple):
    """The outputs of a DETR: one row per query."""

    logits: TensorSpec
    boxes: TensorSpec

    @property
    def channels(self) -> int:
        """Number of logits per query; -1 where dynamic."""
        return self.logits.shape[2]


def raw_outputs(network: NetworkDescription) -> Queries | None:
    """Find logits and boxes by name; further outputs (hidden states) are ignored."""
    found = []
    for ending in ('logits', 'boxes'):
        named = [spec for spec in network.outputs if spec.name.endswith(ending)]
        if len(named) != 1 or not is_scores(named[0]):
            return None
        found.append(named[0])
    logits, boxes = found
    return Queries(logits, boxes) if boxes.shape[2] in (4, -1) else None


def rf_outputs(network: NetworkDescription) -> Queries | None:
    """Find logits and boxes by the names that RF-DETR's exporter writes."""
    named = {spec.name: spec for spec in network.outputs if is_scores(spec)}
    if 'dets' in named and 'labels' in named and named['dets'].shape[2] == 4:
        return Queries(named['labels'], named['dets'])
    return None


def ultralytics_rows(network: NetworkDescription) -> Literal['', 'scores', 'decoded']:
    """
    Return the layout of an RT-DETR exported by Ultralytics; '' for other networks.

    It has one row per query: cx, cy, w, h, 0 to 1 of the input, then C scores ('scores') or, since
    version 8.4, the score and the class ('decoded').
    """
    if network.metadata.get('task') != 'detect' or len(network.outputs) != 1:
        return ''
    spec, classes = network.only_output, network.class_count
    if not is_scores(spec) or network.metadata.get('end2end') == 'True':
        return ''
    if network.is_ultralytics_rtdetr:
        is_decoded = spec.shape[2] == 6 and ('head' in network.metadata or classes != 2)
        return 'decoded' if is_decoded else 'scores'
    # Other networks of Ultralytics have one box per column, or decoded boxes.
    if (
        classes is not None
        and spec.shape[2] == 4 + classes
        and (spec.shape[1] not in cell_counts(network))
    ):
        return 'scores'
    return ''


def _open_detr(network: NetworkDescription) -> Head:
    return _open_raw(network, raw_outputs(network), softmax_without_last, 1)


def _open_rtdetr(network: NetworkDescription) -> Head:
    parts = box_outputs(network)
    if parts is not None and parts.labels is not None:
        return BoxesHead(parts, None, suppress=False)
    if len(network.outputs) == 1 and is_scores(network.only_output):
        spec = network.only_output
        if ultralytics_rows(network) == 'decoded':
            return EndToEndHead(spec.name, None, is_rtdetr=True)
        return DetrHead(spec.name, '', spec.shape[2] - 4 if spec.shape[2] > 4 else None, identity)
    return _open_raw(network, raw_outputs(network), sigmoid, 0)


def open_rfdetr(network: NetworkDescription) -> DetrHead:
    """
    Open the head of an RF-DETR.

    Trained on C classes it has C + 1 logits; the 91 logits of COCO are all classes, with gaps.
    Only the number of named classes tells them apart. Source: `decode_detections` of the package
    rfdetr.
    """
    outputs = rf_outputs(network) or raw_outputs(network)
    if outputs and network.class_count and outputs.channels == 1 + network.class_count:
        return _open_raw(network, outputs, sigmoid_without_last, 1)
    return _open_raw(network, outputs, sigmoid, 0)


def _open_raw(
    network: NetworkDescription,
    outputs: Queries | None,
    to_scores: Callable[[np.ndarray], np.ndarray],
    background_count: int,
) -> DetrHead:
    if outputs is None:
        raise TensorMismatchError(
            'The outputs are not those of a DETR: expected logits (1, queries, classes) and '
            'pred_boxes (1, queries, 4).',
            cause=f'Seen: {network}.',
            remedy='Export both under these names.',
        )
    classes = outputs.channels - background_count
    return DetrHead(
        outputs.logits.name, outputs.boxes.name, classes if classes > 0 else None, to_scores
    )


def sizes_input(network: NetworkDescription) -> TensorSpec | None:
    """Return the input for the image sizes, which deployed RT-DETR models have; or None."""
    for spec in network.inputs:
        if spec.name == SIZES_INPUT and len(spec.shape) == 2:
            return spec
    return None


def _feed_input_size(network: NetworkDescription) -> Mapping[str, np.ndarray]:
    """Return the input size as image size, so that boxes are in input pixels."""
    spec = sizes_input(network)
    if spec is None or spec.dtype == 'bfloat16':
        return {}
    height, width = network.input_hw
    return {spec.name: np.array([[width, height]], spec.dtype)}


LOGITS, BOXES = ('.*logits',), ('.*boxes',)
_SIGMOID = BoxLayout(
    (Out('B N V', 'scores:C', LOGITS), Out('B N V', 'box:4', BOXES)),
    coding=Coding('centers', is_normalized=True),
    activation='sigmoid',
    select='each',
    uses_nms=False,
    is_limited=True,
    counts_background=True,
    ignores_others=True,
    known={'C': (80,)},
)
#: Exported by Ultralytics: one output, with scores.
_ROWS = replace(
    _SIGMOID,
    outputs=(Out('B N V', 'box:4 scores:C'),),
    activation='none',
    ignores_others=False,
)


def _has_decoded_rows(network: NetworkDescription) -> str | Literal[False]:
    return ultralytics_rows(network) == 'decoded' and 'RT-DETR in the metadata'


def _has_rows(network: NetworkDescription) -> str | Literal[False] | None:
    if ultralytics_rows(network) != 'scores':
        return False
    return 'RT-DETR in the metadata' if network.is_ultralytics_rtdetr else None


DETR = Family(
    'detr',
    'detect',
    IMAGENET_PREPROCESS,
    _open_detr,
    layouts=(
        replace(
            _SIGMOID,
            outputs=(Out('B N V', 'scores:C none:1', LOGITS), _SIGMOID.outputs[1]),
            activation='softmax',
            select='best',
            known={'C': (91,)},
        ),
    ),
)
RTDETR = Family(
    'rtdetr',
    'detect',
    STRETCH_PREPROCESS,
    _open_rtdetr,
    _feed_input_size,
    layouts=(
        _SIGMOID,
        BoxLayout(
            (
                Out('B N', 'label:1', is_float=None),
                Out('B N V', 'box:4'),
                Out('B N', 'scores:1'),
            ),
            coding=CORNERS,
            uses_nms=False,
            evidence=(HasInput(SIZES_INPUT),),
        ),
        replace(
            _ROWS,
            outputs=(Out('B N V', 'box:4 scores:1 label:1'),),
            is_limited=False,
            counts_background=False,
            guards=(_has_decoded_rows,),
        ),
        replace(_ROWS, evidence=(_has_rows,)),
    ),
    output_names=('output0',),
)
#: Trained on C classes it has C + 1 logits; the 91 logits of COCO are all classes, with gaps. Only
#: the number of named classes tells them apart. Source: `decode_detections` of the package rfdetr.
RFDETR = Family(
    'rfdetr',
    'detect',
    IMAGENET_PREPROCESS,
    open_rfdetr,
    layouts=tuple(
        replace(
            _SIGMOID,
            outputs=(Out('B N V', scores, names), Out('B N V', 'box:4', boxes)),
            needs_names='none' in scores,
            evidence=() if names != LOGITS else (by_name_only,),
        )
        for scores in ('scores:C none:1', 'scores:C')
        for names, boxes in ((('labels',), ('dets',)), (LOGITS, BOXES))
    ),
)
