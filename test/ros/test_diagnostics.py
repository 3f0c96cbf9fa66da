"""The diagnostics tell what goes through a node, how fast, and why nothing does."""

import math
import time

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
import numpy as np
import pytest
from rosgraph_msgs.msg import Clock
from std_msgs.msg import Float64

from support.ros_messages import as_image, picture, values_of
from support.waiting import wait_until
from trt_ros.ros.diagnostics import MAX_TIMES, FrameCounts
from trt_ros.ros.worker import REPLACED, UNWANTED


def wait_for_status(lane, matches, what):
    return lane.diagnostics.wait_for(
        lambda array: (
            array.status[0].name == f'{lane.node.name}: image'
            and matches(array.status[0], values_of(array))
        ),
        what,
    )


def stamped_now(lane, image):
    image.header.stamp = lane.node.peer.node.get_clock().now().to_msg()
    return image


def test_percentiles_are_those_of_the_newest_frames_without_stages_that_fail():
    counts = FrameCounts()
    for milliseconds in (1e6, *np.arange(MAX_TIMES)):
        counts.record_duration('infer', 1e-3 * milliseconds)
    counts.record_duration('publish', 0.25)
    expected = np.percentile(1e-3 * np.arange(MAX_TIMES), [50, 99])
    assert counts.percentiles() == {
        'infer': pytest.approx(tuple(expected)),
        'publish': (0.25, 0.25),
    }
    counts = FrameCounts()
    with pytest.raises(ValueError, match='broken'), counts.timed('infer'):
        raise ValueError('broken')
    assert counts.percentiles() == {}
    with counts.timed('infer'):
        pass
    assert 0.0 <= counts.percentiles()['infer'][0] < 60.0


def test_old_timings_are_not_reported(set_constants):
    counts = FrameCounts()
    counts.record_duration('infer', 1.0)
    set_constants(TIMES_WINDOW_SECONDS=math.inf)
    assert counts.percentiles() == {'infer': (1.0, 1.0)}
    set_constants(TIMES_WINDOW_SECONDS=0.0)
    after(time.monotonic())
    assert counts.percentiles() == {}


def after(seconds):
    """Wait until the clock has gone on; return its time."""
    return wait_until(lambda: max(time.monotonic() - seconds, 0.0)) + seconds


class Interval:
    """The time since a call, which took a time itself, as another call returns it."""

    def __init__(self, call):
        self.before = after(time.monotonic())
        call()
        self.after = after(time.monotonic())

    def matches(self, call):
        least = time.monotonic() - self.after
        return least <= call() <= time.monotonic() - self.before


def test_a_frame_is_unsettled_until_it_is_published_or_dropped_for_its_own():
    counts = FrameCounts()
    assert counts.seconds_without_result() == -math.inf
    first = Interval(counts.receive)
    Interval(counts.receive)
    counts.drop(REPLACED)
    assert first.matches(counts.seconds_without_result)
    for settle in (counts.publish, lambda: counts.drop(UNWANTED)):
        settle()
        assert counts.seconds_without_result() == -math.inf
        counts.receive()


def test_no_frame_is_expected_after_end_of_source():
    counts = FrameCounts()
    for _ in range(2):
        received = Interval(counts.receive)
        assert received.matches(lambda: counts.seconds_since_received(0.0))
        counts.expect_no_more()
        assert counts.seconds_since_received(0.0) < 0


@pytest.fixture(scope='module')
def latencies(start_lane):
    lane = start_lane('timed', publish_latency=True)
    return lane, lane.node.peer.inbox(Float64, '/timed/latency')


def test_each_image_has_a_latency_on_a_topic_of_its_own(latencies):
    lane, latency = latencies
    began = lane.node.peer.node.get_clock().now()

    def came():  # The inbox of the latencies may match after that of the detections.
        lane.images.publish(stamped_now(lane, as_image(picture(), 'rgb8')))
        return len(latency.messages) > 3

    lane.node.peer.wait_until(came, 'latencies')
    passed_ms = (lane.node.peer.node.get_clock().now() - began).nanoseconds * 1e-6
    assert all(0.0 < each.data <= passed_ms for each in latency.messages)


