"""CenterNet: a heatmap of the centers of objects, with their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import math

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    Family,
    Head,
    NetworkDescription,
    image_output,
    is_float,
    sigmoid,
)
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.scores import passing
from trt_ros.vision.thresholds import Thresholds

STRIDE = 4


@dataclass(frozen=True)
class CenterNetHead(Head[Detections]):
    """
    A decoder of a heatmap (1, C, h, w), sizes (1, 2, h, w) and offsets (1, 2, h, w), in cells.

    A cell is an object if no neighbor (3 × 3) of its class is higher. Its center is the cell plus
    the offset, or plus half a cell without offsets. There is no NMS. Source: `ctdet_decode` of
    CenterNet (Zhou et al., arXiv:1904.07850).

    The heatmap is logits, as the repository's network returns them, where any value is below 0,
    else probabilities: the logit of a cell without an object is far below 0.

    :param offsets_name: '' without offsets.
    """

    heatmap_name: str
    sizes_name: str
    offsets_name: str
    class_count: int | None

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        heatmap = as_float32(image_output(outputs, self.heatmap_name, 3))
        names = [name for name in (self.sizes_name, self.offsets_name) if name]
        pairs = [image_output(outputs, name, 3) for name in names]
        if any(pair.shape != (2, *heatmap.shape[1:]) for pair in pairs) or not heatmap.size:
            shapes = [each.shape for each in (heatmap, *pairs)]
            raise _mismatch(', '.join(map(str, shapes)))
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            labels, rows, columns, scores = _peaks(heatmap, thresholds.score)
            size, *offset = (pair[:, rows, columns].T.astype(np.float32) for pair in pairs)
            cells = np.stack([columns, rows], axis=1).astype(np.float32)
            center = cells + (offset[0] if offset else np.float32(0.5))
            ratio = np.tile(np.array(letterbox.input_hw[::-1]) / heatmap.shape[:0:-1], 2).astype(
                np.float32
            )
            return to_detections(
                np.hstack([center - size / 2, center + size / 2]) * ratio,
                scores,
                labels,
                letterbox,
                thresholds,
                uses_nms=False,
            )


def _peaks(
    heatmap: np.ndarray, score_threshold: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """
    Return classes, rows, columns and scores of the cells that are as high as their neighbors.

    :param heatmap: (C, h, w) float32.
    """
    are_logits = bool(np.fmin.reduce(heatmap, axis=None) < 0)
    if are_logits:
        limit = _logit(score_threshold) - 1e-3  # Rounding is left to the comparison below.
        places = np.flatnonzero(heatmap >= limit)
    else:
        places = np.flatnonzero(passing(heatmap, score_threshold))
    labels, rows, columns = np.unravel_index(places, heatmap.shape)
    values = heatmap.ravel()[places]
    is_peak = np.ones(len(places), bool)
    for row_step in (-1, 0, 1):
        for column_step in (-1, 0, 1):
            beside = heatmap[
                labels,
                np.clip(rows + row_step, 0, heatmap.shape[1] - 1),
                np.clip(columns + column_step, 0, heatmap.shape[2] - 1),
            ]
            is_peak &= ~(beside > values)
    scores = sigmoid(values) if are_logits else values
    keep = np.flatnonzero(is_peak & (scores >= score_threshold) & np.isfinite(values))
    keep = keep[np.lexsort((labels[keep], columns[keep], rows[keep]))]  # Ties: by cell.
    return labels[keep], rows[keep], columns[keep], scores[keep]


def _logit(score: float) -> float:
    """Return the value whose sigmoid is `score`, 0 to 1."""
    return math.log(score / (1 - score)) if 0 < score < 1 else math.inf * (score - 0.5)


@dataclass(frozen=True)
class CenterNetOutputs:
    """The outputs of a CenterNet; `offsets` is None without offsets."""

    heatmap: TensorSpec
    sizes: TensorSpec
    offsets: TensorSpec | None

    def __str__(self) -> str:
        specs = (self.heatmap, self.sizes, self.offsets)
        return ', '.join(str(spec) for spec in specs if spec is not None)


def find_planes(network: NetworkDescription) -> CenterNetOutputs | None:
    """
    Find grids of stride 4: a heatmap and one or two pairs of planes; None: they are others.

    Names (`hm`, `heat..`, `wh`, `size`, `reg`, `off..`) count before the order: heatmap, sizes,
    offsets.
    """
    specs = network.outputs
    if len(specs) not in (2, 3) or 'task' in network.metadata:
        return None
    grid = tuple(size // STRIDE for size in network.input_hw)
    if not all(_is_grid(spec, grid) for spec in specs):
        return None
    pairs = [spec for spec in specs if spec.shape[1] == 2]
    wide = [spec for spec in specs if spec.shape[1] != 2]
    heatmap = wide[0] if wide else _named(pairs, ('hm', 'heat')) or specs[0]
    rest = [spec for spec in pairs if spec is not heatmap]
    if len(rest) != len(specs) - 1 or network.class_count not in (None, 0, heatmap.shape[1]):
        return None
    sizes = _named(rest, ('wh', 'size')) or rest[0]
    if len(rest) == 2 and _named(rest, ('reg', 'off')) is sizes:
        sizes = rest[1]
    others = [spec for spec in rest if spec is not sizes]
    return CenterNetOutputs(heatmap, sizes, others[0] if others else None)


def _is_grid(spec: TensorSpec, grid: tuple[int, ...]) -> bool:
    return (
        len(spec.shape) == 4
        and is_float(spec)
        and spec.shape[0] in (1, -1)
        and spec.shape[1] > 0
        and all(size in (-1, cells) for size, cells in zip(spec.shape[2:], grid))
    )


def _named(specs: list[TensorSpec], words: tuple[str, ...]) -> TensorSpec | None:
    """Return the only one with one of the words in its name."""
    found = [spec for spec in specs if any(word in spec.name.lower() for word in words)]
    return found[0] if len(found) == 1 else None


def _open(network: NetworkDescription) -> CenterNetHead:
    found = find_planes(network)
    if found is None:
        raise _mismatch(str(network))
    offsets = found.offsets.name if found.offsets else ''
    return CenterNetHead(found.heatmap.name, found.sizes.name, offsets, found.heatmap.shape[1])


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        'Not a CenterNet: expected a heatmap (1, classes, h, w), sizes (1, 2, h, w) and maybe '
        f'offsets (1, 2, h, w), of a quarter of the size of the input, got {seen}.',
        remedy='Export these as the only outputs, or choose another decoder.',
    )


#: Source: `COCO` and `BaseDetector.pre_process` of CenterNet, which take BGR.
CENTERNET = Family(
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
    _open,
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
)
