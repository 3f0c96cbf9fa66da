"""With appearance vectors, identities last through turns behind others and through long ways."""

import numpy as np
import pytest

from support.objects import detections
from support.tracking_scenes import identities, observe
from trt_ros.errors import TensorMismatchError
from trt_ros.results.boxes import Detections
from trt_ros.tracking.appearance import score_trust, unit_vectors
from trt_ros.tracking.bytetrack import ByteTracker
from trt_ros.tracking.options import DEFAULT_OPTIONS, TrackOptions
from trt_ros.tracking.tracker import OcSortTracker

SECOND = 1_000_000_000
RED, BLUE = [[2.0, 0, 0]], [[0, 0.5, 0]]


@pytest.fixture(params=[ByteTracker, OcSortTracker])
def make(request):
    return request.param


def box(left, top=0, size=20):
    return (left, top, left + size, top + size)


def ids_of(tracker, found, seconds, vectors=None, options=DEFAULT_OPTIONS):
    vectors = None if vectors is None else np.array(vectors, np.float32)
    return tracker.update(found, round(seconds * SECOND), options, vectors).ids.tolist()


def seen_red(make, vectors=RED, **shape):
    """Return a tracker that saw a red object at the left, and then an empty image."""
    tracker = make()
    for seconds in (1.0, 1.1):
        ids_of(tracker, detections(box(0), **shape), seconds, vectors)
    ids_of(tracker, detections(), 1.2, np.zeros((0, 0)))  # Of any size, as there are none.
    return tracker


def appearance_of(tracker):
    return tracker._tracks['appearance'].T


def meeting(rate_hz):
    """Return images of two objects that approach, hide one behind the other, and turn back."""
    times = np.arange(0, 4, 1 / rate_hz)
    away, level = np.abs(times - 2) * 150, np.full(len(times), 300.0)
    centers = np.stack([[640 - away, level], [640 + away, level + 10]]).transpose(2, 0, 1)
    sizes, rng = np.array([[60.0, 140.0], [70.0, 150.0]]), np.random.default_rng(0)
    return observe(times, centers, sizes, rng, missed=0, false=0, noise=0.01)


def vectors_of(step, rng, count=128):
    """Return the vectors of the detections: one axis per object, with noise, of any length."""
    number = len(step.found)
    vectors = rng.normal(0, 0.02, (number, count)).astype(np.float32)
    for thing, index in identities(step, step.found.xyxy, np.arange(number)).items():
        vectors[index, thing] += 1
    return vectors * rng.uniform(0.1, 50, (number, 1))


@pytest.mark.slow
@pytest.mark.parametrize('rate_hz', [10, 30])
@pytest.mark.parametrize('with_vectors', [False, True])
def test_objects_that_turn_back_behind_each_other_keep_identities_with_vectors(
    make, rate_hz, with_vectors
):
    tracker, rng, seen = make(), np.random.default_rng(1), {}
    steps = meeting(rate_hz)
    assert any(len(step.found) == 1 for step in steps)
    for step in steps:
        vectors = vectors_of(step, rng) if with_vectors else None
        tracks = tracker.update(step.found, step.stamp_ns, vectors=vectors)
        for thing, number in identities(step, step.found.xyxy[tracks.indices], tracks.ids).items():
            seen.setdefault(thing, set()).add(number)
    if with_vectors:
        assert [len(ids) for ids in seen.values()] == [1, 1]
        assert seen[0] != seen[1]
    else:
        assert seen == {0: {1, 2}, 1: {1, 2}}


@pytest.mark.parametrize(
    'vectors, expected',
    [
        (None, []),
        (RED, [1]),
        ([[30, 10, 0]], [1]),
        (BLUE, []),
        ([[1, 1.2, 0]], []),
        ([[-1, 0, 0]], []),
    ],
)
def test_a_similar_object_elsewhere_gets_the_identity_back(make, vectors, expected):
    tracker = seen_red(make)
    assert ids_of(tracker, detections(box(600, 400)), 1.9, vectors) == expected
    # Its motion starts anew, and it is tracked from there; else it is a new object.
    assert ids_of(tracker, detections(box(602, 400)), 2.0) == (expected or [2])
    assert np.abs(tracker._tracks['mean'][1]).max() < 30


def test_the_motion_of_an_object_found_elsewhere_starts_anew_and_an_overlap_continues_any(make):
    tracker, other, found = seen_red(make), make(), detections(box(600))
    ids_of(tracker, found, 1.9, RED)
    for _ in range(2):
        ids_of(other, found, 1.9)
    for field in ('mean', 'covariance'):
        assert tracker._tracks[field].tolist() == other._tracks[field].tolist()
    opposite = [[-1, 0, 0]]
    assert ids_of(seen_red(make), detections(box(1)), 1.3, opposite) == [1]
    assert ids_of(seen_red(make), detections(box(5), box(6)), 1.3, opposite * 2) == [1]


@pytest.mark.parametrize(
    'shape, vectors, options, expected',
    [
        ({}, RED, {'min_hits': 1}, [1]),  # It starts no track besides.
        ({}, BLUE, {'min_similarity': 0.0}, []),
        ({}, [[1, 1.2, 0]], {'min_similarity': 0.6}, [1]),  # The cosine is 0.64.
        ({}, [[1, 1.2, 0]], {'min_similarity': 0.7}, []),
        ({'score': 0.2}, RED, {}, []),
        ({'label': 3}, RED, {}, []),
        ({'label': 3}, RED, {'across_classes': True}, [1]),
    ],
)
def test_options_score_and_class_limit_what_is_found_by_similarity(
    make, shape, vectors, options, expected
):
    found = detections(box(600), **shape)
    assert ids_of(seen_red(make), found, 1.5, vectors, TrackOptions(**options)) == expected


