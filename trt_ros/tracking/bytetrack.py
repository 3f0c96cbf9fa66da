"""ByteTrack: a tracker of detections, the base class of the others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
import itertools
from typing import ClassVar

import numpy as np

from trt_ros.results.boxes import Detections
from trt_ros.tracking import appearance, motion
from trt_ros.tracking.appearance import Similarity
from trt_ros.tracking.association import Pairs, best_pairs, overlapping, to_corners
from trt_ros.tracking.camera_motion import camera_shift
from trt_ros.tracking.motion import Fields, TrackTable
from trt_ros.tracking.options import DEFAULT_OPTIONS, TrackOptions

# Limits on time and memory, whatever arrives: the best detections, and the tracks last seen.
MAX_DETECTIONS, MAX_TRACKS = 1000, 2000
MAX_SHRINKAGE = 0.05  # Of the box of a track in space, per image.
MAX_PIXELS = 1e6  # Larger coordinates are not those of an image.


@dataclass(frozen=True)
class Tracks:
    """
    The tracks in one image.

    :param indices: (K,) int64, the detections that belong to a track, ascending: best score first.
    :param ids: (K,) int64, their identities, from 1.
    :param lost: predicted boxes of the tracks without a detection, in pixels, which may lie
        outside the image, with their ids, int64; their scores are 0.
    """

    indices: np.ndarray
    ids: np.ndarray
    lost: Detections


@dataclass
class _Image:
    """
    The detections of an image, and the tracks that they belong to.

    :param boxes: (4, N) float64 cx, cy, w, h.
    :param high: indices of the detections above the high score that have no track yet.
    :param weak: indices of those between the two scores.
    :param match: index of each track's detection; -1 for none.
    :param units: (N, D) normalized appearance vectors; None without.
    """

    found: Detections
    stamp_ns: int
    options: TrackOptions
    boxes: np.ndarray
    high: np.ndarray
    weak: np.ndarray
    match: np.ndarray
    camera: int = 0
    lag_seconds: float = 0.0
    units: np.ndarray | None = None
    similarity: Similarity | None = None


class ByteTracker:
    """
    A ByteTrack tracker of the objects in the images of one camera; for one thread at a time.

    The method is that of ByteTrack (Zhang et al. 2022, ECCV, arXiv:2110.06864), algorithm 1:
    detections above the high score are assigned to the predicted boxes of all tracks by IoU, and
    the detections between the two scores to those of the remaining tracks. Other than in the
    paper, time is that of the images, not their number.

    Appearance vectors add to it as in Deep OC-SORT (Maggiolino et al. 2023, arXiv:2302.11813):
    among pairs that overlap, similar ones are preferred. Other than in the paper, detections that
    remain are at last assigned to tracks by their similarity alone, whatever their distance.

    In space, boxes are (N, 6) x1, y1, z1, x2, y2, z2 in meters, with z up, of several cameras. A
    track is missed by the camera only that saw it last. Boxes are compared by the share of the
    smaller one that overlaps, since a box at the edge of an image is that of a part. An image may
    be older than the one before it, by at most the buffer.

    :param ids: new identities; trackers that share them never give two objects the same one.
    :ivar resets: how often all tracks were ended because the time jumped.
    """

    FIELDS: ClassVar[Fields] = {
        'id': (np.int64, ()),  # 0: none yet.
        'label': (np.int32, ()),
        'hits': (np.int32, ()),
        'missed': (np.int32, ()),  # Number of images since the last detection.
        'seen_ns': (np.int64, ()),  # Time of the last detection.
        **motion.FIELDS,
    }

    def __init__(self, ids: Iterator[int] | None = None, *, in_space: bool = False) -> None:
        self._ids = itertools.count(1) if ids is None else ids
        self._in_space = in_space
        self.stamp_ns: int | None = None
        self.resets = 0
        # With `appearance`, (D,), once there were vectors.
        self._fields = motion.fields_in_space(self.FIELDS) if in_space else self.FIELDS
        self._tracks = TrackTable(self._fields)

    def update(
        self,
        found: Detections,
        stamp_ns: int,
        options: TrackOptions = DEFAULT_OPTIONS,
        vectors: np.ndarray | None = None,
        camera: int = 0,
    ) -> Tracks:
        """
        Advance the tracks to the time of an image, and assign its detections to them.

        A time before that of the last image, or later by more than the buffer, ends all tracks.

        :param found: the detections, those below the high score included; detections without
            area, with NaN or Inf, or beyond the best 1000, belong to no track.
        :param stamp_ns: the time of the image in nanoseconds; several images may share one.
        :param vectors: (N, D) floats of any norm, the appearance of each detection; rows that are
            zero or not finite have none. If D changes, the tracks forget their appearance.
        :param camera: number of the camera, of several in space.
        :raises TensorMismatchError: if there is not one vector per detection.
        """
        if vectors is not None:
            appearance.check_rows(vectors, len(found))
        lag_seconds = self._advance(stamp_ns, options.buffer_seconds)
        stamp_ns = stamp_ns + round(lag_seconds * 1e9)
        match, candidates = np.full(len(self._tracks), -1), _candidates(found, options)
        image = _Image(found, stamp_ns, options, *candidates, match, camera, lag_seconds)
        if vectors is not None and len(image.high):
            # Zero for weak detections: they are hidden in part, often by another object.
            image.units = appearance.unit_vectors(vectors, image.high)
            self._prepare_appearance(image.units.shape[1])
            image.similarity = Similarity(self._tracks['appearance'], image.units, image.high)
        self._associate(image)
        if image.similarity is not None:
            self._find_again(image, image.similarity)
        self._correct(image)
        return self._finish(image)

    def _prepare_appearance(self, size: int) -> None:
        field = (np.float32, (size,))
        if self._fields.get('appearance') != field:
            self._fields = {**self._fields, 'appearance': field}
            self._tracks.clear('appearance', *field)

    def _advance(self, stamp_ns: int, buffer_seconds: float) -> float:
        """Predict the tracks, end lost ones; return the seconds by which the image is older."""
        seconds = 0.0 if self.stamp_ns is None else (stamp_ns - self.stamp_ns) * 1e-9
        if self._in_space and -buffer_seconds <= seconds < 0:
            return -seconds
        self.stamp_ns = stamp_ns
        if not 0 <= seconds <= buffer_seconds:
            self.resets += 1
            self._tracks = TrackTable(self._fields)
        if len(self._tracks):
            is_kept = stamp_ns - self._tracks['seen_ns'] <= buffer_seconds * 1e9
            if not is_kept.all():
                self._tracks = self._tracks.take(is_kept)
            motion.predict(self._tracks, seconds)
        return 0.0

    def _associate(self, image: _Image) -> None:
        """Assign detections to tracks that they overlap, after the motion of the camera."""
        if not self._in_space:
            is_recent = self._tracks['missed'] == 0
            shift = camera_shift(self._tracks['mean'][0][:, is_recent], image.boxes[:, image.high])
            if shift.any():
                self._move(shift)
        position, velocity = self._tracks['mean']
        if image.lag_seconds:
            position = position - velocity * image.lag_seconds

        def corners_of(boxes: np.ndarray) -> np.ndarray:
            if self._in_space:
                boxes = np.concatenate([boxes[:3], np.maximum(boxes[3:], image.options.min_size)])
            return to_corners(boxes)

        predicted, detected = corners_of(position), corners_of(image.boxes)

        def pair(
            columns: np.ndarray,
            track_xyxy: np.ndarray = predicted,
            gain_of: Callable[[Pairs], np.ndarray] | None = None,
        ) -> np.ndarray:
            """Assign some detections to the tracks without one; return those that remain."""
            rows = np.flatnonzero(image.match < 0)
            if not (len(rows) and len(columns)):
                return columns
            at, by, gains = overlapping(
                track_xyxy.take(rows, axis=1),
                detected.take(columns, axis=1),
                image.options.min_iou,
                of_smaller=self._in_space,
            )
            return self._choose(image, columns, Pairs(rows[at], columns[by], gains), gain_of)

        def gain_of(pairs: Pairs) -> np.ndarray:
            gains = self._gains(pairs, image.found, image.boxes)
            return gains if image.similarity is None else image.similarity.add_to(pairs, gains)

        image.high = pair(image.high, gain_of=gain_of)
        pair(image.weak)
        last_boxes = self._last_boxes()
        if last_boxes is not None:
            image.high = pair(image.high, corners_of(last_boxes))

    def _move(self, shift: np.ndarray) -> None:
        self._tracks['mean'][0][:2] += shift[:, None]

    def _choose(
        self,
        image: _Image,
        columns: np.ndarray,
        pairs: Pairs,
        gain_of: Callable[[Pairs], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Assign the best of some pairs; return the detections that remain of `columns`."""
        if not image.options.across_classes:
            is_same = self._tracks['label'][pairs.rows] == image.found.labels[pairs.columns]
            if not is_same.all():
                pairs = Pairs(*(each[is_same] for each in pairs))
        if gain_of is not None:
            pairs = pairs._replace(gains=gain_of(pairs))
        chosen_rows, chosen_columns = best_pairs(pairs)
        image.match[chosen_rows] = chosen_columns
        is_left = np.ones(len(image.found), bool)
        is_left[chosen_columns] = False
        return np.asarray(columns[is_left[columns]])

    def _find_again(self, image: _Image, similarity: Similarity) -> None:
        """Assign detections to lost tracks by similarity alone; their motion starts anew."""
        rows = np.flatnonzero(image.match < 0)
        pairs = similarity.pairs(rows, image.high, image.options.min_similarity)
        image.high = self._choose(image, image.high, pairs)
        moved = rows[image.match[rows] >= 0]
        if len(moved):
            again = self._tracks.take(moved)
            self._start(again, image.boxes[:, image.match[moved]], image.stamp_ns)
            again['missed'][:] = 0
            self._tracks.put(moved, again)

    def _gains(self, pairs: Pairs, found: Detections, boxes: np.ndarray) -> np.ndarray:
        """Return the positive gains of the pairs of the first assignment, from their IoU."""
        return pairs.gains

    def _last_boxes(self) -> np.ndarray | None:
        """Return boxes of the tracks, (4, N), for a further assignment; None: there is none."""
        return None

    def _correct(self, image: _Image) -> None:
        tracks, match, is_seen = self._tracks, image.match, image.match >= 0
        if not is_seen.any():
            return
        boxes = np.where(is_seen, image.boxes[:, match], 0)
        if self._in_space:
            position, velocity = tracks['mean']
            _complete(boxes, position)
            boxes[:3] += velocity[:3] * image.lag_seconds
        self._observe(boxes, is_seen, image.stamp_ns)
        np.copyto(tracks['label'], image.found.labels[match], where=is_seen)
        tracks['seen_ns'][is_seen] = image.stamp_ns
        tracks['missed'][is_seen] = 0
        if self._in_space:
            tracks['camera'][is_seen] = image.camera
        tracks['hits'][is_seen] += 1

    def _observe(self, boxes: np.ndarray, is_seen: np.ndarray, stamp_ns: int) -> None:
        """Correct the filters with boxes (4, N), finite also for tracks that are not seen."""
        motion.correct(self._tracks, boxes, is_seen)

    def _start(self, started: TrackTable, boxes: np.ndarray, stamp_ns: int) -> None:
        """Initialize the filters of the tracks `started`, in place."""
        motion.start(started, boxes)

    def _finish(self, image: _Image) -> Tracks:
        """Start and end tracks, give identities, and return the tracks of the image."""
        found, match, starts = image.found, image.match, image.high
        tracks = self._tracks
        is_missed = match < 0
        if self._in_space:
            is_missed &= tracks['camera'] == image.camera
        if is_missed.any():
            tracks['missed'][is_missed] += 1
            is_kept = ~is_missed | (tracks['id'] > 0)
            tracks, match = tracks.take(is_kept), match[is_kept]
        if len(starts):
            started = TrackTable(self._fields, len(starts))
            self._start(started, image.boxes[:, starts], image.stamp_ns)
            started['label'][:], started['seen_ns'][:] = found.labels[starts], image.stamp_ns
            started['hits'][:] = 1
            if self._in_space:
                started['camera'][:] = image.camera
            tracks, match = tracks.extended(started), np.concatenate([match, starts])
            if len(tracks) > MAX_TRACKS:
                newest = np.sort(np.argsort(-tracks['seen_ns'], kind='stable')[:MAX_TRACKS])
                tracks, match = tracks.take(newest), match[newest]
        if image.units is not None:
            trust = appearance.score_trust(found.scores, image.options.high_score)
            appearance.update_means(tracks['appearance'], match, image.units, trust)
        self._tracks, ids = tracks, tracks['id']
        nameless = np.flatnonzero((ids == 0) & (tracks['hits'] >= image.options.min_hits))
        if len(nameless):
            best_first = nameless[np.argsort(match[nameless])]
            ids[best_first] = list(itertools.islice(self._ids, len(best_first)))
        shown = np.flatnonzero((ids > 0) & (match >= 0))
        shown = shown[np.argsort(match[shown])]
        lost = np.flatnonzero((ids > 0) & (match < 0))
        return Tracks(
            match[shown],
            ids[shown],
            Detections(
                to_corners(tracks['mean'][0][:, lost]).T.astype(np.float32),
                np.zeros(len(lost), np.float32),
                tracks['label'][lost],
                ids=ids[lost],
            ),
        )

    def centers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the identities of all tracks, (K,), their centers, (K, D), and who is missed."""
        tracks = self._tracks.take(self._tracks['id'] > 0)
        mean = tracks['mean'][0]
        return tracks['id'], mean[: len(mean) // 2].T, tracks['missed'] > 0


def _complete(boxes: np.ndarray, tracked: np.ndarray) -> None:
    """
    Extend boxes in space that are smaller than their track to parts of its box, in place.

    An object is larger than it looks at the edge of an image or behind another object: the center
    is anywhere within what the box lacks.
    """
    lacking = np.maximum(tracked[3:] - boxes[3:], 0) / 2
    np.clip(tracked[:3], boxes[:3] - lacking, boxes[:3] + lacking, out=boxes[:3])
    np.maximum(boxes[3:], tracked[3:] * (1 - MAX_SHRINKAGE), out=boxes[3:])


def _candidates(
    found: Detections, options: TrackOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (4, N) float64 cx, cy, w, h, and the detections above and below the high score."""
    xyxy, scores = np.ascontiguousarray(found.xyxy.T, np.float64), found.scores
    is_box = (np.abs(xyxy) < MAX_PIXELS).all(axis=0)  # False for NaN, too.
    if not is_box.all():
        xyxy = np.where(is_box, xyxy, 0)
    low, high = xyxy[: len(xyxy) // 2], xyxy[len(xyxy) // 2 :]
    is_box = (low < high).all(axis=0)
    high_score = np.broadcast_to(options.high_score, scores.shape)
    usable = np.flatnonzero(is_box & (scores >= np.minimum(options.low_score, high_score)))
    if len(usable) > MAX_DETECTIONS:
        usable = np.sort(usable[np.argsort(-scores[usable], kind='stable')[:MAX_DETECTIONS]])
    is_high = scores[usable] >= high_score[usable]
    return np.concatenate([(low + high) / 2, high - low]), usable[is_high], usable[~is_high]
