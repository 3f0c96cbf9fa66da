"""Objects and their boxes, axis-aligned or rotated: the results of detectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from trt_ros.errors import requires
from trt_ros.results.base import Result, WriteArray, rounded
from trt_ros.results.classes import Classification
from trt_ros.results.labels import name_of

ObjectsT = TypeVar('ObjectsT', bound='Objects')
BoxesT = TypeVar('BoxesT', bound='Boxes')
BoxedT = TypeVar('BoxedT', bound='BoxedObjects')


@dataclass(frozen=True)
class Object:
    """
    One object of a result, in source-image pixels.

    :param xyxy: (4,) float32, the upright box.
    :param name: class name, or the class index if the class has no name.
    :param id: identity; None: there is none.
    :param cxcywh, theta: rotated box, see `OrientedBoxes`; else None.
    :param mask, origin_xy: (h, w) bool and the pixel of its upper-left corner; else None.
    :param keypoints: (K, 3) float32, see `Poses`; else None.
    :param region: result of a further network on this object; None: there is none.
    """

    xyxy: np.ndarray
    score: float
    label: int
    name: str
    id: int | str | None = None
    cxcywh: np.ndarray | None = None
    theta: float | None = None
    mask: np.ndarray | None = None
    origin_xy: np.ndarray | None = None
    keypoints: np.ndarray | None = None
    region: Result | None = None


class Objects(Result):
    """
    N objects with a box, a score and a class each, best score first; N may be 0.

    A sequence: an integer returns an `Object`; a slice, a mask (N,) bool or indices (K,) return
    some objects in their order.

    :ivar scores: (N,) float32, 0 to 1; `labels`: (N,) int32, class indices.
    :ivar ids: (N,) integers or texts, '' for none; None: no object has one.
    :ivar region_results: the result of a further network per object, None for those that were not
        run; [] if the model has none.
    """

    if TYPE_CHECKING:  # At run time they would become the defaults of the dataclasses' fields.
        scores: np.ndarray
        labels: np.ndarray
        ids: np.ndarray | None
        region_results: Sequence[Result | None]

        @property
        def xyxy(self) -> np.ndarray:
            """Upright boxes: (N, 4) float32, x1, y1, x2, y2 in source-image pixels."""

        @property
        def detections(self) -> Detections:
            """The upright boxes."""

    def rotated_boxes(self) -> np.ndarray:
        """Return (N, 5) float64: center x, y, width, height and the angle of the width."""
        boxes = np.zeros((len(self), 5))
        low, high = self.xyxy[:, :2].astype(np.float64), self.xyxy[:, 2:].astype(np.float64)
        boxes[:, :2], boxes[:, 2:4] = (low + high) / 2, high - low
        return boxes

    def corners(self) -> np.ndarray:
        """Return the corners: (N, 4, 2) float32, in pixels, in drawing order."""
        return self.xyxy[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)

    def region_classes(self, class_id_format: str) -> list[list[tuple[str, float]]]:
        """Return the best classes of the region of each object; [] without any; see `best`."""
        return [
            each.best(class_id_format=class_id_format) if isinstance(each, Classification) else []
            for each in self.region_results
        ]

    @abstractmethod
    def take(self: ObjectsT, indices: np.ndarray) -> ObjectsT:
        """Return some objects, (K,) indices, in their order."""

    @abstractmethod
    def with_ids(self: ObjectsT, ids: np.ndarray | None) -> ObjectsT:
        """Return the same objects with other identities."""

    @property
    def names(self) -> list[str]:
        """The class name of each object; the class index if the class has no name."""
        return [name_of(self.class_names, label) for label in self.labels.tolist()]

    def ids_as_text(self) -> list[str]:
        """Return the identity of each object as text, '' for none; [] if no object has one."""
        return [] if self.ids is None else [str(each) for each in self.ids.tolist()]

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[Object]:
        ids = [None] * len(self) if self.ids is None else self.ids.tolist()
        xyxy, scores, labels = self.xyxy, self.scores.tolist(), self.labels.tolist()
        regions = self.region_results or [None] * len(self)
        for index, (box, score, label, each_id) in enumerate(zip(xyxy, scores, labels, ids)):
            name, identity = name_of(self.class_names, label), None if each_id == '' else each_id
            more = self._fields_of(index)
            yield Object(box, score, label, name, identity, region=regions[index], **more)

    @overload
    def __getitem__(self, key: int) -> Object: ...

    @overload
    def __getitem__(self: ObjectsT, key: slice | np.ndarray | Sequence[int]) -> ObjectsT: ...

    def __getitem__(self: ObjectsT, key: Any) -> Object | ObjectsT:
        chosen = np.arange(len(self))[key]
        return next(iter(self.take(chosen[None]))) if chosen.ndim == 0 else self.take(chosen)

    def wanted(self: ObjectsT, thresholds: Any) -> ObjectsT:
        """Return the objects that the `Thresholds` by class let pass; without a choice, all."""
        if not thresholds.chooses_classes:
            return self
        passes = self.scores >= thresholds.min_scores(self.labels)
        return self.take(np.flatnonzero(passes)[: thresholds.max_detections])

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        return {
            'detections': [
                {
                    'label': each.name,
                    'class_index': each.label,
                    'score': round(each.score, 4),
                    'xyxy': rounded(each.xyxy),
                    **({} if each.id is None else {'id': each.id}),
                    **({} if each.region is None else {'region': each.region.as_json()}),
                    **self._json_of(index),
                }
                for index, each in enumerate(self)
            ]
        }

    def as_coco(
        self, image_id: int, categories: Mapping[int, int], *, with_area: bool = False
    ) -> Iterator[dict[str, Any]]:
        """
        Yield an entry per object: its box as x, y, width and height in pixels, and its score.

        Rotated boxes have the polygon of their corners, instances a compressed RLE, poses x, y
        and visibility per keypoint.
        """
        for index, each in enumerate(self):
            category = categories.get(each.label)
            if category is None:
                continue
            left, top, right, bottom = each.xyxy.tolist()
            entry: dict[str, Any] = {
                'image_id': image_id,
                'category_id': category,
                'bbox': [round(value, 2) for value in (left, top, right - left, bottom - top)],
                'score': round(each.score, 5),
                **({} if self.ids is None else {'track_id': self.ids.tolist()[index]}),
                **self._coco_of(index),
            }
            if with_area:
                _, _, width, height = entry['bbox']
                entry['area'] = (
                    round(width * height, 2) if each.mask is None else int(each.mask.sum())
                )
            yield entry

    def to_supervision(self) -> Any:
        """Return the objects as `supervision.Detections`; needs the package of that name."""
        with requires('supervision', 'to_supervision()', 'Run pip install supervision.'):
            import supervision

        ids = self.ids if self.ids is not None and self.ids.dtype.kind == 'i' else None
        names = {'class_name': np.array(self.names)}
        return supervision.Detections(
            self.xyxy, None, self.scores, self.labels, tracker_id=ids, data=names
        )

    def _fields_of(self, index: int) -> dict[str, Any]:
        """Return the fields of an `Object` that only this class has."""
        return {}

    def _json_of(self, index: int) -> dict[str, Any]:
        """Return the part of an object's JSON that only this class has."""
        return {}

    def _coco_of(self, index: int) -> dict[str, Any]:
        """Return the part of an object's COCO entry that only this class has."""
        return {}


