"""UFLD (Ultra Fast Lane Detection): the column of each lane at fixed rows of the image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    Family,
    Head,
    has_sizes,
    image_output,
)
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.results.boxes import Detections
from trt_ros.results.poses import Poses
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range, passing
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

#: Rows of the input, of 288, that lanes are found at, by their number: TuSimple and CULane.
ROWS: Mapping[int, tuple[int, ...]] = {
    56: tuple(range(64, 288, 4)),
    18: (121, 131, 141, 150, 160, 170, 180, 189, 199, 209, 219, 228, 238, 248, 258, 267, 277, 287),
}
ROWS_HEIGHT = 288
MIN_POINTS = 3  # Of a lane; as in the demonstration of the authors.


@dataclass(frozen=True)
class UfldHead(Head[Poses]):
    """
    A decoder of (1, B + 1, R, L) logits: B columns and "no lane", at R rows, of L lanes.

    A keypoint of a lane is the mean column at a row, weighted by the softmax over the columns, and
    its visibility is 1 minus the probability of "no lane"; 0 where that is the best. The score of
    a lane is the mean visibility of its visible points, its class is its place among the lanes,
    from left to right, and its box surrounds its visible points. Source: Qin et al.,
    arXiv:2004.11757, and the evaluation of its authors.

    :param row_count: R.
    :param class_count: L; None: unknown.
    """

    output_name: str
    row_count: int
    class_count: int | None

    @property
    def keypoint_count(self) -> int:
        """Number of keypoints per lane, one per row."""
        return self.row_count

    def __call__(
        self,
        outputs: Mapping[str, np.ndarray],
        letterbox: Letterbox,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> Poses:
        """
        Decode the lanes, best score first; `thresholds.iou` has no effect.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        logits = as_float32(image_output(outputs, self.output_name, axes=3))
        bins, rows, lanes = logits.shape
        if bins < 3 or rows != self.row_count or self.class_count not in (None, lanes):
            raise TensorMismatchError(
                f'The output {self.output_name!r} has the shape {logits.shape}, expected '
                f'(columns + 1, {self.row_count}, {self.class_count or "lanes"}).'
            )
        keypoints = _keypoints(logits, letterbox)
        keypoints[np.count_nonzero(keypoints[..., 2], axis=1) < MIN_POINTS, :, 2] = 0
        return lanes_as_poses(keypoints, letterbox, thresholds)


UNKNOWN_ROWS = (
    'Run the node `tensor`, which publishes its undecoded outputs: the rows of other networks are '
    'not in their files.'
)


def lanes_as_poses(
    keypoints: np.ndarray,
    letterbox: Letterbox,
    thresholds: Thresholds,
    labels: np.ndarray | None = None,
) -> Poses:
    """
    Return lanes with visible points, best score first.

    :param keypoints: (L, R, 3) float32: x, y in image pixels and visibility.
    :param labels: (L,) int32, classes of the lanes; default their places.
    """
    if labels is None:
        labels = np.arange(len(keypoints), dtype=np.int32)
    visible = keypoints[..., 2] > 0
    counts = visible.sum(axis=1)
    scores = keypoints[..., 2].sum(axis=1) / np.maximum(counts, 1)
    passes = (counts > 0) & passing(scores, thresholds.score)
    if thresholds.chooses_classes:
        passes &= scores >= thresholds.min_scores(labels)
    found = np.flatnonzero(passes)
    best = found[np.argsort(-scores[found], kind='stable')][: thresholds.max_detections]
    boxes = np.array(
        [_box(keypoints[lane, visible[lane], :2]) for lane in best], np.float32
    ).reshape(-1, 4)
    limits = np.array(letterbox.image_wh * 2, np.float32)
    return Poses(
        Detections(np.clip(boxes, 0, limits), check_range(scores[best]), labels[best]),
        keypoints[best],
    )


def _keypoints(logits: np.ndarray, letterbox: Letterbox) -> np.ndarray:
    """Compute x, y and visibility of each lane and row: (L, R, 3) float32, in image pixels."""
    columns = len(logits) - 1
    height, width = letterbox.input_hw
    is_finite = np.isfinite(logits).all(axis=0)
    logits = np.where(is_finite, logits, 0)
    powers = np.exp(logits - logits.max(axis=0))
    # The columns divide the width into B - 1 parts; the last one lies beyond it.
    position = np.tensordot(np.arange(columns) + 0.5, powers[:-1], 1) / powers[:-1].sum(axis=0)
    x = (position * (width / (columns - 1))).T
    anchors = np.array(ROWS[logits.shape[1]]) * (height / ROWS_HEIGHT)
    y = np.broadcast_to(anchors, x.shape)
    is_lane = is_finite & (logits.argmax(axis=0) < columns)
    visibility = np.where(is_lane, 1 - powers[-1] / powers.sum(axis=0), 0).T
    points = letterbox.points_to_image(np.stack([x, y], axis=-1).reshape(-1, 2))
    return np.concatenate(
        [points.reshape(*x.shape, 2), visibility[..., None]], axis=-1, dtype=np.float32
    )


def _box(points: np.ndarray) -> np.ndarray:
    return np.concatenate([points.min(axis=0), points.max(axis=0)])


def _head(reading: Reading) -> UfldHead:
    (part,) = reading.parts
    return UfldHead(part.spec.name, *part.spec.shape[2:])


UFLD = Family(
    'ufld',
    'pose',
    IMAGENET_PREPROCESS,
    layouts=(
        Layout(
            (Out('B G 56|18 1|2|3|4|5|6|7|8|9', 'lanes:G'),),
            ignores_names=True,
            guards=(has_sizes,),
        ),
    ),
    exporter='none',
    head=_head,
    remedy=UNKNOWN_ROWS,
    networks='UFLD: lanes as lines of keypoints',
)
