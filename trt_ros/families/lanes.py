"""Lanes as lines of keypoints: UFLD and UFLDv2 (Ultra Fast Lane Detection), and curves: LSTR."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from trt_ros.families.family import (
    BGR_OF_COCO,
    IMAGENET,
    IMAGENET_PREPROCESS,
    Family,
    has_sizes,
    trained,
)
from trt_ros.families.head import Head
from trt_ros.families.layout import Layout, Out
from trt_ros.results.boxes import Detections
from trt_ros.results.poses import Poses
from trt_ros.tensors import Arrays
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import as_float32, check_range, passing, softmax
from trt_ros.vision.thresholds import Thresholds

UNKNOWN_ROWS = (
    'Run the node `tensor`, which publishes its undecoded outputs: the rows of other networks are '
    'not in their files.'
)


#: (L, K, 3) float32, x, y in input pixels and visibility, and (L,) the least number of visible
#: points of a lane, at least 1.
Lanes = tuple[np.ndarray, np.ndarray]


class LaneHead(Head[Poses]):
    """
    Base class of the decoders of lanes.

    The score of a lane is the mean visibility of its visible points, its class is its place among
    the lanes, from left to right, unless there is only one, and its box surrounds its visible
    points.
    """

    @abstractmethod
    def lanes(self, values: Sequence[np.ndarray], input_hw: tuple[int, int]) -> Lanes:
        """
        Return the points of all lanes.

        :param values: the outputs of one image, in the order of the layout.
        """

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Poses:
        """Decode the lanes, best score first; `thresholds.iou` has no effect."""
        arrays = self.arrays(outputs, letterbox.input_hw)
        keypoints, least = self.lanes(list(map(as_float32, arrays)), letterbox.input_hw)
        keypoints[..., :2] = letterbox.points_to_image(keypoints[..., :2])
        keypoints[~np.isfinite(keypoints).all(axis=-1)] = 0  # Not visible.
        labels = np.arange(len(keypoints), dtype=np.int32) * (self.class_count != 1)
        visible = keypoints[..., 2] > 0
        counts = visible.sum(axis=1)
        scores = keypoints[..., 2].sum(axis=1) / np.maximum(counts, 1).astype(np.float32)
        passes = (counts >= least) & passing(scores, thresholds.score)
        if thresholds.chooses_classes:
            passes &= scores >= thresholds.min_scores(labels)
        found = np.flatnonzero(passes)
        best = found[np.argsort(-scores[found], kind='stable')][: thresholds.max_detections]
        points = [keypoints[lane, visible[lane], :2] for lane in best]
        boxes = [np.concatenate([each.min(axis=0), each.max(axis=0)]) for each in points]
        limits = np.array(letterbox.image_wh * 2, np.float32)
        xyxy = np.clip(np.reshape(np.array(boxes, np.float32), (-1, 4)), 0, limits)
        return Poses(Detections(xyxy, check_range(scores[best]), labels[best]), keypoints[best])


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
    """

    @property
    def keypoint_count(self) -> int:
        return self.reading.parts[0].spec.shape[2]

    @property
    def class_count(self) -> int:
        """Number of lanes."""
        return self.reading.parts[0].spec.shape[3]

    def lanes(self, values: Sequence[np.ndarray], input_hw: tuple[int, int]) -> Lanes:
        (logits,) = values
        return _keypoints(logits, input_hw), np.full(logits.shape[2], MIN_POINTS)


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
    head=UfldHead,
    remedy=UNKNOWN_ROWS,
    networks='UFLD: lanes as lines of keypoints',
)


LANES = 4
ROW_LANES, COLUMN_LANES = (1, 2), (0, 3)  # Beside the vehicle, and further to the sides.
LEAST_SHARES = (1 / 2, 1 / 4)  # Of the rows or columns, of which a lane has more points.
NEIGHBORS = 1  # Cells on either side of the best one, of which the mean is taken.


