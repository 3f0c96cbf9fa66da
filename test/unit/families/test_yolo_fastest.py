"""FastestDet and YOLO-FastestV2."""

from dataclasses import replace

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families.evidence import claim_of
from trt_ros.families.yolo_fastest import FASTESTDET, PRIORS, YOLO_FASTEST_V2
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds


def test_boxes_and_scores_are_those_of_the_formula(network):
    rng, hw, shape = np.random.default_rng(0), (96, 160), (6, 10)
    values = rng.uniform(0, 1, (1, 8, *shape)).astype(np.float32)
    values[:, 1:5] = rng.normal(-1, 1, (1, 4, *shape))
    head = open_head(FASTESTDET, network('out (1, 8, 6, 10)', hw=hw, class_count=3))
    whole = Letterbox.fit((160, 96), hw, 'stretch')
    found = head({'out': values}, whole, Thresholds(score=0.5, iou=1.0, max_detections=100))
    expected = []
    for row, column in np.ndindex(shape):
        objectness, x, y, w, h, *classes = values[0, :, row, column].astype(np.float64)
        score = objectness**0.6 * max(classes) ** 0.4
        center = np.array([(column + np.tanh(x)) / 10, (row + np.tanh(y)) / 6])
        half = 1 / (1 + np.exp([-w, -h])) / 2
        box = np.clip([*(center - half), *(center + half)], 0, 1) * (160, 96, 160, 96)
        if score >= 0.5 and (box[:2] < box[2:]).all():
            expected.append((score, classes.index(max(classes)), *box))
    expected.sort(reverse=True)
    assert len(found) == len(expected) > 20
    assert found.labels.tolist() == [label for _, label, *_ in expected]
    np.testing.assert_allclose(found.scores, [score for score, *_ in expected], atol=1e-5)
    np.testing.assert_allclose(found.xyxy, [box for _, _, *box in expected], atol=1e-3)


def test_another_number_of_classes_needs_names(network):
    seen = network('out (1, 8, 6, 10)', hw=(96, 160))
    assert claim_of(FASTESTDET, seen) is None
    assert claim_of(FASTESTDET, replace(seen, class_count=3))


HW = (96, 160)


@pytest.fixture
def head(network):
    return open_head(YOLO_FASTEST_V2, network('a (1, 6, 10, 18); b (1, 3, 5, 18)', hw=HW))


def test_boxes_and_scores_of_version_2_are_those_of_its_formula(head):
    rng, whole = np.random.default_rng(0), Letterbox.fit((160, 96), HW, 'stretch')
    outputs = {
        name: rng.uniform(0, 1, (1, *shape, 18)).astype(np.float32)
        for name, shape in (('a', (6, 10)), ('b', (3, 5)))
    }
    found = head(outputs, whole, Thresholds(score=0.5, iou=1.0, max_detections=1000))
    expected = []
    for name, stride, priors in zip('ab', (16, 32), PRIORS.astype(float)):
        for row, column in np.ndindex(outputs[name].shape[1:3]):
            values = outputs[name][0, row, column].astype(float)
            for anchor, prior in enumerate(priors):
                x, y, w, h = values[4 * anchor : 4 * anchor + 4]
                center = (np.array([x, y]) * 2 - 0.5 + (column, row)) * stride
                half = (np.array([w, h]) * 2) ** 2 * prior / 2
                box = np.clip([*(center - half), *(center + half)], 0, (160, 96) * 2)
                for label, score in enumerate(values[12 + anchor] * values[15:]):
                    if score >= 0.5 and (box[:2] < box[2:]).all():
                        expected.append((score, label, *box))
    expected.sort(reverse=True)
    assert len(found) == len(expected) > 100
    assert found.labels.tolist() == [label for _, label, *_ in expected]
    np.testing.assert_allclose(found.scores, [score for score, *_ in expected], atol=1e-5)
    np.testing.assert_allclose(found.xyxy, [box for _, _, *box in expected], atol=1e-3)
