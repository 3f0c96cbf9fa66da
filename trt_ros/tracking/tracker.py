"""Tracking of the objects in the images of one camera."""

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.results.boxes import Detections, Objects
from trt_ros.tracking.bytetrack import ByteTracker, TrackOptions
from trt_ros.tracking.ocsort import OcSortTracker

ObjectsT = TypeVar('ObjectsT', bound=Objects)

METHODS = {'bytetrack': ByteTracker, 'ocsort': OcSortTracker}


class Tracker:
    """
    A tracker of the objects in the images of one camera; for one thread at a time.

    >>> tracker = Tracker()
    >>> for image in read_images('street.mp4'):
    ...     found = tracker(pipeline(image))

    :param method: 'ocsort', which also uses the direction of motion and finds hidden objects
        again, or 'bytetrack'.
    :param ids: new identities; trackers that share them never give two objects the same one.
    :param rate_hz: number of images per second, for images without a stamp.
    :param options: fields of `TrackOptions`.
    :raises ParameterError: when the method does not exist.
    :ivar lost: predicted boxes of the tracks without a detection in the last image.
    """

    def __init__(
        self,
        method: str = 'ocsort',
        ids: Iterator[int] | None = None,
        *,
        rate_hz: float = 30.0,
        **options: Any,
    ) -> None:
        if method not in METHODS:
            raise ParameterError(
                f'The tracking method {method!r} does not exist.',
                remedy=f'Choose one of {", ".join(METHODS)}.',
            )
        self._tracker, self._options = METHODS[method](ids), TrackOptions(**options)
        self._stamp_ns, self._period_ns = 0, round(1e9 / rate_hz)
        self.lost = Detections.empty()

    @property
    def resets(self) -> int:
        """How often all tracks were ended because the time jumped."""
        return self._tracker.resets

    def __call__(
        self,
        found: ObjectsT,
        stamp_ns: int | None = None,
        *,
        options: TrackOptions | None = None,
        vectors: np.ndarray | None = None,
    ) -> ObjectsT:
        """
        Return the objects that belong to a track, with their identities as `ids`.

        :param found: the objects of the next image, see `ByteTracker.update`.
        :param stamp_ns: time of the image in nanoseconds; by default, 1 / rate_hz after the last.
        :param options: options for this image, instead of those of the tracker.
        :param vectors: (N, D), the appearance of each object.
        """
        self._stamp_ns = self._stamp_ns + self._period_ns if stamp_ns is None else stamp_ns
        tracks = self._tracker.update(
            found.detections, self._stamp_ns, options or self._options, vectors
        )
        self.lost = tracks.lost.with_ids(tracks.lost_ids)
        return found.take(tracks.indices).with_ids(tracks.ids)