@dataclass(eq=False, kw_only=True)
class Boxes(Objects):
    """Boxes with their scores, classes and identities."""

    ids: np.ndarray | None = None
    class_names: Sequence[str] = ()
    region_results: Sequence[Result | None] = ()

    def take(self: BoxesT, indices: np.ndarray) -> BoxesT:
        values: dict[str, Any] = {name: each[indices] for name, each in self._arrays().items()}
        if self.region_results:
            values['region_results'] = [self.region_results[i] for i in indices.tolist()]
        return replace(self, **values)

    def extended(self: BoxesT, others: Detections) -> BoxesT:
        """Return these boxes and then upright ones; both or none have ids."""
        more = self.from_detections(others)._arrays()
        joined = {
            name: np.concatenate([each, more[name]]) for name, each in self._arrays().items()
        }
        return replace(self, **joined, region_results=())

    @classmethod
    @abstractmethod
    def from_detections(cls: type[BoxesT], found: Detections) -> BoxesT:
        """Return upright boxes as boxes of this class."""

    def _arrays(self) -> dict[str, np.ndarray]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: each for name, each in values.items() if isinstance(each, np.ndarray)}

    def with_ids(self: BoxesT, ids: np.ndarray | None) -> BoxesT:
        return replace(self, ids=ids)


