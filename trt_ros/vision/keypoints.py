"""Names and limbs of the keypoints of people, and keypoints as boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trt_ros.vision.results import OrientedBoxes, Poses

#: Keypoints of COCO, in index order (Lin et al., arXiv:1405.0312).
COCO = (
    'nose',
    'left_eye',
    'right_eye',
    'left_ear',
    'right_ear',
    'left_shoulder',
    'right_shoulder',
    'left_elbow',
    'right_elbow',
    'left_wrist',
    'right_wrist',
    'left_hip',
    'right_hip',
    'left_knee',
    'right_knee',
    'left_ankle',
    'right_ankle',
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
    (0, 1),
    (0, 2),
    (1, 3),
    (2, 4),
    (5, 6),
    (5, 7),
    (7, 9),
    (6, 8),
    (8, 10),
    (5, 11),
    (6, 12),
    (11, 12),
    (11, 13),
    (13, 15),
    (12, 14),
    (14, 16),
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


def keypoint_boxes(poses: Poses, min_visibility: float) -> tuple[OrientedBoxes, np.ndarray]:
    """
    Convert keypoints to boxes of size zero, in source-image pixels; the score is the visibility.

    :param min_visibility: keypoints below this visibility are omitted.
    :returns: the boxes, labeled with the keypoint's index, and the object index of each box.
    """
    objects, indices = np.nonzero(poses.keypoints[..., 2] >= min_visibility)
    points = poses.keypoints[objects, indices]
    boxes = np.zeros((len(points), 4), np.float32)
    boxes[:, :2] = points[:, :2]
    return OrientedBoxes(
        boxes, np.zeros(len(points), np.float32), points[:, 2], indices.astype(np.int32)
    ), objects
