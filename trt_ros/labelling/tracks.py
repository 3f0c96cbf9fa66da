"""Identities of the objects in the images of a recording."""

from itertools import count
from typing import Any

from trt_ros.errors import ParameterError
from trt_ros.labelling.results import ImageHeader
from trt_ros.results.boxes import ObjectsT
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tracking.tracker import Tracker


class Tracking:
    """A tracker per topic; no two objects of a recording get the same identity."""

    def __init__(self, method: str, pipeline: Pipeline[Any]) -> None:
        if not pipeline.decoder.finds_objects:
            raise ParameterError(
                f'The results of decoder {pipeline.decoder.name} cannot be tracked.',
                cause='They have no boxes.',
                remedy='Leave --track out.',
            )
        self._method, self._ids = method, count(1)
        self._trackers: dict[str, Tracker] = {}

    def __call__(self, topic: str, header: ImageHeader, found: ObjectsT) -> ObjectsT:
        """Return the objects that belong to a track, with their identities."""
        if topic not in self._trackers:
            # Labels have all objects from their first image on.
            self._trackers[topic] = Tracker(self._method, self._ids, min_hits=1)
        seconds, nanoseconds = header.stamp
        return self._trackers[topic](found, 10**9 * seconds + nanoseconds)
