"""The tracker of docs/adding_a_tracker.md."""

import numpy as np
import pytest

from support.recipes import names_of
from trt_ros.results.boxes import Detections
from trt_ros.tracking import tracker
from trt_ros.tracking.tracker import Tracker

LoyalTracker = names_of('adding_a_tracker')['LoyalTracker']


def found(*rows):
    boxes = np.array([row[:4] for row in rows], np.float32)
    labels = np.array([row[4] for row in rows], np.int32)
    return Detections(boxes, np.full(len(rows), 0.9, np.float32), labels)


@pytest.mark.parametrize(('method', 'label'), [('bytetrack', 1), ('loyal', 0)])
def test_it_prefers_its_class_to_a_larger_overlap(monkeypatch, method, label):
    monkeypatch.setitem(tracker.METHODS, 'loyal', LoyalTracker)
    track = Tracker(method, across_classes=True)
    for _ in range(3):
        before = track(found((100, 100, 200, 200, 0)))
    after = track(found((110, 110, 210, 210, 0), (102, 102, 202, 202, 1)))
    assert [after.labels[i] for i, id in enumerate(after.ids) if id == before.ids[0]] == [label]
