"""Palm detection of MediaPipe: palms with seven landmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.faces import FaceHead
from trt_ros.vision.decoders.family import (
    Family,
    NetworkDescription,
    cells_of_stride,
    is_scores,
    sigmoid,
)

LANDMARKS = 7
VALUES = 4 + 2 * LANDMARKS
#: Stride and anchors per cell.
GRIDS = ((8, 2), (16, 6))


@dataclass(frozen=True)
class PalmHead(FaceHead):
    """
    A decoder of boxes with landmarks (1, N, 18) and of logits (1, N, 1).

    The anchors of a cell lie in its centre: the centre and the landmarks are offsets from it, the
    size is as it is, all in input pixels. Source: `MPPalmDet` of the OpenCV zoo.
    """

    landmarks: ClassVar[int] = LANDMARKS

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
        centre, half = anchors[keep] + rows[keep, :2], rows[keep, 2:4] / 2
        landmarks = np.tile(anchors[keep], LANDMARKS) + rows[keep, 4:]
        return np.hstack([centre - half, centre + half]), landmarks, scores[keep]


def _anchors(input_hw: tuple[int, int]) -> np.ndarray:
    """Return the centres of all anchors in input pixels: (N, 2) float32, x and y."""
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
)
