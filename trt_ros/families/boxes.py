"""Detectors whose outputs are separate tensors of boxes, scores and labels."""

from typing import Any, Literal

from trt_ros.families.family import (
    STRETCH_PREPROCESS,
    Family,
    NetworkDescription,
    is_float,
)
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Out, Rows

REMEDY = 'Export without further outputs, or choose another decoder.'


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


#: Parts of the names that exporters give boxes and scores.
BOX_WORDS = ('box', 'det', 'score', 'conf')
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
    words=BOX_WORDS,
    networks='x1, y1, x2, y2 in input pixels, and scores: torchvision, YOLO-NAS',
    export='`torch.onnx.export`',
)
BOXES_NORMALIZED: Family[Any] = Family(
    'boxes_normalised',
    'detect',
    STRETCH_PREPROCESS,
    layouts=_variants(Coding('corners', is_normalized=True), Rows()),
    remedy=REMEDY,
    words=BOX_WORDS,
    networks='x1, y1, x2, y2 in 0 to 1 of the input, and scores',
    export='`torch.onnx.export`',
)
