"""Decoder of boxes in NumPy: executes any box layout, and is the reference of the kernels."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from trt_ros.decode.scores import Scored, Values, select
from trt_ros.errors import TensorMismatchError
from trt_ros.families.head import Head
from trt_ros.families.layout import BoxLayout, Coding, Grid
from trt_ros.families.match import Reading
from trt_ros.families.places import Places, locate
from trt_ros.results.boxes import Detections, OrientedBoxes, hull
from trt_ros.results.masks import Instances
from trt_ros.results.poses import Poses
from trt_ros.tensors import Arrays, Shape
from trt_ros.vision.grid import taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.masks import bounds, instance_masks, whole_masks, windows_of
from trt_ros.vision.nms import choose_boxes, probabilistic_iou, select_best, to_image
from trt_ros.vision.scores import check_range, sigmoid
from trt_ros.vision.thresholds import Thresholds

# Above exp(12) strides a box is larger than any image, unless it is in pixels already. Of decoded
# boxes, far more than this share are.
MAX_LOG_SIZE, MAX_SHARE = 12.0, 0.05


class Candidates(NamedTuple):
    """
    Boxes that pass the score threshold, in the order of rows and classes.

    :param rows: (n,) row in its level, or among those that follow each other in an output.
    :param boxes: (n, 4) float32 corners in input pixels; centers and sizes of rotated boxes.
    :param extras: (n, E) float32, of keypoints in input pixels.
    """

    rows: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    boxes: np.ndarray
    extras: np.ndarray


@dataclass(frozen=True)
class BoxHead(Head[Any]):
    """
    A decoder of the outputs of a network by a reading of its family.

    Values that are not finite pass nowhere: a score that is NaN or infinite before its activation
    is none, and neither is the best class of a row with NaN or +Inf among its scores.
    """

    reading: Reading[BoxLayout]

    @property
    def layout(self) -> BoxLayout:
        """Layout of the outputs."""
        return self.reading.layout

    @property
    def counts_background(self) -> bool:
        return self.layout.counts_background

    @property
    def finds_instances(self) -> bool:
        return self.layout.extras in ('coefficients', 'masks')

    @property
    def proposes_regions(self) -> bool:
        return self.layout.regions is not None

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Any:
        places: Places = self.resolve(outputs, letterbox.input_hw)
        values = Values(outputs, self.reading)
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            found = self._candidates(values, places, letterbox.input_hw, thresholds.score)
            if self.layout.extras == 'angle':
                return _oriented(found, letterbox, thresholds, uses_nms=self.layout.uses_nms)
            best, boxes = choose_boxes(
                found.boxes,
                found.scores,
                found.labels,
                letterbox,
                thresholds,
                uses_nms=self.layout.uses_nms,
                limit=places.rows if self.layout.is_limited else None,
            )
            if self.layout.extras == 'keypoints':
                return self._poses(boxes, found.extras[best], letterbox)
            if self.finds_instances:
                rows, extras = found.rows[best], found.extras[best]
                return self._instances(boxes, rows, extras, values, letterbox)
        return boxes

    def all_boxes(self, outputs: Arrays, input_hw: tuple[int, int]) -> Candidates:
        """Return the boxes of one image whatever their scores, before NMS."""
        places: Places = self.resolve(outputs, input_hw)
        with np.errstate(invalid='ignore', over='ignore'):
            return self._candidates(Values(outputs, self.reading), places, input_hw, 0.0)

    def _fit(self, shapes: Mapping[str, Shape], input_hw: tuple[int, int]) -> Places | None:
        return locate(self.reading, shapes, input_hw)

    def _candidates(
        self, values: Values, places: Places, input_hw: tuple[int, int], threshold: float
    ) -> Candidates:
        """Return the boxes of all levels that pass a score threshold."""
        layout, coding = self.layout, self.layout.coding
        if coding.form == 'offsets' and coding.size == 'exp':
            self._require_logarithms(values, places)
        found = []
        for level, grids in places.joined:
            scored = select(layout, values, places, level, threshold)
            box = _box(values, places, level.slices, scored, coding)
            anchors = Anchors.of(grids, scored.rows, is_planar=places.is_planar) if grids else None
            boxes = _corners(box, anchors, coding)
            if coding.is_normalized:
                boxes = boxes * np.array(input_hw[::-1] * 2, np.float32)
            if coding.clips:
                boxes = np.clip(boxes, 0, np.array(input_hw[::-1] * 2, np.float32))
            extras = boxes[:, :0]
            if 'extras' in level.slices:
                extras = values.gather(level.slices['extras'], scored.rows)
            if coding.has_points and anchors:
                extras = _points(extras, anchors, coding, boxes)
            elif coding.has_points:
                values_each = self.reading.values_per_keypoint
                extras = _points_of_input(extras, values_each, coding, input_hw)
            found.append(Candidates(scored.rows, scored.scores, scored.labels, boxes, extras))
        return Candidates(*map(np.concatenate, zip(*found))) if len(found) > 1 else found[0]

    def _require_logarithms(self, values: Values, places: Places) -> None:
        """Check that boxes are not decoded already; raise TensorMismatchError if they are."""
        boxes = [values.view(level.slices['box'], level.rows) for level, _ in places.joined]
        # Column by column: NumPy is slow on rows of two values.
        sizes = [side.astype(np.float32, copy=False) for box in boxes for side in box.T[2:4]]
        large = sum(np.count_nonzero(each > MAX_LOG_SIZE) for each in sizes)
        if large > MAX_SHARE * 2 * places.rows:
            largest = max(float(np.nanmax(each)) for each in sizes if each.size)
            raise TensorMismatchError(
                f'The output {self.reading.parts[0].spec.name!r} has decoded boxes.',
                cause=f'Widths and heights are up to {largest:.0f}, expected logarithms.',
                remedy=self.remedy,
            )

    def _poses(self, boxes: Detections, extras: np.ndarray, letterbox: Letterbox) -> Poses:
        values = self.reading.values_per_keypoint
        count = extras.shape[1] // values
        keypoints = np.ones((len(boxes), count, 3), np.float32)
        keypoints[..., :values] = extras.reshape(len(boxes), count, values)
        keypoints[..., :2] = letterbox.points_to_image(keypoints[..., :2])
        keypoints[~np.isfinite(keypoints).all(axis=-1)] = 0  # Not visible.
        keypoints[..., 2] = check_range(keypoints[..., 2], is_padded=not self.layout.uses_nms)
        return self.with_regions(Poses(boxes, keypoints))

    def with_regions(self, poses: Poses) -> Poses:
        """Return poses with the regions that they propose."""
        if self.layout.regions is None:
            return poses
        return replace(poses, regions=self.layout.regions(poses))

    def _instances(
        self,
        boxes: Detections,
        rows: np.ndarray,
        coefficients: np.ndarray,
        values: Values,
        letterbox: Letterbox,
    ) -> Instances:
        """Return boxes with masks: of all prototypes, limited to the box, or a whole one each."""
        if self.layout.extras == 'masks':
            planes = values.tensor('masks')[rows]
            cells = np.array([bounds(plane > 0) for plane in planes])
            windows = windows_of(cells, *taps(letterbox, (planes.shape[1], planes.shape[2])))
            masks = whole_masks(planes, letterbox, windows)
            return Instances(boxes, masks, windows[:, :2], letterbox.image_wh)
        windows = np.ceil(boxes.xyxy - 0.5).astype(np.int32)  # Pixel centers inside.
        found = instance_masks(values.tensor('prototypes'), coefficients, letterbox, windows)
        return Instances(boxes, tuple(found), windows[:, :2], letterbox.image_wh)


def _box(
    values: Values, places: Places, slices: Mapping[str, Any], scored: Scored, coding: Coding
) -> np.ndarray:
    labels = scored.labels if places.class_step else None
    if 'sizes' in slices:
        sizes = values.gather(slices['sizes'], scored.rows)
        first = values.gather(slices['box'], scored.rows) if 'box' in slices else 0 * sizes
        box = np.hstack([first, sizes])
        return box[:, [1, 0, 3, 2]] if coding.is_y_first else box
    box = values.gather(slices['box'], scored.rows, labels, places.class_step)
    if places.bins > 1:
        logits = box.reshape(-1, 4, places.bins)
        powers = np.exp(logits - logits.max(axis=2, keepdims=True))
        return np.asarray(powers @ np.arange(places.bins, dtype=np.float32) / powers.sum(axis=2))
    return box[:, [1, 0, 3, 2]] if coding.is_y_first else box


class Anchors(NamedTuple):
    """
    Anchors of rows, (n, 2) float32 each.

    :param cells: column and row of the cell.
    :param priors: width and height of the prior.
    :param strides: stride along x and y.
    :param grid_wh: number of columns and rows of the grid.
    """

    cells: np.ndarray
    priors: np.ndarray
    strides: np.ndarray
    grid_wh: np.ndarray

    @classmethod
    def of(cls, grids: tuple[Grid, ...], rows: np.ndarray, *, is_planar: bool) -> 'Anchors':
        """Return the anchors of some rows of grids that follow each other."""
        table = _anchor_table(grids, is_planar)[rows]
        return cls(table[:, :2], table[:, 2:4], table[:, 4:6], table[:, 6:])


@lru_cache(maxsize=32)
def _anchor_table(grids: tuple[Grid, ...], is_planar: bool) -> np.ndarray:
    """Return the fields of `Anchors` of all rows, side by side: (N, 8) float32."""
    tables = []
    for grid in grids:
        y, x = np.mgrid[: grid.shape[0], : grid.shape[1]]
        cells = np.stack([x.ravel(), y.ravel()], axis=1)
        priors = np.array(grid.priors or [(1, 1)] * grid.per_cell)
        if is_planar:
            cells = np.tile(cells, (grid.per_cell, 1))
            priors = np.repeat(priors, grid.cells, axis=0)
        else:
            cells = np.repeat(cells, grid.per_cell, axis=0)
            priors = np.tile(priors, (grid.cells, 1))
        same = np.tile([*grid.strides, *grid.shape[::-1]], (len(cells), 1))
        tables.append(np.hstack([cells, priors, same], dtype=np.float32, casting='same_kind'))
    table = np.concatenate(tables)
    table.setflags(write=False)  # Shared by all callers.
    return table


def _corners(box: np.ndarray, anchors: Anchors | None, coding: Coding) -> np.ndarray:
    """Return corners in the unit of the boxes, or input pixels; rotated boxes as they are."""
    if coding.form in ('corners', 'rotated'):
        return box
    if anchors is None:
        half = box[:, 2:4] / 2
        return np.hstack([box[:, :2] - half, box[:, :2] + half])
    unit = _unit(anchors, coding)
    if coding.form == 'sides':
        point = (anchors.cells + np.float32(coding.place)) * anchors.strides
        point = point + np.float32(coding.pixel)
        return np.hstack([point - box[:, :2] * unit, point + box[:, 2:] * unit])
    if coding.size == 'squared':
        value = sigmoid(box)
        center = (2 * value[:, :2] - np.float32(0.5) + anchors.cells) * anchors.strides
        half = (2 * value[:, 2:4]) ** 2 * anchors.priors / 2
    elif coding.size == 'tanh':
        center = (np.tanh(box[:, :2]) + anchors.cells) * anchors.strides
        half = sigmoid(box[:, 2:4]) * anchors.grid_wh * anchors.strides / 2
    else:
        center = _offset(box[:, :2], anchors, unit, coding)
        size = box[:, 2:4]
        if coding.size == 'exp':
            size = np.exp(np.float32(coding.size_gain) * size)
        half = size * (anchors.priors if coding.unit == 'prior' else unit) / 2
    return np.hstack([center - half, center + half])


def _unit(anchors: Anchors, coding: Coding) -> np.ndarray:
    """Return the unit of offsets along x and y."""
    gain = np.float32(coding.gain)
    if coding.unit == 'prior':
        return np.asarray(gain * anchors.priors)
    unit = anchors.strides if coding.unit == 'stride' else np.ones_like(anchors.strides)
    return np.asarray(gain * unit)


def _offset(values: np.ndarray, anchors: Anchors, unit: np.ndarray, coding: Coding) -> np.ndarray:
    """Return points that are offsets from anchors, in input pixels."""
    place = anchors.cells + np.float32(coding.place)
    if coding.unit == 'stride':
        return np.asarray((values + place) * anchors.strides)
    return np.asarray(place * anchors.strides + values * unit)


def _points(extras: np.ndarray, anchors: Anchors, coding: Coding, boxes: np.ndarray) -> np.ndarray:
    """Return keypoints of two values relative to anchors, or boxes, in input pixels."""
    xy: np.ndarray = extras.reshape(len(extras), extras.shape[1] // 2, 2)
    xy = xy[..., ::-1] if coding.is_y_first else xy
    anchors = Anchors(*(each[:, None] for each in anchors))
    unit = _unit(anchors, coding)
    if coding.are_points_in_box:
        low, high = boxes[:, None, :2], boxes[:, None, 2:]
        found = low + xy * (high - low)
    elif coding.form == 'sides':
        found = (anchors.cells + np.float32(coding.place)) * anchors.strides + xy * unit
    else:
        found = _offset(xy, anchors, unit, coding)
    return np.asarray(found).reshape(extras.shape)


def _points_of_input(
    extras: np.ndarray, values: int, coding: Coding, input_hw: tuple[int, int]
) -> np.ndarray:
    """Return keypoints that are coded like the corners of boxes in input pixels."""
    points = extras.reshape(len(extras), extras.shape[1] // values, values)
    if coding.is_y_first:
        points[..., :2] = points[..., 1::-1]
    if coding.is_normalized:
        points[..., :2] *= np.array(input_hw[::-1], np.float32)
    return extras


def _oriented(
    found: Candidates, letterbox: Letterbox, thresholds: Thresholds, *, uses_nms: bool
) -> OrientedBoxes:
    """
    Choose rotated boxes by probabilistic IoU; boxes outside the image are dropped.

    NMS is greedy; in Ultralytics' own NMS suppressed boxes suppress others, too.
    """
    boxes = np.hstack([found.boxes, found.extras])
    usable = np.isfinite(boxes).all(axis=1) & (boxes[:, 2:4] > 0).all(axis=1)
    image_boxes = to_image(boxes, letterbox)
    low, high = hull(image_boxes)
    usable &= ((high > 0) & (low < np.array(letterbox.image_wh))).all(axis=1)
    if thresholds.chooses_classes:
        usable &= found.scores >= thresholds.min_scores(found.labels)
    keep = np.flatnonzero(usable)
    scores, labels = found.scores[keep], found.labels[keep]
    best = select_best(
        boxes[keep], scores, labels, thresholds, uses_nms=uses_nms, overlap=probabilistic_iou
    )
    chosen = image_boxes[keep[best]]
    labels = labels[best].astype(np.int32)
    return OrientedBoxes(chosen[:, :4], chosen[:, 4], check_range(scores[best]), labels)
