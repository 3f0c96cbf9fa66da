"""Base class of objects with more than a box, such as a mask."""

from collections.abc import Sequence
from copy import copy
from typing import TypeVar

import numpy as np

from trt_ros.results.base import Result
from trt_ros.results.boxes import Detections, Objects

BoxedT = TypeVar('BoxedT', bound='BoxedObjects')


class BoxedObjects(Objects):
    """Objects with `detections`, and more of each."""

    detections: Detections

    @property
    def xyxy(self) -> np.ndarray:
        """Upright boxes: (N, 4) float32, x1, y1, x2, y2 in source-image pixels."""
        return self.detections.xyxy

    @property
    def scores(self) -> np.ndarray:
        """Scores: (N,) float32, 0 to 1."""
        return self.detections.scores

    @property
    def labels(self) -> np.ndarray:
        """Class indices: (N,) int32."""
        return self.detections.labels

    @property
    def ids(self) -> np.ndarray | None:
        """Identities: (N,) integers or texts, '' for none; None: no object has one."""
        return self.detections.ids

    @property
    def class_names(self) -> Sequence[str]:
        """Class names by class index; () where nothing names the classes."""
        return self.detections.class_names

    @class_names.setter
    def class_names(self, names: Sequence[str]) -> None:
        self.detections.class_names = names

    @property
    def region_results(self) -> Sequence[Result | None]:
        """The result of a further network per object."""
        return self.detections.region_results

    @region_results.setter
    def region_results(self, results: Sequence[Result | None]) -> None:
        self.detections.region_results = results

    def with_ids(self: BoxedT, ids: np.ndarray | None) -> BoxedT:
        """Return the same objects with other identities."""
        changed = copy(self)
        changed.detections = self.detections.with_ids(ids)
        return changed
