"""The motion of the camera is found from boxes that move alike, and identities survive it."""

import itertools

import numpy as np
import pytest

from support.objects import detections
from support.tracking_scenes import image_times, observe, seen_ids, shaking, walking
from trt_ros.tracking.bytetrack import ByteTracker
from trt_ros.tracking.camera_motion import MIN_TRACKS, camera_shift
from trt_ros.tracking.tracker import OcSortTracker


def boxes(count, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack(
        [
            rng.uniform(0, 1280, count),
            rng.uniform(0, 720, count),
            rng.uniform(30, 60, count),
            rng.uniform(60, 120, count),
        ]
    )


def moved(tracks, x, y, noise=0.0, seed=1):
    by = np.random.default_rng(seed).normal(0, noise, tracks.shape) if noise else 0.0
    return tracks + np.array([[x], [y], [0], [0]]) + by


@pytest.mark.parametrize('count', (MIN_TRACKS, 24, 300))
@pytest.mark.parametrize('shift', ((17, -9), (-120, 40)))
def test_displacement_that_all_boxes_share_is_found_in_any_order(count, shift):
    tracks = boxes(count)
    found = moved(tracks, *shift)[:, np.random.default_rng(2).permutation(count)]
    np.testing.assert_allclose(camera_shift(tracks, found), shift, atol=1e-9)


def test_shift_is_that_of_most_boxes_beside_noise_new_boxes_and_own_motion():
    tracks = boxes(30)
    found = np.hstack([moved(tracks[:, :22], 25, 10, noise=1.0), boxes(12, seed=3)])
    np.testing.assert_allclose(camera_shift(tracks, found), (25, 10), atol=1.5)


@pytest.mark.parametrize(
    ('tracks', 'found'),
    (
        (boxes(MIN_TRACKS - 1), moved(boxes(MIN_TRACKS - 1), 20, 0)),
        (boxes(24), boxes(24, seed=9)),
        (
            boxes(24),
            np.hstack([moved(boxes(24)[:, :12], 40, 0), moved(boxes(24)[:, 12:], -40, 0)]),
        ),
        (boxes(24), moved(boxes(24), 0, 0, noise=1.0)),
        (boxes(24), np.empty((4, 0))),
    ),
    ids=('few', 'unrelated', 'two groups', 'noise', 'none'),
)
def test_without_a_common_motion_the_camera_stands_still(tracks, found):
    assert not camera_shift(tracks, found).any()


@pytest.mark.parametrize('cls', (ByteTracker, OcSortTracker))
def test_boxes_at_equal_distances_keep_their_identities(cls):
    for (columns, rows), step in itertools.product(((4, 1), (10, 1), (3, 3)), range(20, 65, 5)):
        corners = np.float32([(step * x, step * y) for y in range(rows) for x in range(columns)])
        size, tracker = len(corners), cls()
        found = detections(*np.hstack([corners, corners + 120]), score=0.7)
        tracks = [tracker.update(found, number * 33_000_000) for number in range(1, 6)]
        assert [sorted(each.ids) for each in tracks[1:]] == [[*range(1, size + 1)]] * 4, step
        assert all((each.indices == tracks[1].indices).all() for each in tracks[1:])
        assert all((each.ids == tracks[1].ids).all() for each in tracks[1:])


@pytest.mark.slow
@pytest.mark.parametrize('cls', (ByteTracker, OcSortTracker))
def test_shaking_camera_costs_few_identities(cls):
    rng = np.random.default_rng(1)
    times = image_times(30, 6, rng, dropped=0.0, jitter=0.0)
    shift = shaking(times, rng)
    sizes = np.stack([rng.uniform(30, 60, 24), rng.uniform(60, 120, 24)], axis=1)
    steps = observe(times, walking(times, 24, rng) + shift, sizes, rng)
    given = [len(ids) for ids in seen_ids(cls(), steps).values()]
    # Without compensation: 10 to 20 ids per object of the shaking camera.
    assert np.mean(given) < 3
