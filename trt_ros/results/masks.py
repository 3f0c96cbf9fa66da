"""Masks: the results of segmentation networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from trt_ros.results.base import Result, WriteArray
from trt_ros.results.boxes import BoxedObjects, Detections
from trt_ros.results.labels import name_of


def unlabeled(dtype: np.dtype[Any] | type[np.generic]) -> int:
    """Return the value of pixels without a class: the maximum, which LabelInfo reserves for it."""
    return int(np.iinfo(dtype).max)


def mask_dtype(class_count: int) -> type[np.uint8] | type[np.uint16]:
    """Return the dtype of a mask whose values are 0 to `class_count` - 1, or `unlabeled`."""
    return np.uint8 if class_count <= unlabeled(np.uint8) else np.uint16


def as_confidence(probability: np.ndarray) -> np.ndarray:
    """Convert probabilities to uint8, 0 to 255; NaN becomes 0. Overwrites its argument."""
    probability *= 255
    probability += 0.5
    np.fmax(probability, 0, out=probability)  # NaN, too.
    np.fmin(probability, 255, out=probability)
    return probability.astype(np.uint8)


@dataclass(eq=False)
class Instances(BoxedObjects):
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

    def take(self, indices: np.ndarray) -> Instances:
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

    def numbers(self) -> np.ndarray:
        """Return the number of the object of each pixel, from 1: (H, W) uint16."""
        return self.paint(np.arange(1, len(self) + 1, dtype=np.uint16))

    def class_masks(
        self, dtype: type[np.generic] = np.uint16, *, with_confidence: bool = False
    ) -> list[ClassMask]:
        """Return the class of each pixel as one mask: class index + 1, 0 outside all masks."""
        scores = as_confidence(self.scores.copy()) if with_confidence else None
        confidence = None if scores is None else self.paint(scores)
        return [ClassMask(self.paint((self.labels + 1).astype(dtype)), confidence)]

    def to_supervision(self) -> Any:
        """Return the objects as `supervision.Detections`, with masks of the size of the image."""
        found, (width, height) = super().to_supervision(), self.image_wh
        found.mask = np.zeros((len(self), height, width), bool)
        for image, mask, (x, y) in zip(found.mask, self.masks, self.origins_xy):
            image[y : y + mask.shape[0], x : x + mask.shape[1]] = mask
        return found

    def _fields_of(self, index: int) -> dict[str, Any]:
        return {'mask': self.masks[index], 'origin_xy': self.origins_xy[index]}

    def _json_of(self, index: int) -> dict[str, Any]:
        return {'mask': run_lengths(self.masks[index], self.origins_xy[index], self.image_wh)}

    def _coco_of(self, index: int) -> dict[str, Any]:
        return {'segmentation': self._json_of(index)['mask']}


class LazyMasks(Sequence[np.ndarray]):
    """Masks that are computed at first access, all `count` of them."""

    def __init__(self, count: int, compute: Callable[[], Sequence[np.ndarray]]) -> None:
        self._count = count
        self._compute = cache(compute)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return self._compute()[index]


@dataclass(eq=False)
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


@dataclass(eq=False)
class ClassMask(Result):
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
    class_names: Sequence[str] = field(default=(), kw_only=True)

    @property
    def names(self) -> list[str]:
        """Names of the classes that have pixels."""
        return [each['label'] for each in self.entry('', None)['classes']]

    def class_masks(
        self, dtype: type[np.generic] = np.uint16, *, with_confidence: bool = False
    ) -> list[ClassMask]:
        """Return this mask."""
        return [self]

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        return {'mask': self.entry('mask', write_array)}

    def entry(self, name: str, write_array: WriteArray | None) -> dict[str, Any]:
        """Return the JSON data of the mask; `name` is that of its file."""
        labels, counts = np.unique(self.labels, return_counts=True)
        entry: dict[str, Any] = {
            'classes': [
                {
                    'label': name_of(self.class_names, label),
                    'class_index': label,
                    'fraction': round(count / self.labels.size, 5),
                }
                for label, count in zip(labels.tolist(), counts.tolist())
                if label != unlabeled(self.labels.dtype)
            ]
        }
        if write_array is not None:
            entry['file'] = write_array(f'{name}.png', self.labels)
        return entry

    def as_coco(
        self, image_id: int, categories: Mapping[int, int], *, with_area: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield an entry without a score per class, as in the stuff format."""
        height, width = self.labels.shape
        for label in np.unique(self.labels).tolist():
            if label == unlabeled(self.labels.dtype):
                continue
            category = categories.get(label)
            if category is not None:
                pixels = self.labels == label
                entry = {
                    'image_id': image_id,
                    'category_id': category,
                    'segmentation': run_lengths(pixels, np.zeros(2, np.int32), (width, height)),
                }
                if with_area:
                    columns, rows = (np.flatnonzero(pixels.any(axis)).tolist() for axis in (0, 1))
                    size = columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0]
                    entry |= {'area': int(pixels.sum()), 'bbox': [columns[0], rows[0], *size]}
                yield entry


