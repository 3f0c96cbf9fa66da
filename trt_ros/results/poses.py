"""Poses: objects with keypoints, and the names and limbs of keypoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trt_ros.results.base import rounded
from trt_ros.results.boxes import BoxedObjects, Detections, OrientedBoxes

#: Keypoints of COCO, in index order (Lin et al., arXiv:1405.0312).
COCO = (
    *('nose', 'left_eye', 'right_eye', 'left_ear', 'right_ear', 'left_shoulder'),
    *('right_shoulder', 'left_elbow', 'right_elbow', 'left_wrist', 'right_wrist', 'left_hip'),
    *('right_hip', 'left_knee', 'right_knee', 'left_ankle', 'right_ankle'),
)
#: Keypoints of COCO-WholeBody: body, feet, face and hands (Jin et al., arXiv:2007.11858).
WHOLE_BODY = (
    *COCO,
    *(f'{side}_{part}' for side in ('left', 'right') for part in ('big_toe', 'small_toe', 'heel')),
    *(f'face_{index}' for index in range(68)),
    *(f'{side}_hand_{index}' for side in ('left', 'right') for index in range(21)),
)
#: Keypoints of a hand, in the order of MediaPipe, MMPose and the hand keypoints of Ultralytics.
HAND = (
    'wrist',
    *(f'thumb_{joint}' for joint in ('cmc', 'mcp', 'ip', 'tip')),
    *(
        f'{finger}_{joint}'
        for finger in ('index_finger', 'middle_finger', 'ring_finger', 'pinky')
        for joint in ('mcp', 'pip', 'dip', 'tip')
    ),
)
#: Names by the number of keypoints.
NAMES: Mapping[int, tuple[str, ...]] = {len(names): names for names in (COCO, HAND, WHOLE_BODY)}

#: Limbs of COCO, as pairs of indices into COCO.
LIMBS = (
    *((0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10), (5, 11), (6, 12)),
    *((11, 12), (11, 13), (13, 15), (12, 14), (14, 16)),
)


#: Bones of a hand, as pairs of indices into HAND: the fingers, and the edge of the palm.
BONES = (
    *((joint, joint + 1) for base in range(1, 21, 4) for joint in range(base, base + 3)),
    (0, 1),
    (0, 5),
    (5, 9),
    (9, 13),
    (13, 17),
    (0, 17),
)


def limbs(names: Sequence[str], count: int) -> tuple[tuple[int, int], ...]:
    """
    Return the limbs between keypoints with the names of COCO or HAND, as pairs of their indices.

    :param names: of the keypoints; () for those that their `count` implies, see `NAMES`.
    """
    indices = {name: index for index, name in enumerate(names or NAMES.get(count, ()))}
    pairs = (
        (indices.get(known[first]), indices.get(known[second]))
        for known, skeleton in ((COCO, LIMBS), (HAND, BONES))
        for first, second in skeleton
    )
    return tuple(
        (first, second) for first, second in pairs if first is not None and second is not None
    )


@dataclass(eq=False)
class Poses(BoxedObjects):
    """
    N objects with K keypoints each, best score first; N may be 0.

    :param keypoints: (N, K, 3) float32: x, y in source-image pixels, maybe outside the image,
        and visibility, 0 to 1.
    :param regions: the part of the image to run the next network on, one per object; None: the
        network proposes none.
    """

    detections: Detections
    keypoints: np.ndarray
    regions: OrientedBoxes | None = None

    def take(self, indices: np.ndarray) -> Poses:
        regions = self.regions and self.regions.take(indices)
        return Poses(self.detections.take(indices), self.keypoints[indices], regions)

    def to_source(self, affine: np.ndarray) -> Poses:
        turn, shift = affine[:, :2].T, affine[:, 2]
        corners = self.corners() @ turn + shift
        keypoints = self.keypoints.copy()
        keypoints[..., :2] = keypoints[..., :2] @ turn + shift
        boxes = np.hstack([corners.min(axis=1), corners.max(axis=1)]).astype(np.float32)
        return replace(self, detections=replace(self.detections, xyxy=boxes), keypoints=keypoints)

    @classmethod
    def join(cls, poses: Sequence[Poses]) -> Poses:
        """Return the objects of several results with the same keypoints, without regions."""
        if not poses:
            return cls(Detections.empty(), np.zeros((0, 0, 3), np.float32))
        found = poses[0].detections
        for each in poses[1:]:
            found = found.extended(each.detections)
        return cls(found, np.concatenate([each.keypoints for each in poses]))

    def keypoint_boxes(self, min_visibility: float, names: Sequence[str] = ()) -> OrientedBoxes:
        """
        Convert keypoints to boxes of size zero; the score is the visibility, the id the object's.

        :param min_visibility: keypoints below this visibility are omitted.
        :param names: of the keypoints; the label of a box is the index of its keypoint.
        """
        objects, indices = np.nonzero(self.keypoints[..., 2] >= min_visibility)
        points = self.keypoints[objects, indices]
        boxes = np.zeros((len(points), 4), np.float32)
        boxes[:, :2] = points[:, :2]
        return OrientedBoxes(
            boxes,
            np.zeros(len(points), np.float32),
            points[:, 2],
            indices.astype(np.int32),
            ids=objects if self.ids is None else self.ids[objects],
            class_names=names,
        )

    def _fields_of(self, index: int) -> dict[str, Any]:
        return {'keypoints': self.keypoints[index]}

    def _json_of(self, index: int) -> dict[str, Any]:
        points = self.keypoints[index].tolist()
        return {'keypoints': [[round(x, 2), round(y, 2), round(v, 4)] for x, y, v in points]}

    def _coco_of(self, index: int) -> dict[str, Any]:
        return {'keypoints': rounded(self.keypoints[index].ravel())}
