"""The motion model of tracked boxes."""

import numpy as np
import pytest

from trt_ros.tracking import motion
from trt_ros.tracking.motion import TrackTable

BOX = np.array([[100.0], [50.0], [20.0], [40.0]])


def started(boxes=BOX):
    tracks = TrackTable(motion.FIELDS, boxes.shape[1])
    motion.start(tracks, boxes)
    return tracks


def state(tracks):
    return np.concatenate([tracks['mean'].ravel(), tracks['covariance'].ravel()])


def test_two_half_steps_are_one_step():
    once, twice = started(), started()
    for tracks in (once, twice):
        tracks['mean'][1] = [[30.0], [-20.0], [0.0], [0.0]]
    motion.predict(once, 0.1)
    motion.predict(twice, 0.05)
    motion.predict(twice, 0.05)
    np.testing.assert_allclose(state(once), state(twice), rtol=1e-3)
    assert once['mean'][0, :2, 0].tolist() == pytest.approx([103, 48])


@pytest.mark.parametrize('rate_hz', [10, 60])
def test_a_constant_velocity_is_learnt_at_any_rate(rate_hz):
    tracks = started()
    for number in range(1, 3 * rate_hz):
        motion.predict(tracks, 1 / rate_hz)
        motion.correct(tracks, BOX + np.array([[90.0], [-30.0], [0.0], [0.0]]) * number / rate_hz)
    assert tracks['mean'][1, :2, 0] == pytest.approx([90, -30], abs=1)


def test_correction_agrees_with_the_matrix_form_of_the_kalman_filter():
    tracks = started()
    motion.predict(tracks, 0.2)
    mean, covariance = tracks['mean'][:, 0, 0].copy(), tracks['covariance'][:, 0, 0].copy()
    matrix = np.array([[covariance[0], covariance[1]], [covariance[1], covariance[2]]])
    observe = np.array([[1.0, 0.0]])
    noise = (motion.MEASUREMENT_NOISE * 20) ** 2
    gain = matrix @ observe.T / (observe @ matrix @ observe.T + noise)
    motion.correct(tracks, BOX + 7)
    expected = mean + (gain * (107 - mean[0])).ravel()
    assert tracks['mean'][:, 0, 0] == pytest.approx(expected)
    left = (np.eye(2) - gain @ observe) @ matrix
    assert tracks['covariance'][:, 0, 0] == pytest.approx([left[0, 0], left[0, 1], left[1, 1]])


def test_filters_that_are_not_seen_stay_as_they_are_and_a_shrinking_box_never_vanishes():
    tracks = started(np.hstack([BOX, BOX]))
    motion.predict(tracks, 0.1)
    before = tracks['mean'][:, :, 1].copy(), tracks['covariance'][:, :, 1].copy()
    motion.correct(tracks, np.zeros((4, 2)), np.array([True, False]))
    assert (tracks['mean'][:, :, 1] == before[0]).all()
    assert (tracks['covariance'][:, :, 1] == before[1]).all()
    assert tracks['mean'][0, 0, 0] < 100
    tracks = started()
    tracks['mean'][1, 2:] = -1000
    motion.predict(tracks, 1.0)
    assert (tracks['mean'][0, 2:] > 0).all()
