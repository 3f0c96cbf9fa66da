"""Results of the tasks beside detection for one image, in source-image pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, overload

import numpy as np

from trt_ros.vision.detections import Detections
from trt_ros.vision.thresholds import Thresholds

#: Network outputs for one image by name, each with a batch axis of 1.
Tensors = Mapping[str, np.ndarray]


def unlabeled(dtype: np.dtype[Any] | type[np.generic]) -> int:
    """Return the value of pixels without a class: the maximum, which LabelInfo reserves for it."""
    return int(np.iinfo(dtype).max)


def mask_dtype(class_count: int) -> type[np.uint8] | type[np.uint16]:
    """Return the dtype of a mask whose values are 0 to `class_count` - 1, or `unlabeled`."""
    return np.uint8 if class_count <= unlabeled(np.uint8) else np.uint16


@dataclass(frozen=True)
class Instances:
    """
    N objects with one mask each, best score first; N may be 0.

    :param masks: N arrays (h, w) bool, each of the pixels of a part of the image that contains
        the object; of networks that limit masks to their boxes, those whose centers lie in it.
    :param origins_xy: (N, 2) int32, pixel of each mask's upper-left corner.
    """

    detections: Detections
    masks: Sequence[np.ndarray]
    origins_xy: np.ndarray
    image_wh: tuple[int, int]

    def __len__(self) -> int:
        return len(self.masks)

    def take(self, indices: np.ndarray) -> Instances:
        """Return some objects, (K,) indices, in their order."""
        return Instances(
            self.detections.take(indices),
            LazyMasks(len(indices), lambda: [self.masks[index] for index in indices.tolist()]),
            self.origins_xy[indices],
            self.image_wh,
        )

    def paint(self, values: np.ndarray) -> np.ndarray:
        """
        Draw all masks into one image; where masks overlap, the better score is on top.

        :param values: (N,), one per object, such as 1 to N or labels + 1.
        :returns: (H, W) of the dtype of `values`; 0 outside all masks.
        """
        width, height = self.image_wh
        image = np.zeros((height, width), values.dtype)
        for mask, (x, y), value in reversed(list(zip(self.masks, self.origins_xy, values))):
            image[y : y + mask.shape[0], x : x + mask.shape[1]][mask] = value
        return image


class LazyMasks(Sequence[np.ndarray]):
    """
    Masks that are computed at first access, all of them.

    :param compute: returns `count` masks.
    """

    def __init__(self, count: int, compute: Callable[[], Sequence[np.ndarray]]) -> None:
        self._count = count
        self._compute = cache(compute)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[np.ndarray]: ...

    def __getitem__(self, index: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        masks: Sequence[np.ndarray] = self._compute()
        return masks[index]


@dataclass(frozen=True)
class PaintedInstances(Instances):
    """
    Instances whose masks are painted already, with the better score on top.

    :param owners: (H, W) uint16: place of the object of a pixel + 1, 0 outside all masks.
    :param classes: (H, W) uint8 or uint16: its label + 1, likewise.
    """

    owners: np.ndarray
    classes: np.ndarray

    def paint(self, values: np.ndarray) -> np.ndarray:
        """
        Draw all masks into one image, see `Instances`.

        For 1 to N and labels + 1 the returned image may be `owners` or `classes`: do not modify
        it.
        """
        if np.array_equal(values, np.arange(1, len(self) + 1)):
            return self.owners.astype(values.dtype, copy=False)
        if np.array_equal(values, self.detections.labels + 1):
            return self.classes.astype(values.dtype, copy=False)
        return np.concatenate([np.zeros(1, values.dtype), values]).take(self.owners)


@dataclass(frozen=True)
class Poses:
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

    def __len__(self) -> int:
        return len(self.keypoints)

    def take(self, indices: np.ndarray) -> Poses:
        """Return some objects, (K,) indices, in their order."""
        regions = self.regions and self.regions.take(indices)
        return Poses(self.detections.take(indices), self.keypoints[indices], regions)

    def wanted(self, thresholds: Thresholds) -> Poses:
        """Return the objects that the thresholds by class let pass; without a choice, all."""
        if not thresholds.chooses_classes:
            return self
        return self.take(self.detections.wanted(thresholds))

    @classmethod
    def join(cls, poses: Sequence[Poses]) -> Poses:
        """Return the objects of several results with the same keypoints, without regions."""
        if not poses:
            return cls(Detections.empty(), np.zeros((0, 0, 3), np.float32))
        found = [each.detections for each in poses]
        return cls(
            Detections(
                np.concatenate([each.xyxy for each in found]),
                np.concatenate([each.scores for each in found]),
                np.concatenate([each.labels for each in found]),
            ),
            np.concatenate([each.keypoints for each in poses]),
        )


@dataclass(frozen=True)
class OrientedBoxes:
    """
    N rotated boxes, best score first; N may be 0. They may extend beyond the image.

    :param cxcywh: (N, 4) float32 in source-image pixels; w lies along `theta`.
    :param theta: (N,) float32, radians from the x axis towards the y axis, clockwise in the
        image.
    :param scores: (N,) float32, 0 to 1.
    :param labels: (N,) int32, class indices.
    """

    cxcywh: np.ndarray
    theta: np.ndarray
    scores: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def corners(self) -> np.ndarray:
        """Compute the corners: (N, 4, 2) float32, in pixels, in drawing order."""
        cos, sin = np.cos(self.theta), np.sin(self.theta)
        along = np.stack([cos, sin], axis=1) * self.cxcywh[:, 2:3] / 2
        across = np.stack([-sin, cos], axis=1) * self.cxcywh[:, 3:] / 2
        return np.asarray(
            self.cxcywh[:, None, :2]
            + np.stack([-along - across, along - across, along + across, across - along], axis=1)
        )

    def take(self, indices: np.ndarray) -> OrientedBoxes:
        """Return some boxes, (K,) indices, in their order."""
        return OrientedBoxes(
            self.cxcywh[indices], self.theta[indices], self.scores[indices], self.labels[indices]
        )


@dataclass(frozen=True)
class Classification:
    """
    The score of each class.

    :param scores: (C,) float32, 0 to 1.
    """

    scores: np.ndarray

    def top(self, count: int) -> np.ndarray:
        """Return the best `count` classes: (K,) int32, best first, the first among equals."""
        return np.argsort(-self.scores, kind='stable')[:count].astype(np.int32)


@dataclass(frozen=True)
class ClassMask:
    """
    The class of each pixel of the source image.

    :param labels: (H, W) uint8, or uint16 with possibly more than 255 classes; pixels without a
        class are `unlabeled`.
    :param confidence: (H, W) uint8, score of the class from 0 to 255; None: not computed.
    :param is_binary: whether class 0 is the background of the only class, 1.
    """

    labels: np.ndarray
    confidence: np.ndarray | None = None
    is_binary: bool = False


#: Masks of a network with several of them, by output.
ClassMasks = Mapping[str, ClassMask]


@dataclass(frozen=True)
class Depth:
    """
    The depth of each pixel of the source image, in the unit of the network.

    :param values: (H, W) float32: meters, relative depth or its inverse.
    """

    values: np.ndarray
