"""Messages of several topics that meet by stamp, or are sampled."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
import pytest

from support.properties import repeatable
from trt_ros.ros.sync import (
    AHEAD,
    DUPLICATE,
    JUMPED,
    LATE,
    MAX_REORDERING_NS,
    NO_PARTNER,
    TOO_OLD,
    Matcher,
    Sampler,
)
from trt_ros.ros.worker import REPLACED

MS = 1_000_000


class Drops(Counter):
    """Numbers of dropped messages by topic and cause."""

    def __call__(self, topic, cause):
        self[topic, cause] += 1


def matched(matcher, *arrivals):
    """Add (topic, stamp) with itself as the message; return the sets."""
    found = (matcher.add(topic, stamp, (topic, stamp)) for topic, stamp in arrivals)
    return [tuple(stamp for _, stamp in each) for each in found if each is not None]


def matcher(topics=2, queue_size=5, tolerance_ns=0):
    drops = Drops()
    return Matcher(topics, drops, queue_size=queue_size, tolerance_ns=tolerance_ns), drops


def waiting(matcher):
    return sum(len(queue.messages) for queue in matcher._queues)


def test_one_topic_needs_no_partner_and_clear_forgets_stamps():
    exact, drops = matcher(1)
    assert matched(exact, (0, 1), (0, 2), (0, 2), (0, 1)) == [(1,), (2,), (2,), (1,)]
    assert drops == {}
    assert exact.is_jump(0, -MAX_REORDERING_NS)
    exact, drops = matcher()
    assert matched(exact, (0, 5), (1, 5), (0, 6)) == [(5, 5)]
    exact.clear(JUMPED)
    assert (waiting(exact), drops) == (0, {(0, JUMPED): 1})
    assert matched(exact, (0, 3), (1, 3)) == [(3, 3)]


@pytest.mark.parametrize(
    ('arrivals', 'stamps', 'dropped'),
    [
        pytest.param(
            [(0, 1), (0, 2), (1, 2), (1, 1)],
            [2],
            {(0, NO_PARTNER): 1, (1, LATE): 1},
            id='older than a set',
        ),
        pytest.param(
            [(0, 1), (0, 2), (0, 3), (1, 1), (1, 3)],
            [3],
            {(0, NO_PARTNER): 2, (1, NO_PARTNER): 1},
            id='the oldest of a full queue',
        ),
        pytest.param([(0, 1), (0, 2), (1, 1), (1, 2)], [1, 2], {}, id='a full queue'),
        pytest.param([(0, 5), (0, 4), (1, 4), (1, 5)], [4, 5], {}, id='out of order'),
        pytest.param(
            [(0, 5), (0, 5), (1, 5), (1, 5)],
            [5],
            {(0, DUPLICATE): 1, (1, DUPLICATE): 1},
            id='a second one of a stamp',
        ),
    ],
)
def test_messages_without_partners_are_dropped(arrivals, stamps, dropped):
    exact, drops = matcher(queue_size=2)
    assert matched(exact, *arrivals) == [(stamp, stamp) for stamp in stamps]
    assert drops == dropped


@pytest.mark.parametrize(('difference', 'is_set'), [(10, True), (-10, True), (11, False)])
def test_the_tolerance_is_the_maximum_difference(difference, is_set):
    near, _ = matcher(tolerance_ns=10)
    assert bool(matched(near, (0, 100), (1, 100 + difference))) is is_set


def test_the_closest_stamps_meet_then_the_newest():
    near, drops = matcher(tolerance_ns=10)
    assert matched(near, (0, 92), (0, 99), (0, 103), (1, 100)) == [(99, 100)]
    assert drops == {(0, NO_PARTNER): 1}
    assert waiting(near) == 1
    near, _ = matcher(tolerance_ns=10)
    assert matched(near, (0, 95), (0, 105), (1, 100)) == [(105, 100)]


def test_a_stamp_far_behind_is_a_jump_of_time():
    exact, _ = matcher()
    assert not exact.is_jump(0, 0)
    exact.add(0, 10 * MAX_REORDERING_NS, 'a')
    assert not exact.is_jump(0, 9 * MAX_REORDERING_NS)
    assert exact.is_jump(0, 9 * MAX_REORDERING_NS - 1)
    assert not exact.is_jump(1, 0)


arrivals = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=80)


@pytest.mark.slow
@repeatable
@given(arrivals, st.integers(0, 5), st.integers(1, 6))
def test_any_arrivals_make_sets_within_the_tolerance_and_are_accounted_for(
    arrivals, tolerance, queue_size
):
    near, drops = matcher(3, queue_size, tolerance)
    sets = matched(near, *arrivals)
    for found in sets:
        assert max(found) - min(found) <= tolerance
    for stamps in zip(*sets):  # Of each topic: ascending, hence used once.
        assert list(stamps) == sorted(set(stamps))
    for topic in range(3):
        received = sum(index == topic for index, _ in arrivals)
        dropped = sum(count for (index, _), count in drops.items() if index == topic)
        assert received >= dropped + len(sets)
    assert len(arrivals) == 3 * len(sets) + sum(drops.values()) + waiting(near)
    assert waiting(near) <= 3 * queue_size


# Samples.


def sampler(*max_ages_ns):
    drops = Drops()
    return Sampler(max_ages_ns, drops), drops


def test_a_sample_has_the_newest_message_of_each_topic_and_older_ones_are_dropped():
    newest, drops = sampler(None, None)
    newest.add(0, 1, 'a')
    assert newest.sample(1) is None
    newest.add(0, 2, 'b')
    newest.add(1, 1, 'c')
    assert newest.sample(2) == newest.sample(3) == ('b', 'c')
    newest.add(0, 3, 'd')  # 'b' was used.
    assert newest.sample(4) == ('d', 'c')
    assert drops == {(0, REPLACED): 1}
    newest, drops = sampler(None)
    newest.add(0, 2, 'b')
    newest.add(0, 1, 'a')
    newest.add(0, 2, 'c')
    assert newest.sample(0) == ('c',)
    assert drops == {(0, LATE): 1, (0, REPLACED): 1}


def test_a_message_is_used_up_to_its_maximum_age_and_as_long_ahead_of_the_clock():
    newest, drops = sampler(10 * MS, None)
    newest.add(0, 100 * MS, 'a')
    newest.add(1, 0, 'b')
    assert newest.sample(110 * MS) == ('a', 'b')
    assert newest.sample(110 * MS + 1) is None
    assert drops == {}
    newest.add(0, 120 * MS, 'c')
    assert newest.sample(200 * MS) is None
    assert drops == {(0, TOO_OLD): 1}
    newest, drops = sampler(10 * MS, None)
    newest.add(0, 110 * MS, 'a')
    newest.add(1, 900 * MS, 'b')
    assert newest.sample(100 * MS) == ('a', 'b')
    newest.add(0, 200 * MS, 'c')
    assert newest.sample(189 * MS) is None
    newest.add(0, 199 * MS, 'd')
    assert newest.sample(189 * MS) == ('d', 'b')
    assert drops == {(0, AHEAD): 1}


def test_a_jump_of_time_clears_the_samples():
    newest, drops = sampler(None, None)
    newest.add(0, 5 * MAX_REORDERING_NS, 'a')
    assert newest.is_jump(0, 0)
    assert not newest.is_jump(0, 4 * MAX_REORDERING_NS)
    assert not newest.is_jump(1, 0)
    newest.clear(JUMPED)
    newest.add(0, 1, 'b')
    newest.add(1, 1, 'c')
    assert newest.sample(1) == ('b', 'c')
    assert drops == {(0, JUMPED): 1}
