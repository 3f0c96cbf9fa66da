"""Decoder of the keypoints of one object in NumPy: executes any point layout."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trt_ros.families.head import Head
from trt_ros.families.layout import PointLayout
from trt_ros.families.match import Reading
from trt_ros.results.boxes import Detections
from trt_ros.results.poses import Poses
from trt_ros.tensors import Arrays
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import as_float32, check_range, finite_or_zero
from trt_ros.vision.thresholds import Thresholds

_RADIUS, _SIGMA = 5, 0.8  # Of the smoothing of heatmaps, in cells; those of transformers.
_FLOOR, _CEILING = 1e-3, 50.0  # Limits of the smoothed values, before the logarithm.
#: Weights of the smoothing along an axis: (11,).
SMOOTHING = np.exp(-0.5 * (np.arange(-_RADIUS, _RADIUS + 1) / _SIGMA) ** 2)
SMOOTHING /= SMOOTHING.sum()


class Points(NamedTuple):
    """Keypoints in input pixels, (K, 2), and their visibility: (K,), maybe not finite."""

    xy: np.ndarray
    visibility: np.ndarray


@dataclass(frozen=True)
class PointHead(Head[Poses]):
    """
    A decoder of the keypoints of one object, which the input shows, by a reading of its family.

    The object has the whole input as its box. Its score is an output, or the mean visibility of
    its keypoints. Those that are not finite are not visible, and neither are bins and cells best.
    """

    reading: Reading[PointLayout]

    @property
    def layout(self) -> PointLayout:
        """Layout of the outputs."""
        return self.reading.layout

    @property
    def class_count(self) -> int | None:
        return len(self.layout.class_names) or None

    @property
    def own_class_names(self) -> tuple[str, ...]:
        return self.layout.class_names

    @property
    def keypoint_count(self) -> int | None:
        size = self.layout.roles.get('points', '')
        return int(size) // self.layout.values if size.isdigit() else super().keypoint_count

    takes_regions = True

    @property
    def region_scale(self) -> float:
        return self.layout.region_scale

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Poses:
        arrays = self.arrays(outputs, letterbox.input_hw)
        roles = (next(iter(part.out.fields)) for part in self.reading.parts)
        values = {role: as_float32(array) for role, array in zip(roles, arrays)}
        with np.errstate(invalid='ignore', over='ignore'):
            xy, visibility = _FORMS[self.layout.form](values, self.layout, letterbox.input_hw)
            keypoints = np.column_stack([letterbox.points_to_image(xy), visibility])
        keypoints[~np.isfinite(keypoints).all(axis=1)] = 0  # Not visible.
        height, width = letterbox.input_hw
        score = keypoints[:, 2].mean(keepdims=True)
        if 'score' in values:
            score = check_range(finite_or_zero(values['score']))
        side = values.get('side', np.zeros(1)) >= 0.5
        box = letterbox.to_image(np.array([[0, 0, width, height]], np.float32))
        found = Poses(Detections(box, score, side.astype(np.int32)), keypoints[None])
        return found.wanted(thresholds)


def _from_values(values: Arrays, layout: PointLayout, input_hw: tuple[int, int]) -> Points:
    x, y, *more = values['points'].reshape(-1, layout.values).T
    third = more[0] if more else np.ones_like(x)
    xy = np.stack([y, x] if layout.is_y_first else [x, y], axis=1)
    if layout.is_normalized:
        xy = xy * np.array(input_hw[::-1], np.float32)
    return Points(
        xy, check_range(np.resize(values['score'], len(xy)) if 'score' in values else third)
    )


def _from_bins(values: Arrays, layout: PointLayout, input_hw: tuple[int, int]) -> Points:
    """Find the highest bin of each axis, as MMPose's get_simcc_maximum; bin 0 is pixel 0."""
    axes = [finite_or_zero(values[role]) for role in ('columns', 'rows')]
    bins = np.stack([scores.argmax(axis=1) for scores in axes], axis=1)
    steps = np.array(input_hw[::-1]) / [scores.shape[1] for scores in axes]
    lower = np.minimum(*(scores.max(axis=1) for scores in axes))
    return Points(bins * steps + 0.5, np.clip(lower, 0, 1))


def _from_heatmaps(values: Arrays, layout: PointLayout, input_hw: tuple[int, int]) -> Points:
    """
    Find the highest cell of each plane, refined by DARK.

    That is one Newton step to the maximum of the logarithm of the smoothed heatmap (Zhang et al.,
    arXiv:1910.06278). Cells map to input pixels as in UDP (Huang et al., arXiv:1911.07524), with
    which ViTPose is trained: the centers of the outer cells are those of the outer pixels. For
    networks trained without UDP (HRNet of MMPose by default), keypoints are off by up to 1.6 % of
    the input at its right and lower edges. The visibility is the value of the highest cell.
    """
    heatmaps = finite_or_zero(values['heatmaps'])
    count, *grid = heatmaps.shape
    best = heatmaps.reshape(count, -1).argmax(axis=1)
    rows_cols = np.stack(np.unravel_index(best, grid), axis=1)
    cells = rows_cols + _newton_steps(heatmaps, rows_cols)
    limits = np.array([grid, input_hw]) - 1
    pixels = cells * (limits[1] / np.maximum(limits[0], 1)) + 0.5
    highest = heatmaps.reshape(count, -1)[np.arange(count), best]
    return Points(pixels[:, ::-1], np.clip(highest, 0, 1))


def _newton_steps(heatmaps: np.ndarray, rows_cols: np.ndarray) -> np.ndarray:
    """Compute the steps to the maxima of the smoothed log heatmaps: (K, 2), at most one cell."""
    grid = np.array(heatmaps.shape[1:])[:, None, None]
    beside = np.clip(rows_cols[:, :, None] + np.arange(-1, 2), 0, grid[..., 0] - 1)
    taps = (beside[..., None] + np.arange(-_RADIUS, _RADIUS + 1)) % (2 * grid)
    taps = np.minimum(taps, 2 * grid - 1 - taps)  # Mirrored at the edges.
    index = np.arange(len(heatmaps))[:, None, None, None, None]
    around = heatmaps[index, taps[:, 0, :, :, None, None], taps[:, 1, None, None]]
    smooth = np.einsum('kiajb,a,b->kij', around, SMOOTHING, SMOOTHING)
    z = np.log(np.clip(smooth, _FLOOR, _CEILING))
    slope = np.stack([z[:, 2, 1] - z[:, 0, 1], z[:, 1, 2] - z[:, 1, 0]], axis=1) / 2
    bend_rows = z[:, 2, 1] - 2 * z[:, 1, 1] + z[:, 0, 1]
    bend_cols = z[:, 1, 2] - 2 * z[:, 1, 1] + z[:, 1, 0]
    twist = (z[:, 2, 2] - z[:, 0, 2] - z[:, 2, 0] + z[:, 0, 0]) / 4
    determinant = bend_rows * bend_cols - twist**2
    is_maximum = (determinant > 1e-9) & (bend_rows < 0)
    adjugate = np.stack([bend_cols, -twist, -twist, bend_rows], axis=1).reshape(-1, 2, 2)
    steps = (
        -np.einsum('kij,kj->ki', adjugate, slope) / np.where(is_maximum, determinant, 1)[:, None]
    )
    return np.where(is_maximum[:, None], np.clip(steps, -1, 1), 0)


_FORMS: Mapping[str, Callable[[Arrays, PointLayout, tuple[int, int]], Points]] = {
    'values': _from_values,
    'bins': _from_bins,
    'heatmaps': _from_heatmaps,
}
