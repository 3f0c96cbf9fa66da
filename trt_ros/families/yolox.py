"""YOLOX: raw heads over strides 8, 16 and 32, as YOLOX's exporter writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    Family,
    Head,
    NetworkDescription,
    image_output,
    is_scores,
)
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.results.boxes import Detections
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.scores import check_range, passing
from trt_ros.vision.thresholds import Thresholds

STRIDES = (8, 16, 32)

# Above exp(12) strides a box is larger than any image, unless it is in pixels already. Of decoded
# boxes, far more than this share are.
MAX_LOG_SIZE, MAX_SHARE = 12.0, 0.05


@dataclass(frozen=True)
class YoloxHead(Head[Detections]):
    """
    A decoder of (1, N, 5 + C): x, y, w, h, objectness, C class scores; scores are 0 to 1.

    The N anchors are the cells of the grids of stride s = 8, 16 and 32, each row by row. For the
    cell in column i and row j the center is ((x + i) s, (y + j) s) and the size (exp(w) s,
    exp(h) s) in input pixels; the label is the best class (the first among equals), the score
    is objectness times its score. Anchors with a NaN among their scores are dropped.
    """

    output_name: str
    class_count: int | None
    strides: tuple[int, ...] = STRIDES

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """
        Decode the outputs for one image; see `Head`.

        :raises TensorMismatchError: also when the boxes are decoded already.
        """
        head = image_output(outputs, self.output_name)
        cells = grid(letterbox.input_hw, self.strides)
        if len(head) != len(cells) or head.shape[1] < 6:
            raise _mismatch(f'(1, {head.shape[0]}, {head.shape[1]})', len(cells))
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            head = head.astype(np.float32, copy=False)
            if np.mean(head[:, 2:4] > MAX_LOG_SIZE) > MAX_SHARE:
                raise TensorMismatchError(
                    f'The output {self.output_name!r} has decoded boxes, not those of YOLOX.',
                    cause=f'Widths and heights are up to {head[:, 2:4].max():.0f}, expected '
                    'logarithms.',
                    remedy='Export YOLOX without --decode_in_inference; or set `decoder` to '
                    'yolov5, and for YOLOX also `resize` to letterbox_topleft, `channel_order` to '
                    'bgr and `scale` to 1.0.',
                )
            # Without the check, the product of two logits below 0 looks like a score.
            scores = check_range(head[:, 4]) * check_range(head[:, 5:].max(axis=1))
            keep = np.flatnonzero(passing(scores, thresholds.score))
            head, cell, stride = head[keep], cells[keep, :2], cells[keep, 2:]
            center = (head[:, :2] + cell) * stride
            half = np.exp(head[:, 2:4]) * stride / 2
            return to_detections(
                np.hstack([center - half, center + half]),
                scores[keep],
                head[:, 5:].argmax(axis=1),
                letterbox,
                thresholds,
            )


def open_head(network: NetworkDescription) -> YoloxHead:
    """Open the head of a YOLOX."""
    spec, expected = network.only_output, network.anchor_count(STRIDES)
    if not is_scores(spec) or spec.shape[1] not in (-1, expected) or 0 < spec.shape[2] < 6:
        raise _mismatch(str(spec), expected)
    channels = spec.shape[2]
    return YoloxHead(spec.name, channels - 5 if channels > 0 else None)


@lru_cache(maxsize=8)
def grid(input_hw: tuple[int, int], strides: tuple[int, ...]) -> np.ndarray:
    """Compute column, row and stride of each anchor's cell: (N, 3) float32."""
    grids = []
    for stride in strides:
        rows, cols = np.mgrid[: input_hw[0] // stride, : input_hw[1] // stride]
        grids.append(np.stack([cols, rows, np.full_like(rows, stride)], axis=-1).reshape(-1, 3))
    cells = np.concatenate(grids, dtype=np.float32)
    cells.setflags(write=False)  # Shared by all callers.
    return cells


def _mismatch(seen: str, anchors: int) -> TensorMismatchError:
    return TensorMismatchError(
        f'Not a YOLOX head: expected (1, {anchors}, 5 + classes), got {seen}.',
        cause=f'Strides 8, 16 and 32 have {anchors} cells in this input.',
        remedy="Export with YOLOX's tools/export_onnx.py, without --decode_in_inference, or "
        'choose another decoder.',
    )


YOLOX = Family(
    'yolox',
    'detect',
    {'resize': 'letterbox_topleft', 'pad_value': 114, 'channel_order': 'bgr', 'scale': 1.0},
    open_head,
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 objectness:1 scores:C'),),
            Rows(((8, 16, 32),)),
            Coding('offsets'),
        ),
    ),
    exporter='none',
    output_names=('output',),
)
