"""Identities last through crossings, occlusions, lost images and unsteady times."""

import itertools

import numpy as np
import pytest

from support.objects import detections
from support.tracking_scenes import image_times, observe, seen_ids, straight
from trt_ros.results.boxes import Detections
from trt_ros.tracking.bytetrack import MAX_DETECTIONS, ByteTracker
from trt_ros.tracking.options import DEFAULT_OPTIONS, TrackOptions
from trt_ros.tracking.tracker import OcSortTracker

SECOND = 1_000_000_000


@pytest.fixture(params=[ByteTracker, OcSortTracker])
def make(request):
    return request.param


def ids_of(tracker, found, seconds, options=DEFAULT_OPTIONS):
    return tracker.update(found, round(seconds * SECOND), options).ids.tolist()


def test_a_track_gets_its_identity_with_its_second_detection_which_no_other_camera_has(make):
    tracker = make()
    assert ids_of(tracker, detections((0, 0, 10, 10)), 1.0) == []
    assert ids_of(tracker, detections((1, 0, 11, 10)), 1.1) == [1]
    once = TrackOptions(min_hits=1)
    both = detections((2, 0, 12, 10), (50, 50, 60, 60))
    assert ids_of(tracker, both, 1.2, once) == [1, 2]
    shared = itertools.count(1)
    cameras = [make(shared), make(shared)]
    for seconds in (1.0, 1.1):
        found = [ids_of(camera, detections((0, 0, 20, 20)), seconds) for camera in cameras]
    assert found == [[1], [2]]


def test_identities_are_in_the_order_of_the_detections_also_of_two_images_of_one_time(make):
    tracker = make()
    for seconds in (1.0, 1.1):
        tracks = tracker.update(detections((50, 0, 60, 9), (0, 0, 9, 9)), round(seconds * SECOND))
    assert (tracks.indices.tolist(), tracks.ids.tolist()) == ([0, 1], [1, 2])
    tracker = make()
    assert [ids_of(tracker, detections((0, 0, 20, 20)), 1.0) for _ in range(3)] == [[], [1], [1]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ('rate_hz', 'dropped', 'jitter'), [(10, 0.0, 0.0), (30, 0.3, 0.0), (10, 0.2, 0.2)]
)
def test_identities_last_through_a_crossing(make, rate_hz, dropped, jitter):
    rng = np.random.default_rng(7)
    times = image_times(rate_hz, 10.0, rng, dropped=dropped, jitter=jitter)
    begin = np.array([[100.0, 300.0], [1100.0, 330.0]])
    velocity = np.array([[100.0, 0.0], [-100.0, 0.0]])
    sizes = np.array([[60.0, 140.0], [70.0, 150.0]])
    clean = {'missed': 0.0, 'false': 0.0, 'noise': 0.01}
    steps = observe(times, straight(times, begin, velocity), sizes, rng, **clean)
    # One hides behind the other.
    assert any(len(step.found) == 1 or step.found.scores.min() < 0.25 for step in steps)
    seen = seen_ids(make(), steps)
    assert [len(ids) for ids in seen.values()] == [1, 1]
    assert seen[0] != seen[1]


def test_a_weak_detection_continues_a_track_which_keeps_to_its_class_unless_it_may_change(make):
    tracker = make()
    for number in range(5):
        ids_of(tracker, detections((number, 0, number + 20, 20)), 1 + number / 10)
    weak = detections((5, 0, 25, 20), (100, 0, 120, 20), score=0.15)
    assert [ids_of(tracker, weak, 1.5 + number / 10) for number in range(3)] == [[1]] * 3
    assert ids_of(tracker, detections((5, 0, 25, 20), score=0.05), 1.8) == []
    for across, expected in ((False, []), (True, [1])):
        tracker, options = make(), TrackOptions(across_classes=across)
        for seconds in (1.0, 1.1):
            ids_of(tracker, detections((0, 0, 20, 20)), seconds, options)
        assert ids_of(tracker, detections((0, 0, 20, 20), label=1), 1.2, options) == expected


def test_a_lost_track_is_predicted_until_the_buffer_ends(make):
    tracker = make()
    for number in range(10):
        left = 10.0 * number
        ids_of(tracker, detections((left, 0, left + 40, 40), label=3), 1 + number / 10)
    tracks = tracker.update(Detections.empty(), round(2.0 * SECOND))
    assert (len(tracks.ids), tracks.lost.ids.tolist()) == (0, [1])
    assert tracks.lost.xyxy[0] == pytest.approx([100, 0, 140, 40], abs=3)
    assert (tracks.lost.scores.tolist(), tracks.lost.labels.tolist()) == ([0], [3])
    assert len(tracker.update(Detections.empty(), round(2.85 * SECOND)).lost) == 1
    assert len(tracker.update(Detections.empty(), round(2.95 * SECOND)).lost) == 0


