"""Actions by time of overlapping chunks, on a simulated clock."""

import numpy as np
import pytest

from trt_ros.policy.chunks import MODES, WEIGHT, ActionChunks

PERIOD, HORIZON = 0.02, 50


def executed(mode: str, *, run_periods: int, ticks: int = 400, seed: int = 0):
    """
    Return the actions of ticks at 50 Hz, and the numbers of ticks without any.

    Each run plans a sine from its observation on, with an error that is constant in a chunk, and
    takes `run_periods`; the next one begins when it ends.
    """
    rng, chunks = np.random.default_rng(seed), ActionChunks(mode, PERIOD)
    found, idle, began = [], [], 0
    for tick in range(ticks):
        if tick == began + run_periods:
            times = (began + np.arange(HORIZON)) * PERIOD
            actions = np.sin(times)[:, np.newaxis] + rng.normal(0, 0.05)
            chunks.add(began * PERIOD, actions, tick * PERIOD)
            began = tick
        action = chunks.at(tick * PERIOD)
        if tick >= run_periods:
            idle += [tick] if action is None else []
            found.append(0.0 if action is None else action.item())
    return np.array(found), idle, chunks


def peak_acceleration(actions: np.ndarray) -> float:
    return float(np.abs(np.diff(actions, 2)).max() / PERIOD**2)


@pytest.mark.parametrize('run_periods', [1, 8, 24])  # 8: 150 ms of inference.
@pytest.mark.parametrize('mode', MODES)
def test_no_tick_is_idle_while_the_next_run_is_under_way(mode, run_periods):
    found, idle, chunks = executed(mode, run_periods=run_periods)
    assert not idle
    assert chunks.delay == run_periods
    time = np.arange(run_periods, 400) * PERIOD
    assert np.abs(found - np.sin(time)).max() < 0.25


@pytest.mark.parametrize(('mode', 'part'), [(MODES[1], 0.8), (MODES[2], 1 / 3)])
@pytest.mark.parametrize('seed', range(5))
def test_seams_are_less_abrupt_than_those_of_the_newest_chunk(mode, part, seed):
    naive, smooth = (
        peak_acceleration(executed(each, run_periods=8, seed=seed)[0]) for each in (MODES[0], mode)
    )
    assert smooth <= part * naive


def test_a_new_chunk_is_held_to_the_committed_actions():
    chunks = ActionChunks('real_time_chunking', 1.0)
    chunks.add(0.0, np.zeros((8, 1)), 0.0)
    chunks.add(2.0, np.ones((8, 1)), 4.0)
    found = [chunks.at(float(time)).item() for time in range(2, 10)]
    assert chunks.delay == 2
    assert found[:2] == [0, 0]  # Passed while the run took place.
    assert 0 < found[2] < found[3] < found[4] < found[5] < 1
    assert found[6:] == [1, 1]
    assert chunks.at(10.0) is None


def test_temporal_ensembling_weighs_as_act_does():
    chunks = ActionChunks('temporal_ensembling', 1.0)
    for start, value in enumerate((1.0, 2.0, 4.0)):
        chunks.add(float(start), np.full((3, 2), value), float(start))
    weights = np.exp(-WEIGHT * np.arange(3))
    assert chunks.at(2.0).tolist() == pytest.approx([weights @ [1, 2, 4] / weights.sum()] * 2)
    assert chunks.at(4.0).tolist() == [4, 4]
    chunks.add(3.0, np.full((3, 2), 8.0), 3.0)  # The first one has ended.
    assert chunks.at(3.0).tolist() == pytest.approx([weights @ [2, 4, 8] / weights.sum()] * 2)


def test_without_chunks_an_action_counts_until_the_next_and_with_one_until_its_end():
    chunks = ActionChunks('newest', 0.1)
    assert chunks.at(0.0) is None
    chunks.add(0.0, np.array([[1.0, 2.0]]), 0.0)
    assert chunks.at(5.0).tolist() == [1, 2]
    chunks.clear()
    assert chunks.at(5.0) is None and chunks.horizon == 0
    chunks = ActionChunks('newest', 0.1)
    chunks.add(1.0, np.arange(4.0)[:, np.newaxis], 1.0)
    assert chunks.after(1.1, 2).tolist() == [[1], [2]]
    assert chunks.after(1.2, 10).tolist() == [[2], [3]]
    assert chunks.after(1.4, 10).tolist() == []


def test_a_newer_chunk_waits_until_so_many_actions_were_executed():
    chunks = ActionChunks('newest', 1.0, least=3)
    for start in range(8):
        chunks.add(start, np.full((4, 1), start), start)
        assert chunks.at(start).item() == start // 3 * 3
    chunks.add(20.0, np.full((4, 1), 20.0), 20.0)  # After a pause.
    assert chunks.at(20.0).item() == 20
    chunks.add(1.0, np.full((2, 1), 1.0), 1.0)  # The time jumped back.
    assert chunks.at(1.0).item() == 1
    chunks.add(3.0, np.full((4, 1), 3.0), 3.0)  # The chunk before has ended.
    assert chunks.at(3.0).item() == 3