def test_detections_that_are_none_shift_no_vectors(make):
    nothing = (np.nan, 0, 10, 10)
    once, vectors = TrackOptions(min_hits=1), [[0, 0, 1], *BLUE, *RED]
    for blue, red in ((box(600), box(700)), (box(0), box(6))):
        tracks = seen_red(make).update(
            detections(nothing, blue, red), round(1.3 * SECOND), once, np.array(vectors)
        )
        assert (tracks.indices.tolist(), tracks.ids.tolist()) == ([1, 2], [2, 1])


def test_several_objects_are_assigned_by_the_largest_total_similarity(make):
    tracker = make()
    for seconds in (1.0, 1.1):
        found = detections(box(0), box(100))
        ids_of(tracker, found, seconds, [[1, 0.3, 0], [0.3, 1, 0]])
    tracks = tracker.update(
        detections(box(500), box(600), box(700)),
        round(1.5 * SECOND),
        vectors=np.array([[0, 0, 1.0], [0.2, 1, 0], [1, 0.9, 0]]),
    )
    assert (tracks.indices.tolist(), tracks.ids.tolist()) == ([1, 2], [2, 1])


@pytest.mark.parametrize('dtype', [np.float16, np.float32, np.float64])
def test_vectors_of_any_length_become_unit_vectors(dtype):
    info = np.finfo(dtype)
    lengths = np.array([info.max, info.tiny, 1.0], dtype)
    units = unit_vectors(np.stack([lengths, -lengths], axis=1), np.array([0, 1]))
    assert units == pytest.approx(np.array([[1, -1], [1, -1], [0, 0]]) / np.sqrt(2))


@pytest.mark.parametrize('before, kept', [(RED, [1, 0, 0]), ([[0, 0, 0]], [0, 0, 0])])
def test_weak_detections_change_no_appearance(make, before, kept):
    tracker, both = seen_red(make, before), detections(box(300), box(0))
    found = Detections(both.xyxy, np.array([0.9, 0.2], np.float32), both.labels)
    assert ids_of(tracker, found, 1.3, BLUE + BLUE) == [1]
    assert appearance_of(tracker).tolist() == [kept, [0, 1, 0]]


@pytest.mark.parametrize('nothing', [0.0, np.nan, np.inf, -np.inf])
def test_vectors_without_a_direction_are_no_appearance(make, nothing):
    none = [[nothing, 0, 0]]
    assert ids_of(seen_red(make), detections(box(600)), 1.5, none) == []
    assert ids_of(seen_red(make, none), detections(box(600)), 1.5, none) == []
    tracker = seen_red(make)
    assert ids_of(tracker, detections(box(0)), 1.3, none) == [1]  # By its overlap.
    assert appearance_of(tracker).tolist() == [[1, 0, 0]]
    tracker = seen_red(make, none)
    assert ids_of(tracker, detections(box(0)), 1.3, RED) == [1]
    assert appearance_of(tracker).tolist() == [[1, 0, 0]]


def test_the_appearance_is_a_mean_weighted_by_scores_of_images_with_vectors(make):
    tracker = seen_red(make)
    assert ids_of(tracker, detections(box(0), box(100)), 1.3) == [1]
    assert appearance_of(tracker).tolist() == [[1, 0, 0], [0, 0, 0]]
    assert ids_of(tracker, detections(box(600)), 1.5, RED) == [1]
    # 0.95 + 0.05 * (1 - (0.7 - 0.4) / (1 - 0.4)) = 0.975 remain of the mean.
    tracker, options = seen_red(make), TrackOptions(high_score=0.4)
    ids_of(tracker, detections(box(0), score=0.7), 1.3, BLUE, options)
    expected = np.array([0.975, 0.025, 0]) / np.hypot(0.975, 0.025)
    assert appearance_of(tracker)[0] == pytest.approx(expected, rel=1e-5)


def test_vectors_of_another_size_replace_all_appearances(make):
    tracker = seen_red(make)
    other = [[0, 3.0, 4.0, 0]]
    assert ids_of(tracker, detections(box(600)), 1.3, other) == []
    assert appearance_of(tracker).tolist() == [[0] * 4, [0, np.float32(0.6), np.float32(0.8), 0]]
    assert ids_of(tracker, detections(box(300)), 1.4, other) == [2]
    tracker.update(Detections.empty(), 0)  # The time jumps.
    assert ids_of(tracker, detections(box(0)), 0.1, other) == []
    assert appearance_of(tracker).shape == (1, 4)


@pytest.mark.parametrize('shape', [(1, 3), (3, 3), (2,), (2, 3, 1), (0, 3)])
def test_vectors_of_other_detections_are_refused_and_change_nothing(make, shape):
    tracker = seen_red(make)
    with pytest.raises(TensorMismatchError, match=r'do not belong to 2 detections(?s:.)*\(2, D\)'):
        tracker.update(detections(box(0), box(9)), 9 * SECOND, vectors=np.ones(shape))
    assert tracker.resets == 0
    assert ids_of(tracker, detections(box(600)), 1.5, RED) == [1]


def test_each_detection_is_trusted_by_the_high_score_of_its_class():
    scores = np.array([0.8, 0.8, 1.0, 0.3], np.float32)
    trust = score_trust(scores, np.array([0.6, 0.2, 1.0, 0.6]))
    assert trust == pytest.approx([0.5, 0.75, 1, 0])