def test_time_counts_and_not_the_number_of_images(make):
    for images, expected in ((1, [1]), (40, [1])):
        tracker = make()
        for seconds in (1.0, 1.1):
            ids_of(tracker, detections((0, 0, 20, 20)), seconds)
        for number in range(images):
            ids_of(tracker, Detections.empty(), 1.1 + 0.8 * (number + 1) / images)
        assert ids_of(tracker, detections((0, 0, 20, 20)), 2.0) == expected


@pytest.mark.parametrize('jump', [-0.5, -1000.0, 1.5, 1e9])
def test_a_jump_of_the_time_ends_all_tracks_and_never_repeats_an_identity(make, jump):
    tracker = make()
    for seconds in (5000.0, 5000.1):
        ids_of(tracker, detections((0, 0, 20, 20)), seconds)
    later = 5000.1 + jump
    assert ids_of(tracker, detections((0, 0, 20, 20)), later) == []
    assert tracker.resets == 1
    assert ids_of(tracker, detections((0, 0, 20, 20)), later + 0.1) == [2]


def test_boxes_that_are_none_belong_to_no_track(make):
    tracker = make()
    bad = [
        (np.nan, 0, 10, 10),
        (0, 0, np.inf, 10),
        (-np.inf, 0, np.inf, 10),
        (5, 5, 5, 9),
        (9, 9, 5, 5),
        (-3e38, -3e38, 3e38, 3e38),
    ]
    for number in range(3):
        found = detections((0, 0, 20, 20), *bad)
        tracks = tracker.update(found, SECOND + number * SECOND // 10)
    assert (tracks.indices.tolist(), tracks.ids.tolist()) == ([0], [1])
    assert ids_of(tracker, detections((0, 0, 20, 20), score=np.nan), 1.3) == []


def test_more_detections_than_the_limit_do_not_exhaust_memory(make):
    tracker, number = make(), np.arange(4 * MAX_DETECTIONS)
    left, top = number % 200 * 30.0, number // 200 * 30.0
    boxes = np.stack([left, top, left + 20, top + 20], axis=1)
    scores = np.linspace(0.9, 0.3, len(boxes), dtype=np.float32)
    found = Detections(boxes.astype(np.float32), scores, np.zeros(len(boxes), np.int32))
    for seconds in (1.0, 1.1):
        ids = ids_of(tracker, found, seconds)
    assert ids == list(range(1, MAX_DETECTIONS + 1))


def test_beyond_the_limit_the_tracks_seen_last_remain(make, monkeypatch):
    monkeypatch.setattr('trt_ros.tracking.bytetrack.MAX_TRACKS', 2)
    tracker, first = make(), (0, 0, 40, 80)
    for seconds in (1, 1.1):
        ids_of(tracker, detections(first), seconds)
    for seconds in (1.2, 1.3):
        ids = ids_of(tracker, detections((200, 0, 240, 80), (400, 0, 440, 80)), seconds)
    assert ids == [2, 3]
    assert ids_of(tracker, detections(first), 1.4) == []


def test_ocsort_finds_an_object_again_that_stopped_while_hidden_by_the_straight_way():
    def walk_and_stop(tracker):
        for number in range(10):
            left = 20.0 * number
            ids_of(tracker, detections((left, 0, left + 40, 80)), 1 + number / 10)
        return ids_of(tracker, detections((185, 0, 225, 80)), 2.8)

    assert walk_and_stop(ByteTracker()) == []
    assert walk_and_stop(OcSortTracker()) == [1]
    tracker = OcSortTracker()
    for number in range(10):
        ids_of(tracker, detections((20.0 * number, 0, 20.0 * number + 80, 80)), 1 + number / 10)
    for number in range(4):  # Hidden, it turns.
        ids_of(tracker, Detections.empty(), 2 + number / 10)
    assert ids_of(tracker, detections((200, 30, 280, 110)), 2.4) == [1]
    velocity = tracker._tracks['mean'][1, :2, 0]
    assert velocity[1] == pytest.approx(30 / 0.5, rel=0.3)
    assert velocity[0] < 100


@pytest.mark.parametrize(('kind', 'choice'), [('byte', 0), ('ocsort', 1)])
def test_ocsort_prefers_the_detection_in_the_direction_of_motion(kind, choice):
    tracker = {'byte': ByteTracker, 'ocsort': OcSortTracker}[kind]()
    for number in range(8):
        left = 10.0 * number
        ids_of(tracker, detections((left, 0, left + 60, 60)), 1 + number / 10)
    # The one aside is a little nearer to the prediction at 80.
    ahead, aside = (90.2, 0, 150.2, 60), (80, 10, 140, 70)
    tracks = tracker.update(detections(aside, ahead), round(1.8 * SECOND))
    assert tracks.indices[tracks.ids == 1].tolist() == [choice]
    assert tracks.ids.tolist() == [1]
