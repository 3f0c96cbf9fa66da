"""What the other tasks find in one image; beside `Detections`, and in the same pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.vision.detections import Detections

#: What the network makes of one image, by the names of its outputs; each with a batch axis of 1.
Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Instances:
    """
    N objects with a mask each, best score first; N may be 0.

    :param masks: N of (h, w) bool, each as large as the pixels whose centres its box covers.
    :param origins_xy: (N, 2) int32, the pixel where a mask's upper left corner lies.
    """

    detections: Detections
    masks: tuple[np.ndarray, ...]
    origins_xy: np.ndarray
    image_wh: tuple[int, int]

    def __len__(self) -> int:
        return len(self.masks)

    def paint(self, values: np.ndarray) -> np.ndarray:
        """
        Draw all masks into one image; where two overlap, the better score is on top.

        :param values: (N,), one an object, such as 1 to N or labels + 1.
        :returns: (H, W) of the dtype of `values`; 0 where there is no object.
        """
        width, height = self.image_wh
        image = np.zeros((height, width), values.dtype)
        for mask, (x, y), value in reversed(list(zip(self.masks, self.origins_xy, values))):
            image[y : y + mask.shape[0], x : x + mask.shape[1]][mask] = value
        return image


@dataclass(frozen=True)
class Poses:
    """
    N objects with K keypoints each, best score first; N may be 0.

    :param keypoints: (N, K, 3) float32: x, y in source-image pixels, which may lie outside the
        image, and how visible it is, 0 to 1.
    """

    detections: Detections
    keypoints: np.ndarray

    def __len__(self) -> int:
        return len(self.keypoints)


@dataclass(frozen=True)
class OrientedBoxes:
    """
    N rotated boxes, best score first; N may be 0. They may reach out of the image.

    :param cxcywh: (N, 4) float32 in source-image pixels; w lies along `theta`.
    :param theta: (N,) float32, radians from the x axis towards the y axis, that is clockwise as
        one sees it.
    :param scores: (N,) float32, 0 to 1.
    :param labels: (N,) int32, class indices.
    """

    cxcywh: np.ndarray
    theta: np.ndarray
    scores: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class Classification:
    """
    How likely each class is.

    :param scores: (C,) float32, 0 to 1.
    """

    scores: np.ndarray

    def top(self, count: int) -> np.ndarray:
        """Rank the best `count` classes: (K,) int32, best first, of equals the first."""
        return np.argsort(-self.scores, kind='stable')[:count].astype(np.int32)


@dataclass(frozen=True)
class ClassMask:
    """
    The class of each pixel of the source image.

    :param labels: (H, W) uint8, or uint16 where there are or may be more than 256 classes.
    """

    labels: np.ndarray


@dataclass(frozen=True)
class Depth:
    """
    How far each pixel of the source image is, as the network means it.

    :param values: (H, W) float32: metres, or relative depth, or its inverse.
    """

    values: np.ndarray
