"""Base class of objects with more than a box, such as a mask."""

from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from trt_ros.results.boxes import Detections, Objects

BoxedT = TypeVar('BoxedT', bound='BoxedObjects')


def _of_detections(name: str) -> property:
    """Return a property of objects that is one of their `detections`."""
    return property(
        attrgetter(f'detections.{name}'),
        lambda self, value: setattr(self.detections, name, value),
    )


class BoxedObjects(Objects):
    """Objects with `detections`, and more of each."""

    detections: Detections

    if not TYPE_CHECKING:  # `Objects` describes them.
        xyxy, scores, labels = map(_of_detections, ('xyxy', 'scores', 'labels'))
        ids, class_names = map(_of_detections, ('ids', 'class_names'))
        region_results = _of_detections('region_results')

    def with_ids(self: BoxedT, ids: np.ndarray | None) -> BoxedT:
        """Return the same objects with other identities."""
        changed = copy(self)
        changed.detections = self.detections.with_ids(ids)
        return changed
