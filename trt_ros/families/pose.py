"""YOLOv8-pose, YOLO11-pose, YOLO26-pose: boxes with keypoints."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import YOLO_PREPROCESS, Family, Head, NetworkDescription
from trt_ros.families.layout import CORNERS, BoxLayout, Out
from trt_ros.families.yolo import ULTRALYTICS, YOLO, is_finished, is_on_no_grid, is_raw
from trt_ros.families.yolo_rows import ObjectnessRows, PlainRows, choose_rows, rows_of
from trt_ros.results.poses import NAMES, Poses
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range
from trt_ros.vision.thresholds import Thresholds

#: Numbers of keypoints by which boxes after NMS are recognized: of faces, and the named ones.
KNOWN_COUNTS = (5, *NAMES)


@dataclass(frozen=True)
class PoseHead(Head[Poses]):
    """
    A decoder of boxes followed by K keypoints each: x, y in input pixels, and visibility, 0 to 1.

    Source: Ultralytics' `Pose` head.

    :param values: values per keypoint: 3, or 2 without visibility, which is then 1.
    """

    rows: PlainRows | ObjectnessRows
    values: int = 3

    @property
    def class_count(self) -> int | None:
        """Number of classes; None: unknown."""
        return self.rows.class_count

    @property
    def keypoint_count(self) -> int:
        """Number of keypoints per box."""
        return self.rows.extra_count // self.values

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Poses:
        """
        Decode the outputs into boxes with keypoints; see `Head`.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            boxes, extras = choose_rows(self.rows, outputs, letterbox, thresholds)
        count = self.keypoint_count
        keypoints = np.ones((len(boxes), count, 3), np.float32)
        keypoints[..., : self.values] = extras.reshape(len(boxes), count, self.values)
        keypoints[..., :2] = letterbox.points_to_image(keypoints[..., :2])
        keypoints[~np.isfinite(keypoints).all(axis=-1)] = 0  # Not visible.
        keypoints[..., 2] = check_range(keypoints[..., 2], is_padded=self.rows.is_decoded)
        return Poses(boxes, keypoints)


def _extras(network: NetworkDescription) -> tuple[int, int] | None:
    """Return the number of values after each box, and of values per keypoint; None: unknown."""
    try:
        count, values = ast.literal_eval(network.metadata['kpt_shape'])
        return int(count) * int(values), int(values)
    except (KeyError, ValueError, TypeError, SyntaxError):
        pass
    if len(network.outputs) != 1 or len(network.only_output.shape) != 3:
        return None
    _, first, second = network.only_output.shape
    is_decoded = second > 6 and not 0 < first < second
    extras = second - 6 if is_decoded else first - 4 - (network.class_count or 1)
    if is_decoded and extras // 3 not in KNOWN_COUNTS:  # (1, K, D) are features, too.
        return None
    return (extras, 3) if extras > 0 and extras % 3 == 0 else None


def find_head(network: NetworkDescription) -> PoseHead | None:
    """Find boxes with keypoints; None: these are not the outputs."""
    extras = _extras(network)
    if extras is None or extras[1] not in (2, 3) or len(network.outputs) != 1:
        return None
    rows = rows_of(network, network.only_output, extras[0])
    return PoseHead(rows, extras[1]) if rows else None


def open_head(network: NetworkDescription) -> PoseHead:
    """Open the head of a keypoint network."""
    head = find_head(network)
    if head is None:
        raise TensorMismatchError(
            'Not a network of boxes with keypoints: expected (1, 4 + classes + 3 * keypoints, '
            f'anchors), got {network}.',
            remedy='Export the network with Ultralytics, set `labels`, or choose another decoder.',
        )
    return head


YOLOV8_POSE = Family(
    'yolov8_pose',
    'pose',
    YOLO_PREPROCESS,
    open_head,
    layouts=(
        *(
            BoxLayout(
                (Out('B V N', f'box:4 scores:C extras:{values}*K'),),
                YOLO,
                extras='keypoints',
                assume={'C': (1,)},
                guards=(is_raw,),
                known={'K': (17,) if values == 3 else ()},
                needs_known=values == 2,
            )
            for values in (3, 2)
        ),
        *(
            BoxLayout(
                (Out('B N V', f'box:4 scores:1 label:1 extras:{values}*K'),),
                coding=CORNERS,
                uses_nms=False,
                extras='keypoints',
                guards=(is_finished,),
                evidence=(is_on_no_grid,),
                known={'K': (17, 5, 21, 133) if values == 3 else ()},
                needs_known=True,
            )
            for values in (3, 2)
        ),
    ),
    **ULTRALYTICS,
)
