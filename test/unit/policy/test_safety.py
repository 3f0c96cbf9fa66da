"""The state machine between actions and robot, on a simulated clock."""

from dataclasses import replace

import numpy as np
import pytest

from trt_ros.policy.safety import (
    AHEAD,
    ENDED,
    JUMP,
    JUMPED_BACK,
    LATE,
    NO_ACTION,
    NO_POSE,
    NOT_ENABLED,
    NOT_FINITE,
    STALE,
    STOPPED,
    Safety,
    SafetyOptions,
)

ALL = np.array([False, False])
OPTIONS = SafetyOptions(
    max_age=0.1,
    max_jump=0.0,
    blend_seconds=0.0,
    require_enable=False,
    low=np.array([-np.inf, -np.inf]),
    high=np.array([np.inf, np.inf]),
    at_rest=ALL,
)


def running(now: float = 0.0, **options) -> Safety:
    """Return a state machine that has executed the action (1, 2)."""
    safety = Safety(replace(OPTIONS, **options))
    safety.observe(now)
    safety.recover()
    assert safety.command(now, np.array([1.0, 2.0]), np.zeros(2)) is not None
    assert safety.reason == ''
    return safety


def test_nothing_is_commanded_before_the_first_action_and_limits_clip_and_count():
    safety = Safety(OPTIONS)
    assert safety.command(0.0, None) is None and safety.reason == NO_ACTION
    assert not safety.holds
    safety = running(low=np.array([-1.0, -1.0]), high=np.array([1.5, 3.0]))
    safety.observe(0.02)
    assert safety.command(0.02, np.array([2.0, -5.0])).tolist() == [1.5, -1]
    assert safety.clipped == 2


def test_the_hold_keeps_the_last_command_until_a_run_is_good_again():
    safety = running()
    safety.observe(0.1)
    assert safety.command(0.2, np.array([3.0, 4.0])).tolist() == [3, 4]
    for now in (0.22, 0.24):
        assert safety.command(now, np.array([5.0, 6.0])).tolist() == [3, 4]
        assert safety.reason == STALE
    safety.observe(0.26)
    assert safety.command(0.26, np.array([5.0, 6.0])).tolist() == [5, 6]
    assert safety.holds == {STALE: 1} and safety.reason == ''
    safety.observe(9.0)
    assert safety.command(0.28, np.array([7.0, 8.0])).tolist() == [5, 6]
    assert safety.reason == AHEAD


@pytest.mark.parametrize(
    ('cause', 'action', 'reason'),
    [
        (lambda safety: safety.fail(LATE), [1, 2], LATE),
        (lambda safety: safety.fail('missing joint'), [1, 2], 'missing joint'),
        (lambda safety: None, None, ENDED),
        (lambda safety: None, [np.nan, 2], NOT_FINITE),
        (lambda safety: None, [1, 2.6], JUMP),
        (lambda safety: safety.stop(True), [1, 2], STOPPED),
        (lambda safety: safety.enable(False), [1, 2], NOT_ENABLED),
    ],
)
def test_each_reason_holds_in_the_same_tick(cause, action, reason):
    safety = running(max_jump=0.5)
    cause(safety)
    action = None if action is None else np.array(action, np.float64)
    assert safety.command(0.02, action).tolist() == [1, 2]
    assert safety.reason == reason
    assert safety.holds == ({} if reason == NOT_ENABLED else {reason: 1})


@pytest.mark.parametrize('reason', [NOT_FINITE, JUMP])
def test_a_bad_action_holds_until_the_next_run(reason):
    safety = running(max_jump=0.5)
    bad = np.array([np.nan, 2.0]) if reason == NOT_FINITE else np.array([9.0, 2.0])
    safety.command(0.02, bad)
    assert safety.command(0.04, np.array([1.1, 2.0])).tolist() == [1, 2]
    safety.recover()
    assert safety.command(0.06, np.array([1.1, 2.0])).tolist() == [1.1, 2]
    assert safety.holds == {reason: 1}


def test_an_emergency_stop_ends_with_enable_only():
    safety = running()
    safety.stop(True)
    assert not safety.enable(True)
    safety.command(0.02, np.array([3.0, 4.0]))
    safety.stop(False)
    assert safety.command(0.04, np.array([3.0, 4.0])).tolist() == [1, 2]
    assert safety.reason == NOT_ENABLED
    assert safety.enable(True)
    assert safety.command(0.06, np.array([3.0, 4.0])).tolist() == [3, 4]


def test_commands_wait_for_enable_and_begin_at_the_measured_pose():
    safety = Safety(replace(OPTIONS, require_enable=True, blend_seconds=1.0, max_age=9.0))
    safety.observe(0.0)
    safety.recover()
    action = np.array([2.0, 4.0])
    assert safety.command(0.0, action) is None and safety.reason == NOT_ENABLED
    safety.enable(True)
    assert safety.command(0.5, action) is None and safety.reason == NO_POSE
    pose = np.array([0.0, -4.0])
    found = [safety.command(now, action, pose).tolist() for now in (1.0, 1.25, 1.5, 2.0, 2.5)]
    assert found == [[0, -4], [0.5, -2], [1, 0], [2, 4], [2, 4]]


def test_commands_come_back_from_a_hold_as_gently():
    safety = running(blend_seconds=0.5)
    safety.observe(10.0)
    action = np.array([1.0, 2.0])
    for now in (10.0, 10.5):
        safety.observe(now)
        safety.command(now, action)
    safety.fail(LATE)
    held = safety.command(10.6, action)
    safety.recover()
    safety.observe(10.7)
    found = [safety.command(10.7 + t, np.array([3.0, 2.0]))[0] for t in (0.0, 0.05, 0.1)]
    assert held.tolist() == [1, 2]
    assert found == pytest.approx([1, 1.2, 1.4])


def test_the_hold_goes_to_a_pose_and_sets_velocities_to_zero():
    safety = running(
        blend_seconds=1.0, pose=np.array([0.5, np.nan]), at_rest=np.array([False, True])
    )
    safety.observe(5.0)
    safety.command(5.0, np.array([1.0, 2.0]))
    safety.stop(True)
    start = safety.last[0]
    found = [safety.command(6.0 + t, None).tolist() for t in (0.0, 0.5, 1.0, 2.0)]
    assert [each[1] for each in found] == [0, 0, 0, 0]
    assert [each[0] for each in found] == pytest.approx([start, (start + 0.5) / 2, 0.5, 0.5])


def test_time_that_jumps_back_holds_until_there_is_a_run_again():
    safety = running(now=100.0)
    assert safety.command(3.0, np.array([5.0, 6.0])).tolist() == [1, 2]
    assert safety.reason == JUMPED_BACK
    safety.observe(3.1)
    assert safety.command(3.1, np.array([5.0, 6.0])).tolist() == [1, 2]
    safety.recover()
    assert safety.command(3.2, np.array([5.0, 6.0])).tolist() == [5, 6]
    assert safety.holds == {JUMPED_BACK: 1}