@dataclass(eq=False)
class Detections(Boxes):
    """
    N axis-aligned boxes, best score first; N may be 0.

    :param xyxy: (N, 4) float32, x1, y1, x2, y2 in source-image pixels, clipped to the image.
    :param scores: (N,) float32, 0 to 1.
    :param labels: (N,) int32, class indices.
    """

    xyxy: np.ndarray
    scores: np.ndarray
    labels: np.ndarray

    @classmethod
    def empty(cls) -> Detections:
        """Return detections with N = 0."""
        return cls(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int32))

    @classmethod
    def from_detections(cls, found: Detections) -> Detections:
        return found

    @property
    def detections(self) -> Detections:
        """These boxes."""
        return self


@dataclass(eq=False)
class OrientedBoxes(Boxes):
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

    @classmethod
    def from_detections(cls, found: Detections) -> OrientedBoxes:
        boxes = found.rotated_boxes().astype(np.float32)
        cxcywh, theta, names = boxes[:, :4], boxes[:, 4], found.class_names
        return cls(cxcywh, theta, found.scores, found.labels, ids=found.ids, class_names=names)

    @property
    def detections(self) -> Detections:
        """The upright boxes around these."""
        return Detections(
            self.xyxy, self.scores, self.labels, ids=self.ids, class_names=self.class_names
        )

    @property
    def xyxy(self) -> np.ndarray:
        """Bounding boxes: (N, 4) float32, x1, y1, x2, y2 in source-image pixels."""
        return np.hstack(hull(np.column_stack([self.cxcywh, self.theta])))

    def rotated_boxes(self) -> np.ndarray:
        return np.column_stack([self.cxcywh, self.theta]).astype(np.float64)

    def corners(self) -> np.ndarray:
        cos, sin = np.cos(self.theta), np.sin(self.theta)
        along = np.stack([cos, sin], axis=1) * self.cxcywh[:, 2:3] / 2
        across = np.stack([-sin, cos], axis=1) * self.cxcywh[:, 3:] / 2
        return np.asarray(
            self.cxcywh[:, None, :2]
            + np.stack([-along - across, along - across, along + across, across - along], axis=1)
        )

    def to_supervision(self) -> Any:
        """Return the boxes as `supervision.Detections`, with their corners."""
        found = super().to_supervision()
        found.data['xyxyxyxy'] = self.corners()
        return found

    def _fields_of(self, index: int) -> dict[str, Any]:
        return {'cxcywh': self.cxcywh[index], 'theta': float(self.theta[index])}

    def _json_of(self, index: int) -> dict[str, Any]:
        theta = round(float(self.theta[index]), 5)
        return {'cxcywh': rounded(self.cxcywh[index]), 'theta': theta}

    def _coco_of(self, index: int) -> dict[str, Any]:
        return {'segmentation': [rounded(self.take(np.array([index])).corners().ravel())]}


def hull(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the bounding boxes of (N, 5) rotated boxes: (N, 2) minima and (N, 2) maxima."""
    cos, sin = np.abs(np.cos(boxes[:, 4])), np.abs(np.sin(boxes[:, 4]))
    width, height = boxes[:, 2], boxes[:, 3]
    half = np.stack([width * cos + height * sin, width * sin + height * cos], axis=1) / 2
    return boxes[:, :2] - half, boxes[:, :2] + half


def _of_detections(name: str) -> property:
    """Return a property of objects that is one of their `detections`."""
    return property(
        attrgetter(f'detections.{name}'), lambda self, value: setattr(self.detections, name, value)
    )


class BoxedObjects(Objects):
    """Objects with `detections`, and more of each."""

    detections: Detections

    if not TYPE_CHECKING:  # `Objects` describes them.
        xyxy, scores, labels = map(_of_detections, ('xyxy', 'scores', 'labels'))
        ids, class_names = map(_of_detections, ('ids', 'class_names'))
        region_results = _of_detections('region_results')

    def with_ids(self: BoxedT, ids: np.ndarray | None) -> BoxedT:
        changed = copy(self)
        changed.detections = self.detections.with_ids(ids)
        return changed
