"""UFLD (Ultra Fast Lane Detection): the column of each lane at fixed rows of the image."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import IMAGENET_PREPROCESS, Family, has_sizes, image_output
from trt_ros.families.lanes import UNKNOWN_ROWS, LaneHead
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.scores import softmax

#: Rows of the input, of 288, that lanes are found at, by their number: TuSimple and CULane.
ROWS: Mapping[int, tuple[int, ...]] = {
    56: tuple(range(64, 288, 4)),
    18: (121, 131, 141, 150, 160, 170, 180, 189, 199, 209, 219, 228, 238, 248, 258, 267, 277, 287),
}
ROWS_HEIGHT = 288
MIN_POINTS = 3  # Of a lane; as in the demonstration of the authors.


@dataclass(frozen=True)
class UfldHead(LaneHead):
    """
    A decoder of (1, B + 1, R, L) logits: B columns and "no lane", at R rows, of L lanes.

    A keypoint of a lane is the mean column at a row, weighted by the softmax over the columns, and
    its visibility is 1 minus the probability of "no lane"; 0 where that is the best. Source: Qin
    et al., arXiv:2004.11757, and the evaluation of its authors.

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

    def lanes(
        self, outputs: Mapping[str, np.ndarray], input_hw: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the points of all lanes, see `LaneHead`."""
        logits = as_float32(image_output(outputs, self.output_name, axes=3))
        bins, rows, lanes = logits.shape
        if bins < 3 or rows != self.row_count or self.class_count not in (None, lanes):
            raise TensorMismatchError(
                f'The output {self.output_name!r} has the shape {logits.shape}, expected '
                f'(columns + 1, {self.row_count}, {self.class_count or "lanes"}).'
            )
        return _keypoints(logits, input_hw), np.full(lanes, MIN_POINTS)


def anchors_of(rows: int, height: int) -> np.ndarray:
    """Return the places of the rows of a network in its input: (rows,)."""
    return np.array(ROWS[rows]) * (height / ROWS_HEIGHT)


def _keypoints(logits: np.ndarray, input_hw: tuple[int, int]) -> np.ndarray:
    """Compute x, y and visibility of each lane and row: (L, R, 3) float32."""
    columns = len(logits) - 1
    height, width = input_hw
    shares = softmax(logits, axis=0)
    with np.errstate(invalid='ignore'):
        # The columns divide the width into B - 1 parts; the last one lies beyond it.
        position = np.tensordot(np.arange(columns) + 0.5, shares[:-1], 1) / shares[:-1].sum(axis=0)
    x = position * (width / (columns - 1))
    y = np.broadcast_to(anchors_of(len(x), height)[:, None], x.shape)
    is_lane = logits.argmax(axis=0) < columns
    visibility = np.where(is_lane, np.nan_to_num(1 - shares[-1]), 0)
    return np.stack([x, y, visibility], axis=-1).astype(np.float32).transpose(1, 0, 2)


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
