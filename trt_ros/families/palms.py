"""Palm detection of MediaPipe: palms with seven landmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.faces import FaceHead
from trt_ros.families.family import (
    Family,
    NetworkDescription,
    cells_of_stride,
    is_scores,
    sigmoid,
)
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.results.poses import Poses
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

LANDMARKS = 7
VALUES = 4 + 2 * LANDMARKS
#: Stride and anchors per cell.
GRIDS = ((8, 2), (16, 6))
#: Landmarks at the wrist and at the base of the middle finger.
WRIST, MIDDLE_FINGER = 0, 2
#: Of the square around a hand: shift towards the fingers, in heights of the palm, and its side.
HAND_SHIFT, HAND_SCALE = 0.4, 3.0


@dataclass(frozen=True)
class PalmHead(FaceHead):
    """
    A decoder of boxes with landmarks (1, N, 18) and of logits (1, N, 1).

    The anchors of a cell lie in its center: the center and the landmarks are offsets from it, the
    size is as it is, all in input pixels. Source: `MPPalmDet` of the OpenCV zoo.

    The regions are the squares around the hands, see `hand_regions`.
    """

    landmarks: ClassVar[int] = LANDMARKS

    @property
    def proposes_regions(self) -> bool:
        """Whether the result has regions for a further network: the hands."""
        return True

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Poses:
        """
        Decode the outputs into palms with landmarks and regions; see `Head`.

        :raises TensorMismatchError: when an output is missing or of another shape.
        """
        palms = super().__call__(outputs, letterbox, thresholds)
        return replace(palms, regions=hand_regions(palms))

    def _faces(
        self, values: list[np.ndarray], input_hw: tuple[int, int], score_threshold: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows, logits = values
        anchors = _anchors(input_hw)
        expected = [(len(anchors), VALUES), (len(anchors), 1)]
        if [rows.shape, logits.shape] != expected:
            raise _mismatch(f'{rows.shape} and {logits.shape}')
        scores = sigmoid(logits[:, 0])
        keep = np.flatnonzero((scores >= score_threshold) & np.isfinite(logits[:, 0]))
        center, half = anchors[keep] + rows[keep, :2], rows[keep, 2:4] / 2
        landmarks = np.tile(anchors[keep], LANDMARKS) + rows[keep, 4:]
        return np.hstack([center - half, center + half]), landmarks, scores[keep]


def hand_regions(palms: Poses) -> OrientedBoxes:
    """
    Compute the squares around hands that MediaPipe's network of hand landmarks is trained with.

    Their y axis leads from the middle finger to the wrist. The box around the landmarks in that
    direction is shifted towards the fingers, and three times its longer side is the side of the
    square. Source: `MPHandPose` of the OpenCV zoo.

    :param palms: with the landmarks of MediaPipe, in image pixels; N may be 0.
    """
    points = palms.keypoints[..., :2]
    ahead = points[:, MIDDLE_FINGER] - points[:, WRIST]
    theta = np.arctan2(ahead[:, 0], -ahead[:, 1])
    cos, sin = np.cos(theta), np.sin(theta)
    turn = np.stack([np.stack([cos, sin], 1), np.stack([-sin, cos], 1)], 1)  # To the palm's axes.
    turned = points @ turn.transpose(0, 2, 1)
    low, high = turned.min(axis=1), turned.max(axis=1)
    center = (low + high) / 2
    center[:, 1] -= HAND_SHIFT * (high - low)[:, 1]
    side = HAND_SCALE * (high - low).max(axis=1)
    found = palms.detections
    boxes = np.hstack([(center[:, None] @ turn)[:, 0], side[:, None], side[:, None]])
    return OrientedBoxes(boxes, theta, found.scores, found.labels)


def _anchors(input_hw: tuple[int, int]) -> np.ndarray:
    """Return the centers of all anchors in input pixels: (N, 2) float32, x and y."""
    parts = [
        np.repeat((cells_of_stride(input_hw, stride) + 0.5) * stride, per_cell, axis=0)
        for stride, per_cell in GRIDS
    ]
    return np.concatenate(parts, dtype=np.float32)


def find_palms(network: NetworkDescription) -> tuple[TensorSpec, TensorSpec] | None:
    """Find (1, N, 18) and (1, N, 1) of all anchors; None: these are not the outputs."""
    specs = sorted(network.outputs, key=lambda spec: -spec.shape[-1] if spec.shape else 0)
    if len(specs) != 2 or not all(map(is_scores, specs)):
        return None
    if network.class_count not in (None, 0, 1):
        return None
    count = len(_anchors(network.input_hw))
    sizes = [(spec.shape[1] in (count, -1), spec.shape[2]) for spec in specs]
    return (specs[0], specs[1]) if sizes == [(True, VALUES), (True, 1)] else None


def _open(network: NetworkDescription) -> PalmHead:
    found = find_palms(network)
    if found is None:
        raise _mismatch(str(network))
    return PalmHead(tuple(spec.name for spec in found))


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        'Not the palm detection of MediaPipe: expected (1, N, 18) and (1, N, 1) with two anchors '
        f'per cell of stride 8 and six of stride 16, got {seen}.',
        remedy='Use palm_detection_mediapipe of the OpenCV zoo, or choose another decoder.',
    )


#: Source: `MPPalmDet._preprocess` of the OpenCV zoo.
MEDIAPIPE_PALM = Family(
    'mediapipe_palm',
    'pose',
    {'resize': 'letterbox', 'pad_value': 0, 'channel_order': 'rgb', 'scale': 1 / 255},
    _open,
    layouts=(
        BoxLayout(
            (Out('B N V', f'box:4 extras:{2 * LANDMARKS}'), Out('B N V', 'scores:1')),
            Rows(((8, 16),), (2, 6), covers=True),
            Coding('offsets', place=0.5, unit='pixel', size='linear', has_points=True),
            activation='sigmoid',
            extras='keypoints',
            regions=hand_regions,
        ),
    ),
    exporter='none',
)
