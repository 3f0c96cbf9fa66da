"""The tracker of docs/adding_a_tracker.md."""

import pytest

from support.objects import detections
from support.recipes import names_of
from trt_ros.tracking import tracker
from trt_ros.tracking.tracker import Tracker

LoyalTracker = names_of('adding_a_tracker')['LoyalTracker']


@pytest.mark.parametrize(('method', 'label'), [('bytetrack', 1), ('loyal', 0)])
def test_it_prefers_its_class_to_a_larger_overlap(monkeypatch, method, label):
    monkeypatch.setitem(tracker.METHODS, 'loyal', LoyalTracker)
    track = Tracker(method, across_classes=True)
    for _ in range(3):
        before = track(detections((100, 100, 200, 200)))
    after = track(detections((110, 110, 210, 210), (102, 102, 202, 202), label=(0, 1)))
    assert [after.labels[i] for i, id in enumerate(after.ids) if id == before.ids[0]] == [label]
