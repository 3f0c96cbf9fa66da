"""When an image source publishes its next image."""

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('sensor_msgs')

from trt_ros.nodes.image_source import next_due


def published_at(rate_hz, until, *, reading=lambda now: 0.0):
    """Give the times of an image source whose reading takes so long, by a clock of its own."""
    due, now, found = 0.0, 0.0, []
    while now < until:
        now = max(now, due)
        found.append(now)
        now += reading(now)
        due = next_due(due, now, rate_hz)
    return found


def test_images_keep_the_rate_as_far_as_reading_allows_and_without_bursts():
    found = published_at(10, 100.05, reading=lambda now: 0.09)
    assert found == pytest.approx([index / 10 for index in range(1001)])
    assert published_at(10, 4.5, reading=lambda now: 1.0) == [0, 1, 2, 3, 4]
    found = published_at(10, 10.05, reading=lambda now: 5.0 if now == 0 else 0.0)
    assert found[:52] == pytest.approx([0.0, *(5 + index / 10 for index in range(51))])
