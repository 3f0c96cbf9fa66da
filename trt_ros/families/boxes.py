"""Detectors whose outputs are separate tensors of boxes, scores and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    STRETCH_PREPROCESS,
    Family,
    NetworkDescription,
    is_float,
)
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Out, Rows
from trt_ros.tensors import TensorSpec


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


REMEDY = 'Export without further outputs, or choose another decoder.'


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
            remedy=REMEDY,
        )
    return parts


def finished(
    *further: Out, coding: Coding = CORNERS, batch: str = 'B ', **fields: Any
) -> BoxLayout:
    """Return the layout of boxes, a score each, and others."""
    outs = (Out(batch + 'N V', 'box:4'), Out(batch + 'N', 'scores:1'), *further)
    return BoxLayout(outs, coding=coding, select='each', **fields)


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
                'evidence': (is_plain,),
                'by_name': not is_chosen,
            }
            outs = (Out(batch + 'N V', 'box:4'), Out(batch + 'N V', 'scores:C'), *count)
            found += [
                finished(labels(batch), *count, batch=batch, uses_nms=False, **fields),
                BoxLayout(outs, rows, select='each', **fields),
                finished(*count, batch=batch, **fields),
            ]
    return tuple(found)


BOXES: Family[Any] = Family(
    'boxes',
    'detect',
    STRETCH_PREPROCESS,
    layouts=_variants(CORNERS, Rows(((8, 16, 32),))),
    remedy=REMEDY,
    networks='x1, y1, x2, y2 in input pixels, and scores: torchvision, YOLO-NAS',
    export='`torch.onnx.export`',
)
BOXES_NORMALIZED: Family[Any] = Family(
    'boxes_normalised',
    'detect',
    STRETCH_PREPROCESS,
    layouts=_variants(Coding('corners', is_normalized=True), Rows()),
    remedy=REMEDY,
    networks='x1, y1, x2, y2 in 0 to 1 of the input, and scores',
    export='`torch.onnx.export`',
)
