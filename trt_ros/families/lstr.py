"""LSTR (Lane Shape Prediction with Transformers): a curve per lane."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trt_ros.families.family import STRETCH_PREPROCESS, Family
from trt_ros.families.lanes import LaneHead
from trt_ros.families.layout import Layout, Out
from trt_ros.vision.scores import softmax

POINTS = 50  # Per lane, at equal distances in y.
SHARES = np.linspace(0, 1, POINTS, dtype=np.float32)  # Of the way from its upper end.
MIN_POINTS = 2
LANE = 1  # Index of the logit of a lane.
PARAMETERS = 8  # Of a curve: its two ends, and six coefficients.
#: Names of logits and curves, by the authors' repository and by pytorch-auto-drive.
NAMES = (('pred_logits', 'pred_curves'), ('logits', 'curves'))


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
    keypoint_count = POINTS
    own_class_names = ('lane',)

    def lanes(
        self, values: Sequence[np.ndarray], input_hw: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the points of all lanes, see `LaneHead`."""
        logits, curves = values
        scores = _lane_probability(logits)
        with np.errstate(invalid='ignore', over='ignore', divide='ignore'):
            x, y = _points(curves)
            inside = (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)  # False for NaN, too.
        height, width = input_hw
        points = np.where(inside[..., None], np.stack([x * width, y * height], axis=-1), 0)
        visibility = np.where(inside, scores[:, None], 0)
        keypoints = np.concatenate([points, visibility[..., None]], axis=-1, dtype=np.float32)
        return keypoints, np.full(len(logits), MIN_POINTS)


def _lane_probability(logits: np.ndarray) -> np.ndarray:
    is_lane = logits.argmax(axis=1) == LANE
    return np.where(is_lane, np.nan_to_num(softmax(logits)[:, LANE]), 0)


def _points(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute x and y of the points of (Q, 8) curves: (Q, POINTS) each, 0 to 1 in the image."""
    top, bottom, k, f, m, n, b, c = curves.T[..., None]
    y = top + (bottom - top) * SHARES
    return k / (y - f) ** 2 + m / (y - f) + n + b * y - c, y


#: As the authors train and test it; mean and standard deviation are in the order of BGR.
_PREPROCESS = {
    **STRETCH_PREPROCESS,
    'channel_order': 'bgr',
    'mean': (0.40789654, 0.44719302, 0.47026115),
    'std': (0.28863828, 0.27408164, 0.27809835),
}
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
        for logits, curves in NAMES
    ),
    head=LstrHead,
    remedy='Name these outputs so when exporting, or choose another decoder.',
    networks='LSTR: lanes as curves',
)
