"""Tracking of the objects in the images of one camera: OC-SORT, and the choice of a method."""

from collections.abc import Iterator
from numbers import Integral
from typing import Any, ClassVar, TypeVar

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.parameter_field import refuse_unknown
from trt_ros.results.boxes import Detections, Objects
from trt_ros.tracking import motion
from trt_ros.tracking.association import Pairs
from trt_ros.tracking.bytetrack import ByteTracker
from trt_ros.tracking.motion import Fields, TrackTable
from trt_ros.tracking.options import TrackOptions


class OcSortTracker(ByteTracker):
    """
    A tracker for objects that turn, stop or hide: `Tracker` with the three steps of OC-SORT.

    They are those of section 4 of Observation-Centric SORT (Cao et al. 2023, CVPR,
    arXiv:2203.14360): re-update, momentum and recovery, with the parameters of the paper in
    seconds at 30 Hz.
    """

    MOMENTUM_WEIGHT = 0.2
    MOMENTUM_SECONDS = 0.1  # Minimum age of the observation that a direction is measured from.
    MAX_VIRTUAL_OBSERVATIONS = 10

    FIELDS: ClassVar[Fields] = {
        **ByteTracker.FIELDS,
        'observed': (np.float64, (4,)),  # Last observation: cx, cy, w, h.
        # The filter after the last observation, as `mean` and `covariance`.
        'observed_mean': motion.FIELDS['mean'],
        'observed_covariance': motion.FIELDS['covariance'],
        # Center of an observation that is old enough, and of the one to replace it.
        'anchor': (np.float64, (2, 2)),
        'anchor_ns': (np.int64, ()),  # Time of the second.
    }

    def _move(self, shift: np.ndarray) -> None:
        super()._move(shift)
        by = shift[:, None]
        self._tracks['observed'][:2] += by
        self._tracks['observed_mean'][0][:2] += by
        self._tracks['anchor'][:] += by

    def _gains(self, pairs: Pairs, found: Detections, boxes: np.ndarray) -> np.ndarray:
        origin = self._tracks['anchor'][0][:, pairs.rows]
        moved = self._tracks['observed'][:2, pairs.rows] - origin
        intended = boxes[:2, pairs.columns] - origin
        lengths = np.hypot(*moved) * np.hypot(*intended)
        products = (moved * intended).sum(axis=0)
        cosines = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        consistency = 0.5 - np.arccos(np.clip(cosines, -1, 1)) / np.pi  # From -0.5 to 0.5.
        consistency *= self.MOMENTUM_WEIGHT * found.scores[pairs.columns]
        # A pair that overlaps remains possible, whatever its direction.
        return np.asarray(np.maximum(pairs.gains + consistency, 1e-6))

    def _last_boxes(self) -> np.ndarray:
        return self._tracks['observed']

    def _start(self, started: TrackTable, boxes: np.ndarray, stamp_ns: int) -> None:
        super()._start(started, boxes, stamp_ns)
        started['anchor'][:], started['anchor_ns'][:] = boxes[None, :2], stamp_ns
        started['observed'][:] = boxes
        started['observed_mean'][:] = started['mean']
        started['observed_covariance'][:] = started['covariance']

    def _observe(self, boxes: np.ndarray, is_seen: np.ndarray, stamp_ns: int) -> None:
        tracks = self._tracks
        hidden = np.flatnonzero(is_seen & (tracks['missed'] > 0))
        if len(hidden):
            again = tracks.take(hidden)
            self._follow(again, boxes[:, hidden], stamp_ns)
            tracks.put(hidden, again)
        super()._observe(boxes, is_seen, stamp_ns)
        for kept, present in (
            ('observed', boxes),
            ('observed_mean', tracks['mean']),
            ('observed_covariance', tracks['covariance']),
        ):
            np.copyto(tracks[kept], present, where=is_seen)
        is_due = is_seen & (stamp_ns - tracks['anchor_ns'] >= self.MOMENTUM_SECONDS * 1e9)
        anchor = tracks['anchor']
        np.copyto(anchor[0], anchor[1], where=is_due)
        np.copyto(anchor[1], boxes[:2], where=is_due)
        tracks['anchor_ns'][is_due] = stamp_ns

    def _follow(self, again: TrackTable, boxes: np.ndarray, stamp_ns: int) -> None:
        """
        Repeat filters from their last observations, along a straight virtual trajectory.

        They end as predicted for `stamp_ns`, not yet corrected with the present observation. One
        number of steps serves all: the largest number of images missed, up to a limit.
        """
        steps = min(int(again['missed'].max()) + 1, self.MAX_VIRTUAL_OBSERVATIONS)
        seconds = (stamp_ns - again['seen_ns']) * (1e-9 / steps)
        again['mean'][:] = again['observed_mean']
        again['covariance'][:] = again['observed_covariance']
        last = again['observed']
        for step in range(1, steps + 1):
            motion.predict(again, seconds)
            if step < steps:
                motion.correct(again, last + (boxes - last) * (step / steps))


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
    :raises ParameterError: when a method or option does not exist, or is out of its range.
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
        if not (isinstance(rate_hz, (int, float, np.number)) and rate_hz > 0):
            raise ParameterError(f'rate_hz is {rate_hz!r}.', remedy='Set it to more than 0.')
        refuse_unknown(TrackOptions, options)
        self._tracker, self._options = METHODS[method](ids), TrackOptions(**options)
        if np.all(options.get('low_score', 0) > self._options.high_score):
            raise ParameterError(
                f'low_score is {self._options.low_score}, above high_score, which is '
                f'{self._options.high_score}.',
                remedy='Set low_score to less: a weak detection continues a track, and a strong '
                'one starts it.',
            )
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
        :raises ParameterError: when `found` are no objects, as the depth of an image.
        """
        if not isinstance(found, Objects):
            raise ParameterError(
                f'The tracker got a {type(found).__name__}.',
                cause='It tracks objects with a box each.',
                remedy='Pass what a pipeline of detections, poses or instances returns.',
            )
        options = options or self._options
        if stamp_ns is None:
            if self._period_ns * 1e-9 > options.buffer_seconds:
                raise ParameterError(
                    f'buffer_seconds is {options.buffer_seconds}, less than the time between two '
                    f'images, {self._period_ns * 1e-9:g} s by rate_hz.',
                    cause='Each track would end before the next image.',
                    remedy='Set buffer_seconds to the time of several images.',
                )
            stamp_ns = self._stamp_ns + self._period_ns
        is_time = isinstance(stamp_ns, Integral) and not isinstance(stamp_ns, bool)
        if not (is_time and abs(stamp_ns) < 1 << 62):
            raise ParameterError(
                f'stamp_ns is {stamp_ns!r}.', remedy='Set it to the time in nanoseconds.'
            )
        self._stamp_ns = int(stamp_ns)
        tracks = self._tracker.update(found.detections, self._stamp_ns, options, vectors)
        self.lost = tracks.lost
        return found.take(tracks.indices).with_ids(tracks.ids)