class ClassMasks(Result, dict[str, ClassMask]):
    """Masks of a network with several of them, by output, with their numbers of classes."""

    def __init__(self, masks: Mapping[str, ClassMask], class_counts: Sequence[int | None]) -> None:
        super().__init__(masks)
        self._class_counts = class_counts

    @property
    def class_names(self) -> Sequence[str]:
        """Class names of all masks, one mask after the other."""
        return tuple(name for mask in self.values() for name in mask.class_names)

    @class_names.setter
    def class_names(self, names: Sequence[str]) -> None:
        remaining = iter(names)
        for mask, count in zip(self.values(), self._class_counts):
            mask.class_names = tuple(islice(remaining, count))

    def class_masks(
        self, dtype: type[np.generic] = np.uint16, *, with_confidence: bool = False
    ) -> list[ClassMask]:
        """Return the masks, in the order of the outputs."""
        return list(self.values())

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        return {
            'masks': {
                name: mask.entry(
                    ''.join(each if each.isalnum() else '_' for each in name) + '_mask',
                    write_array,
                )
                for name, mask in self.items()
            }
        }


def run_lengths(
    mask: np.ndarray, origin_xy: np.ndarray, image_wh: tuple[int, int]
) -> dict[str, Any]:
    """Encode a mask, (h, w) bool at a pixel, as the compressed run-length encoding of COCO."""
    (width, height), (left, top) = image_wh, origin_xy.tolist()
    columns = np.zeros((mask.shape[1], height), bool)  # Runs go down the columns.
    columns[:, top : top + mask.shape[0]] = mask.T
    edges = np.flatnonzero(np.diff(columns.ravel(), prepend=False, append=False))
    counts = np.diff(np.concatenate([[0], edges + left * height, [width * height]]))
    if len(edges) and not counts[-1]:
        counts = counts[:-1]  # The last run is of 1.
    return {'size': [height, width], 'counts': _as_text(counts)}


def _as_text(counts: np.ndarray) -> str:
    """
    Return run lengths as text.

    From the third on, they are differences from the one before the last; each is a signed number
    of 5 bits per character, the lowest first, where bit 5 says that more follow, plus 48.
    """
    rest = counts.copy()
    rest[3:] -= counts[1:-2]
    characters, present = [], []
    is_open = np.ones(len(rest), bool)
    while is_open.any():
        low = rest & 31
        rest = rest >> 5
        has_more = np.where(low & 16, rest != -1, rest != 0)
        characters.append(low + 32 * has_more + 48)
        present.append(is_open)
        is_open = is_open & has_more
    text = np.stack(characters, 1)[np.stack(present, 1)]
    return str(text.astype(np.uint8).tobytes(), 'ascii')
