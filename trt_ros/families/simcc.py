"""RTMPose and other top-down pose networks that classify each keypoint's x and y (SimCC)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    Family,
    image_output,
)
from trt_ros.families.heatmap_pose import TOP_DOWN_PREPROCESS, OnePoseHead, one_pose
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.results.poses import Poses
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import finite_or_zero
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds


@dataclass(frozen=True)
class SimccHead(OnePoseHead):
    """
    A decoder of the scores of K keypoints per column and row: (1, K, s * W) and (1, K, s * H).

    There are s bins per input pixel, 2 for RTMPose. A keypoint lies at its highest bin / s, with
    the center of pixel 0 at bin 0; its visibility is the lower of the two scores, limited to 0 to
    1 (Li et al., arXiv:2107.03332; MMPose, get_simcc_maximum). The one object has the whole input
    as its box, and the mean visibility as its score.

    :param points: number of keypoints; None: unknown.
    """

    x_name: str
    y_name: str
    points: int | None = None
    class_count: None = None

    def __call__(
        self,
        outputs: Mapping[str, np.ndarray],
        letterbox: Letterbox,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> Poses:
        """
        Decode the keypoints of one object.

        :raises TensorMismatchError: when an output is missing or of another shape.
        """
        axes = [as_float32(image_output(outputs, name)) for name in (self.x_name, self.y_name)]
        if len(axes[0]) != len(axes[1]) or not axes[0].size:
            raise TensorMismatchError(
                f'The outputs {self.x_name!r} and {self.y_name!r} have {len(axes[0])} and '
                f'{len(axes[1])} keypoints.'
            )
        axes = [finite_or_zero(scores) for scores in axes]
        bins = np.stack([scores.argmax(axis=1) for scores in axes], axis=1)
        lengths = np.array([scores.shape[1] for scores in axes])
        values = np.minimum(*(scores.max(axis=1) for scores in axes))
        found = one_pose(bins * (letterbox.input_hw[::-1] / lengths) + 0.5, values, letterbox)
        return found.wanted(thresholds)


def _head(reading: Reading) -> SimccHead:
    x, y = (part.spec for part in reading.parts)
    return SimccHead(x.name, y.name, x.shape[1] if x.shape[1] > 0 else None)


SIMCC = Family(
    'simcc',
    'pose',
    TOP_DOWN_PREPROCESS,
    layouts=(Layout((Out('B K S*w', 'columns:1'), Out('B K S*h', 'rows:1'))),),
    exporter='none',
    head=_head,
    networks='RTMPose and others: keypoints of one object',
    export='`tools/deploy.py` of MMDeploy with '
    '`configs/mmpose/pose-detection_simcc_onnxruntime_dynamic.py`',
    near_misses=(
        (
            Layout((Out('B N V', 'box:4 scores:1'), Out('B N K 3', 'keypoints:1'))),
            'Boxes (1, N, 5) with keypoints (1, N, points, 3) are RTMO of MMPose, which is not '
            'decoded: use RTMPose on the regions of a detector.',
        ),
    ),
)