def test_diagnostics_report_configuration_and_timings(latencies):
    lane, _ = latencies
    lane.images.publish(stamped_now(lane, as_image(picture(), 'rgb8')))
    array = wait_for_status(lane, lambda status, values: 'queue age p99 (ms)' in values, 'times')
    status, values = array.status[0], values_of(array)
    assert (status.level, status.message) == (DiagnosticStatus.OK, 'active')
    assert status.hardware_id
    assert values['state'] == 'active'
    assert (values['model'], values['backend'], values['decoder']) == ('', 'fake', 'yolov8')
    times = {key: float(value) for key, value in values.items() if key.endswith('(ms)')}
    assert list(times) == [
        f'{stage} {name} (ms)'
        for stage in ('queue age', 'infer', 'publish', 'latency')
        for name in ('p50', 'p99')
    ]
    for stage in ('queue age', 'infer', 'publish', 'latency'):
        assert 0.0 < times[f'{stage} p50 (ms)'] <= times[f'{stage} p99 (ms)'] < 60e3
    assert times['infer p50 (ms)'] < times['latency p50 (ms)']


def test_an_image_without_a_stamp_has_no_latency(start_lane):
    lane = start_lane('unstamped')
    image = as_image(picture(), 'rgb8')
    image.header.stamp.sec = image.header.stamp.nanosec = 0
    lane.node.peer.wait_until(
        lambda: lane.images.publish(image) or lane.detections.messages, 'detections'
    )
    array = wait_for_status(lane, lambda status, values: 'infer p50 (ms)' in values, 'times')
    assert not [key for key in values_of(array) if key.startswith('latency')]


def test_a_frame_that_is_stuck_is_stale_and_then_counts_as_long(start_lane, tmp_path):
    go_on, image = tmp_path / 'go_on', as_image(picture(), 'rgb8')
    lane = start_lane('stuck', model_path=f'hold:{go_on}')
    lane.publish(image)
    wait_for_status(lane, lambda status, values: values['frames received'] == '1', 'the image')
    held_since = time.monotonic()

    def is_stale():
        lane.publish(image)
        return [
            array
            for array in list(lane.diagnostics.messages)
            if array.status[0].name == 'stuck: image'
            and array.status[0].level == DiagnosticStatus.STALE
        ]

    status = lane.node.peer.wait_until(is_stale, 'a stale node')[0].status[0]
    assert status.message.startswith('images arrive, but no result for ')
    held_ms = 1e3 * (time.monotonic() - held_since)
    go_on.touch()
    replaced = 'dropped: replaced by a newer frame'
    array = wait_for_status(
        lane,
        lambda status, values: (
            status.level == DiagnosticStatus.OK
            and values['frames received'] == str(lane.last_stamp)
            and int(values['frames published']) + int(values.get(replaced, 0)) == lane.last_stamp
        ),
        'all to be accounted for',
    )
    passed_ms = 1e3 * (time.monotonic() - held_since)
    values = values_of(array)
    assert 2 <= int(values['frames published']) < lane.last_stamp
    # Of few frames, the 99th percentile is nearly the longest.
    assert 0.5 * held_ms <= float(values['infer p99 (ms)'])
    assert 0.0 < float(values['queue age p99 (ms)']) <= passed_ms


def test_invalid_times_of_the_clock_are_ignored(start_node):
    node = start_node('simulated', 'trt_ros.nodes.overlay', use_sim_time=True)
    peer = node.peer
    clock = peer.publisher(Clock, '/clock')
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')

    def status_at(seconds, nanoseconds, is_shown):
        """Publish a time until something is shown."""

        def publish():
            clock.publish(Clock(clock=Time(sec=seconds, nanosec=nanoseconds)))
            return is_shown()

        peer.wait_until(publish, f'the effect of {seconds} s, {nanoseconds} ns')

    status_at(-5, 0, lambda: 'on /clock is ignored: -5 s, 0 ns' in node.log)
    for seconds, nanoseconds in ((7, 5), (2**31 - 1, 999_999_999)):
        clock.publish(Clock(clock=Time(sec=2**31 - 1, nanosec=2**32 - 1)))
        now = Time(sec=seconds, nanosec=nanoseconds)
        status_at(
            seconds,
            nanoseconds,
            lambda now=now: [each.header.stamp for each in diagnostics.messages[-1:]] == [now],
        )
    assert 'Traceback' not in node.log
