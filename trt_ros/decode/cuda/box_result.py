"""Results of boxes in host memory, as the kernels write them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trt_ros.decode.cuda.decoder import HEADER_NBYTES
from trt_ros.results.boxes import Detections
from trt_ros.results.poses import Poses
from trt_ros.vision.scores import check_range


class BoxViews(NamedTuple):
    """
    Views of a result of boxes in host memory, of which each frame fills the first entries.

    :param header: (4,) int32, see common.cu: struct Result.
    :param xyxy: (capacity, 4) float32; `scores`: (capacity,) float32; `labels`: (capacity,) int32.
    :param extras: (capacity, extra_floats) float32.
    """

    header: np.ndarray
    xyxy: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    extras: np.ndarray

    def has_nonfinite(self) -> bool:
        """Return whether any output value was NaN or infinite."""
        return bool(self.header.item(2))

    def boxes(self) -> Detections:
        """Return copies of the boxes."""
        # Few and plain steps: the result waits for them.
        count = self.header.item(0)
        scores = self.scores[:count].copy()
        if count and not (scores.item(0) <= 1 and scores.item(-1) >= 0):  # Best first.
            scores = check_range(scores)
        return Detections(self.xyxy[:count].copy(), scores, self.labels[:count].copy())

    def read(self) -> tuple[Detections, bool]:
        """Return the boxes and whether outputs had non-finite values."""
        return self.boxes(), self.has_nonfinite()


def boxes_nbytes(capacity: int, extra_floats: int) -> int:
    """Return the bytes of the header and of the arrays of boxes in a result."""
    return HEADER_NBYTES + (24 + 4 * extra_floats) * capacity


def box_views(memory: np.ndarray, capacity: int, extra_floats: int) -> BoxViews:
    """Return views of a result of boxes; `memory`: uint8, at least as long as `boxes_nbytes`."""
    floats = memory[: boxes_nbytes(capacity, extra_floats)].view(np.float32)
    header, xyxy, scores, labels, extras = np.split(
        floats, HEADER_NBYTES // 4 + capacity * np.array([0, 4, 5, 6])
    )
    return BoxViews(
        header.view(np.int32),
        xyxy.reshape(capacity, 4),
        scores,
        labels.view(np.int32),
        extras.reshape(capacity, extra_floats),
    )


def poses_reader(views: BoxViews, *, is_padded: bool = False) -> Callable[[], tuple[Poses, bool]]:
    """Return a reader of boxes with keypoints, three extras each; `is_padded`: some are unused."""

    def read() -> tuple[Poses, bool]:
        boxes = views.boxes()
        keypoints = (
            views.extras[: len(boxes)].reshape(len(boxes), views.extras.shape[1] // 3, 3).copy()
        )
        keypoints[..., 2] = check_range(keypoints[..., 2], is_padded=is_padded)
        return Poses(boxes, keypoints), views.has_nonfinite()

    return read
