"""Detectors whose outputs are separate tensors of boxes, scores and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    STRETCH_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    image_output,
    is_float,
)
from trt_ros.families.guards import by_name_only
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Out, Rows
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.scores import nonzero, passing
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class BoxOutputs:
    """
    The roles of a detector's outputs.

    :param boxes: (1, N, 4); or (N, 4), where no output has a batch axis.
    :param scores: (1, N, C), or (1, N) where each box has one class.
    :param labels: (1, N) class indices; None with (1, N, C) scores, or for a single class.
    :param count: (1, 1) or (1,): number of valid boxes among the N; None: all.
    """

    boxes: TensorSpec
    scores: TensorSpec
    labels: TensorSpec | None = None
    count: TensorSpec | None = None

    @property
    def batched(self) -> bool:
        """Whether the outputs have a batch axis."""
        return len(self.boxes.shape) == 3

    @property
    def score_axes(self) -> int:
        """1 for one score per box, 2 for one score per box and class."""
        return len(self.scores.shape) - self.batched

    @property
    def class_count(self) -> int | None:
        """Number of classes; None: unknown."""
        classes = self.scores.shape[-1] if self.score_axes == 2 else -1
        return classes if classes > 0 else None

    def __str__(self) -> str:
        specs = (self.boxes, self.scores, self.labels, self.count)
        return ', '.join(str(spec) for spec in specs if spec is not None)


@dataclass(frozen=True)
class BoxesHead(Head[Detections]):
    """
    A decoder of boxes x1, y1, x2, y2 and their scores; each score that passes is a candidate.

    :param normalized: coordinates are 0 to 1 of the input; False: input pixels.
    :param has_background: column 0 of the scores is the background; class 0 is the next one.
    :param suppress: run NMS; False where the network has done so.
    :param classes_first: the scores are (1, C, N).
    :param counts_background: see `Head`.
    """

    parts: BoxOutputs
    class_count: int | None
    normalized: bool = False
    has_background: bool = False
    suppress: bool = True
    classes_first: bool = False
    counts_background: bool = False

    @property
    def takes_batches(self) -> bool:
        """Whether each output has an axis for the images of a batch."""
        return self.parts.batched

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        parts, batched = self.parts, self.parts.batched
        boxes = image_output(outputs, parts.boxes.name, 2, batched=batched)
        scores = image_output(outputs, parts.scores.name, parts.score_axes, batched=batched)
        scores = scores.T if self.classes_first else scores
        labels = None
        if parts.labels is not None:
            labels = image_output(outputs, parts.labels.name, 1, batched=batched)
        if (
            boxes.shape[1] != 4
            or len(boxes) != len(scores)
            or (labels is not None and len(labels) != len(scores))
        ):
            raise TensorMismatchError(
                f'Boxes {boxes.shape} and scores {scores.shape} do not match.',
                cause=f'Expected {parts}.',
            )
        if parts.count is not None:
            count = np.ravel(outputs[parts.count.name])[0]
            count = int(np.nan_to_num(count, nan=0).clip(0, len(boxes)))  # May be a float.
            boxes, scores = boxes[:count], scores[:count]
            labels = None if labels is None else labels[:count]
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            if labels is not None:  # -1 fills unused places; beyond int32 is no class.
                used = (labels >= 0) & (labels < 1 << 31)
                boxes, scores, labels = boxes[used], scores[used], labels[used]
            scores = scores.astype(np.float32, copy=False)
            passes = passing(scores, thresholds.score, is_padded=labels is not None)
            if scores.ndim == 2:
                rows, found = nonzero(passes[:, self.has_background :])
                values = scores[rows, found + self.has_background]
            else:
                rows = np.flatnonzero(passes)
                found = np.zeros(len(rows), np.int32) if labels is None else labels[rows]
                values = scores[rows]
            xyxy = boxes[rows].astype(np.float32)
            if self.normalized:
                xyxy = xyxy * np.array(letterbox.input_hw[::-1] * 2, np.float32)
            return to_detections(
                xyxy,
                values,
                found,
                letterbox,
                thresholds,
                uses_nms=self.suppress,
            )


def box_outputs(network: NetworkDescription) -> BoxOutputs | None:
    """
    Identify boxes, scores, labels and the count by shape and dtype, and by name where these are
    ambiguous. None when an output is none of these, or boxes or scores are missing.
    """
    boxes = _only(
        [
            spec
            for spec in network.outputs
            if is_float(spec) and spec.shape[-1:] == (4,) and len(spec.shape) in (2, 3)
        ],
        'box',
    )
    if boxes is None:
        return None
    others = [spec for spec in network.outputs if spec is not boxes]
    axes = len(boxes.shape)
    batched = axes == 3
    if batched and boxes.shape[0] not in (1, -1):
        return None
    count = _only(
        [
            spec
            for spec in others
            if spec.shape in ((1, 1), (-1, 1), (1,), ()) and not is_float(spec) and batched
        ],
        'num',
    )
    others = [spec for spec in others if spec is not count]
    labels = None
    if len(others) == 2:
        labels = _only([spec for spec in others if not is_float(spec)], '') or _only(
            [spec for spec in others if 'class' in spec.name.lower() or 'label' in spec.name], ''
        )
        if labels is None or len(labels.shape) != axes - 1:
            return None
        others = [spec for spec in others if spec is not labels]
    if len(others) != 1 or not is_float(others[0]):
        return None
    scores = others[0]
    allowed = (axes - 1,) if labels is not None else (axes - 1, axes)
    if len(scores.shape) not in allowed:
        return None
    sizes = {spec.shape[batched] for spec in (boxes, scores, labels) if spec is not None} - {-1}
    return BoxOutputs(boxes, scores, labels, count) if len(sizes) <= 1 else None


def _only(specs: list[TensorSpec], word: str) -> TensorSpec | None:
    """Return the only one; among several, the only one with `word` in its name."""
    if len(specs) > 1:
        specs = [spec for spec in specs if word and word in spec.name.lower()]
    return specs[0] if len(specs) == 1 else None


def open_parts(network: NetworkDescription) -> BoxOutputs:
    """
    Identify boxes and scores.

    :raises TensorMismatchError: when the outputs are not boxes and scores.
    """
    parts = box_outputs(network)
    if parts is None:
        raise TensorMismatchError(
            'The outputs are not boxes and scores: expected (1, N, 4) with (1, N, classes), or '
            'with (1, N) and labels (1, N).',
            cause=f'Seen: {network}.',
            remedy='Export without further outputs, or choose another decoder.',
        )
    return parts


def _open(network: NetworkDescription, *, normalized: bool) -> BoxesHead:
    parts = open_parts(network)
    one_class = parts.score_axes == 1 and parts.labels is None
    return BoxesHead(
        parts,
        1 if one_class else parts.class_count,
        normalized,
        suppress=parts.labels is None,
        counts_background=True,  # Torchvision does.
    )


def finished(
    *further: Out, coding: Coding = CORNERS, batch: str = 'B ', **fields: Any
) -> BoxLayout:
    """Return the layout of boxes, a score each, and others."""
    outs = (Out(batch + 'N V', 'box:4'), Out(batch + 'N', 'scores:1'), *further)
    return BoxLayout(outs, coding=coding, **fields)


def labels(batch: str = 'B ') -> Out:
    """Return the output of a class per box."""
    return Out(batch + 'N', 'label:1', is_float=None)


def is_plain(network: NetworkDescription) -> Literal[False] | None:
    """Refuse boxes and scores with evidence for another family: in their names, or an input."""
    inputs = {spec.name for spec in network.inputs}
    names = [spec.name for spec in network.outputs if is_float(spec) and len(spec.shape) == 3]
    is_another = inputs & {'orig_target_sizes', 'scale_factor'} or any(
        word in name for name in names for word in ('logits', 'label')
    )
    return False if is_another else None


COUNT = Out('1', 'count:1', is_float=False)


def _variants(coding: Coding, rows: Rows) -> tuple[BoxLayout, ...]:
    """Return the layouts with and without a batch axis, classes, labels and a count."""
    found = []
    for batch in ('B ', ''):
        for count in ((), (COUNT,)) if batch else ((),):
            is_chosen = not count and (batch or not coding.is_normalized)
            fields: Any = {
                'coding': coding,
                'counts_background': True,
                'any_rows': True,
                'evidence': (is_plain if is_chosen else by_name_only,),
            }
            outs = (Out(batch + 'N V', 'box:4'), Out(batch + 'N V', 'scores:C'), *count)
            found += [
                finished(labels(batch), *count, batch=batch, uses_nms=False, **fields),
                BoxLayout(outs, rows, select='each', **fields),
                finished(*count, batch=batch, **fields),
            ]
    return tuple(found)


BOXES = Family(
    'boxes',
    'detect',
    STRETCH_PREPROCESS,
    lambda network: _open(network, normalized=False),
    layouts=_variants(CORNERS, Rows(((8, 16, 32),))),
)
BOXES_NORMALIZED = Family(
    'boxes_normalised',
    'detect',
    STRETCH_PREPROCESS,
    lambda network: _open(network, normalized=True),
    layouts=_variants(Coding('corners', is_normalized=True), Rows()),
)
