"""CenterNet: a heatmap of the centers of objects, with their sizes."""

from typing import Any

from trt_ros.families.family import Family
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.tensors import TensorSpec

STRIDE = 4


def _named(specs: list[TensorSpec], words: tuple[str, ...]) -> TensorSpec | None:
    found = [spec for spec in specs if any(word in spec.name.lower() for word in words)]
    return found[0] if len(found) == 1 else None


#: The heatmap is logits, as the repository's network returns them, where any value is below 0,
#: else probabilities: the logit of a cell without an object is far below 0. Source: `ctdet_decode`
#: of CenterNet (Zhou et al., arXiv:1904.07850); `COCO` and `BaseDetector.pre_process` (BGR).
CENTERNET: Family[Any] = Family(
    'centernet',
    'detect',
    {
        'resize': 'letterbox',
        'pad_value': 0,
        'channel_order': 'bgr',
        'scale': 1 / 255,
        'mean': (0.40789654, 0.44719302, 0.47026115),
        'std': (0.28863828, 0.27408164, 0.27809835),
    },
    layouts=tuple(
        BoxLayout(
            (Out('B V H W', 'scores:C'), Out('B V H W', 'sizes:2'), *offsets),
            Rows(((STRIDE,),), is_required=True),
            Coding('offsets', place=0.0 if offsets else 0.5, size='linear'),
            activation='maybe_sigmoid',
            select='each',
            is_peak=True,
            uses_nms=False,
            known={},
        )
        for offsets in ((Out('B V H W', 'box:2'),), ())
    ),
    exporter='none',
    words=('hm', 'heat'),
    networks='CenterNet',
    export='`torch.onnx.export` of its network with the outputs `hm`, `wh` and `reg`, as in its '
    '`Detector`',
)
