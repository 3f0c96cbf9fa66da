"""ViTPose and other top-down pose networks with one heatmap per keypoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    has_sizes,
    image_output,
)
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.results.boxes import Detections
from trt_ros.results.poses import Poses
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import finite_or_zero
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

#: Preprocessing of top-down pose networks by MMPose and transformers; regions are padded alike.
TOP_DOWN_PREPROCESS: Mapping[str, object] = {
    **IMAGENET_PREPROCESS,
    'resize': 'letterbox',
    'pad_value': 0,
}
#: Numbers of keypoints by which heatmaps are recognized: COCO and COCO-WholeBody.
KEYPOINT_COUNTS = (17, 133)

_RADIUS, _SIGMA = 5, 0.8  # Of the smoothing, in cells; those of transformers.
_FLOOR, _CEILING = 1e-3, 50.0  # Limits of the smoothed values, before the logarithm.


class OnePoseHead(Head[Poses]):
    """Base class of the decoders of one object, which the input shows."""

    points: int | None

    @property
    def keypoint_count(self) -> int | None:
        """Number of keypoints; None: the network leaves it open."""
        return self.points

    @property
    def takes_regions(self) -> bool:
        """Whether the input shows one object: it does."""
        return True

    @property
    def region_scale(self) -> float:
        """Factor on the regions: that of MMPose and ViTPose."""
        return 1.25


@dataclass(frozen=True)
class HeatmapHead(OnePoseHead):
    """
    A decoder of K heatmaps (1, K, h, w) of one object, which the input shows.

    The keypoint is the highest cell, refined by DARK: one Newton step to the maximum of the
    logarithm of the smoothed heatmap (Zhang et al., arXiv:1910.06278). Cells map to input pixels
    as in UDP (Huang et al., arXiv:1911.07524): the centers of the outer cells are those of the
    outer pixels. ViTPose is trained so. For networks trained without UDP (HRNet of MMPose by
    default), keypoints are off by up to 1.6 % of the input at its right and lower edges.
    The visibility is the value of the highest cell, limited to 0 to 1.

    The one object has the whole input as its box, and the mean visibility as its score.

    :param points: number of keypoints; None: unknown.
    """

    output_name: str
    points: int | None = None
    class_count: None = None

    def __call__(
        self,
        outputs: Mapping[str, np.ndarray],
        letterbox: Letterbox,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> Poses:
        """
        Decode the heatmaps of one object.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        heatmaps = finite_or_zero(as_float32(image_output(outputs, self.output_name, axes=3)))
        count, *grid = heatmaps.shape
        best = heatmaps.reshape(count, -1).argmax(axis=1)
        rows_cols = np.stack(np.unravel_index(best, grid), axis=1)
        cells = rows_cols + _newton_steps(heatmaps, rows_cols)
        limits = np.array([grid, letterbox.input_hw]) - 1
        pixels = cells * (limits[1] / np.maximum(limits[0], 1)) + 0.5
        values = heatmaps.reshape(count, -1)[np.arange(count), best]
        return one_pose(pixels[:, ::-1], values, letterbox).wanted(thresholds)


def one_pose(input_xy: np.ndarray, values: np.ndarray, letterbox: Letterbox) -> Poses:
    """
    Return the result of a network that finds the keypoints of one object.

    :param input_xy: (K, 2) keypoints in input pixels.
    :param values: (K,) their scores, limited to 0 to 1 here.
    """
    visibility = np.clip(values, 0, 1).astype(np.float32)
    keypoints = np.hstack([letterbox.points_to_image(input_xy), visibility[:, None]])
    height, width = letterbox.input_hw
    return Poses(
        Detections(
            letterbox.to_image(np.array([[0, 0, width, height]], np.float32)),
            visibility.mean(keepdims=True),
            np.zeros(1, np.int32),
        ),
        keypoints[None],
    )


def _newton_steps(heatmaps: np.ndarray, rows_cols: np.ndarray) -> np.ndarray:
    """
    Compute the steps from the highest cells to the maxima of the smoothed log heatmaps.

    :param rows_cols: (K, 2) highest cells.
    :returns: (K, 2), at most one cell; 0 where there is no maximum.
    """
    grid = np.array(heatmaps.shape[1:])[:, None, None]
    beside = np.clip(rows_cols[:, :, None] + np.arange(-1, 2), 0, grid[..., 0] - 1)
    taps = (beside[..., None] + np.arange(-_RADIUS, _RADIUS + 1)) % (2 * grid)
    taps = np.minimum(taps, 2 * grid - 1 - taps)  # Mirrored at the edges.
    weights = np.exp(-0.5 * (np.arange(-_RADIUS, _RADIUS + 1) / _SIGMA) ** 2)
    weights /= weights.sum()
    index = np.arange(len(heatmaps))[:, None, None, None, None]
    around = heatmaps[index, taps[:, 0, :, :, None, None], taps[:, 1, None, None]]
    smooth = np.einsum('kiajb,a,b->kij', around, weights, weights)
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


def _head(reading: Reading) -> HeatmapHead:
    (part,) = reading.parts
    return HeatmapHead(part.spec.name, reading.keypoint_count)


def _is_of_one_object(network: NetworkDescription) -> Literal[False] | None:
    return False if network.class_count not in (None, 0, 1) else None  # It may be named.


HEATMAP_POSE = Family(
    'heatmap_pose',
    'pose',
    TOP_DOWN_PREPROCESS,
    layouts=(
        Layout(
            (Out('B K h/4 w/4', 'heatmaps:K', ('(?i).*(heatmap|keypoint).*',)),),
            known={},
            evidence=(_is_of_one_object,),
        ),
        Layout(
            (Out('B K h/4 w/4', 'heatmaps:K'),),
            known={'K': KEYPOINT_COUNTS},
            needs_known=True,
            evidence=(_is_of_one_object, has_sizes),
        ),
        Layout((Out('B K H W', 'heatmaps:K'),), by_name=True),
    ),
    head=_head,
    exporter='none',
    remedy='Export the heatmaps as the only output, or choose another decoder.',
    networks='ViTPose, HRNet and others: keypoints of one object',
)