class LaneAnchors(NamedTuple):
    """
    Where a network finds lanes, in shares of the uncropped image.

    :param rows: (R,) heights of the points of the two middle lanes.
    :param column_count: number of columns, from 0 to 1, of the points of the outer lanes.
    :param crop_fraction: share of the height that the network sees.
    """

    rows: np.ndarray
    column_count: int
    crop_fraction: float

    def uncropped(self, input_hw: tuple[int, int]) -> tuple[tuple[int, int], int]:
        """Return width and height of the uncropped image in pixels of the input, and its top."""
        height = int(input_hw[0] / self.crop_fraction)
        return (input_hw[1], height), input_hw[0] - height

    def places(self, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return y of the rows and x of the columns in an uncropped image."""
        return self.rows * size[1], np.linspace(0, 1, self.column_count) * size[0]


#: By data set. Source: configurations of the authors' repository.
CULANE = LaneAnchors(np.linspace(0.42, 1, 72), 81, 0.6)
TUSIMPLE = LaneAnchors(np.linspace(160, 710, 56) / 720, 41, 0.8)


@dataclass(frozen=True)
class UfldV2Head(LaneHead):
    """
    A decoder of logits (1, G, R, 4) of the cell in each row, and (1, H, C, 4) in each column.

    (1, 2, R, 4) and (1, 2, C, 4) are the logits of whether a lane has a point there; the
    probability of it is the visibility of the keypoint, 0 where it is below 0.5. The two middle
    lanes are read from the rows, if more than half of them have a point; the outer ones from the
    columns, if more than a quarter have one. A point lies at the mean of the best cell and its
    neighbors, weighted by softmax. The class of a lane is its place, from left to right. Source:
    Qin et al., arXiv:2206.07389, and the demonstration of its authors.
    """

    anchors: LaneAnchors = CULANE

    class_count = LANES

    @property
    def keypoint_count(self) -> int:
        return max(len(self.anchors.rows), self.anchors.column_count)

    def lanes(self, values: Sequence[np.ndarray], input_hw: tuple[int, int]) -> Lanes:
        size, top = self.anchors.uncropped(input_hw)
        keypoints = np.full((LANES, self.keypoint_count, 3), np.nan, np.float32)
        least = np.zeros(LANES, np.int64)
        for axis, at in enumerate(self.anchors.places(size)):
            cells, exists = values[axis], values[2 + axis]
            for lane in (ROW_LANES, COLUMN_LANES)[axis]:
                points = keypoints[lane, : len(at)]
                points[:, axis] = _places(cells[..., lane]) * size[axis] / (len(cells) - 1)
                points[:, 1 - axis] = at
                points[:, 2] = _visibility(exists[..., lane])
                least[lane] = int(len(at) * LEAST_SHARES[axis]) + 1
        keypoints[..., 1] += top
        return keypoints, least


def _places(logits: np.ndarray) -> np.ndarray:
    """Compute the position of a lane among (G, N) cells, with centers at halves: (N,), or NaN."""
    best = logits.argmax(axis=0)
    cells = best + np.arange(-NEIGHBORS, NEIGHBORS + 1)[:, None]
    inside = (cells >= 0) & (cells < len(logits))
    near = np.take_along_axis(logits, np.clip(cells, 0, len(logits) - 1), axis=0)
    shares = softmax(np.where(inside, near, np.float32(-np.inf)), axis=0)
    return np.asarray((shares * cells).sum(axis=0) + 0.5)


def _visibility(logits: np.ndarray) -> np.ndarray:
    """Compute the probability of class 1 of (C, N) logits: (N,), 0 where it is not the best."""
    return np.where(logits.argmax(axis=0) == 1, np.nan_to_num(softmax(logits, axis=0)[1]), 0)


_CURVELANES = (
    Layout((Out('B G 72 10', 'lanes:1'), Out('B L 81 10', 'lanes:1')), ignores_others=True),
    'Ten lanes of 72 rows and 81 columns are UFLDv2 of CurveLanes, whose curves are not decoded: '
    'use a network of CULane or TuSimple.',
)


def _family(data: str, anchors: LaneAnchors) -> Family[UfldV2Head]:
    rows, columns = len(anchors.rows), anchors.column_count
    ends = (('G', rows), ('L', columns), (2, rows), (2, columns))
    outs = tuple(Out(f'B {cells} {count} {LANES}', 'lanes:1') for cells, count in ends)
    return Family(
        f'ufld_v2_{data.lower()}',
        'pose',
        trained('bottom_crop', crop_fraction=anchors.crop_fraction, **IMAGENET),
        layouts=(Layout(outs, ignores_names=True),),
        head=partial(UfldV2Head, anchors=anchors),
        remedy=UNKNOWN_ROWS,
        networks=f'UFLDv2, trained on {data}',
        export='`python deploy/pt2onnx.py --config_path configs/culane_res34.py --model_path '
        'culane_res34.pth`',
        near_misses=(_CURVELANES,),
    )


UFLD_V2_CULANE = _family('CULane', CULANE)
UFLD_V2_TUSIMPLE = _family('TuSimple', TUSIMPLE)


CURVE_POINTS = 50  # Per lane, at equal distances in y.
SHARES = np.linspace(0, 1, CURVE_POINTS, dtype=np.float32)  # Of the way from its upper end.
MIN_CURVE_POINTS = 2
PARAMETERS = 8  # Of a curve: its two ends, and six coefficients.
#: Names of logits and curves, by the authors' repository and by pytorch-auto-drive.
_CURVE_NAMES = (('pred_logits', 'pred_curves'), ('logits', 'curves'))


@dataclass(frozen=True)
class LstrHead(LaneHead):
    """
    A decoder of (1, Q, 2 or 3) logits, of which the second is of a lane, and (1, Q, 8) curves.

    A curve is y of its upper and lower end and k, f, m, n, b, c: x = k / (y - f)**2 + m / (y - f)
    + n + b y - c, with x and y from 0 to 1 over the image. A keypoint is a point of the curve,
    from the upper end to the lower one, and its visibility the probability of the lane; 0 outside
    the image. Source: Liu et al., arXiv:2011.04233, and the test of its authors.
    """

    class_count = 1
    keypoint_count = CURVE_POINTS
    own_class_names = ('lane',)

    def lanes(self, values: Sequence[np.ndarray], input_hw: tuple[int, int]) -> Lanes:
        logits, curves = values
        scores = _visibility(logits.T)
        with np.errstate(invalid='ignore', over='ignore', divide='ignore'):
            x, y = _points(curves)
            inside = (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)  # False for NaN, too.
        height, width = input_hw
        points = np.where(inside[..., None], np.stack([x * width, y * height], axis=-1), 0)
        visibility = np.where(inside, scores[:, None], 0)
        keypoints = np.concatenate([points, visibility[..., None]], axis=-1, dtype=np.float32)
        return keypoints, np.full(len(logits), MIN_CURVE_POINTS)


def _points(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute x and y of the points of (Q, 8) curves: (Q, points) each, 0 to 1 in the image."""
    top, bottom, k, f, m, n, b, c = curves.T[..., None]
    y = top + (bottom - top) * SHARES
    return k / (y - f) ** 2 + m / (y - f) + n + b * y - c, y


#: As the authors train and test it.
_PREPROCESS = trained('stretch', 'bgr', **BGR_OF_COCO)
LSTR = Family(
    'lstr',
    'pose',
    _PREPROCESS,
    constants={'mask': ()},
    layouts=tuple(
        Layout(
            (
                Out('B Q 2|3', 'logits:1', (logits,)),
                Out(f'B Q {PARAMETERS}', 'curves:1', (curves,)),
            ),
            ignores_names=True,
            ignores_others=True,
        )
        for logits, curves in _CURVE_NAMES
    ),
    head=LstrHead,
    remedy='Name these outputs so when exporting, or choose another decoder.',
    networks='LSTR: lanes as curves',
)
