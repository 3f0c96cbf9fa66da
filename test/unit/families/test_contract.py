"""What the NumPy decoders of all families of boxes and keypoints have in common."""

import numpy as np
import pytest

from support.box_cases import CASES, POINT_CASES, assert_same
from trt_ros.vision.thresholds import Thresholds

ASKED = Thresholds(score=0.5, iou=0.45, max_detections=100)
#: Families whose boxes do not compete.
FINAL = (
    *('yolov10', 'rtdetr', 'rfdetr', 'detr', 'boxes with labels', 'efficient_nms', 'mmdetection'),
    *('without a batch', 'tensorflow', 'paddle', 'centernet', 'movenet', 'ufld', 'lstr'),
)


def boxes(found):
    return getattr(found, 'detections', found)


@pytest.mark.parametrize('name', CASES | POINT_CASES)
def test_half_precision_is_decoded_in_single(name):
    head, outputs, letterbox = (CASES | POINT_CASES)[name](0)
    halves, singles = dict(outputs), dict(outputs)
    for key, values in outputs.items():
        if values.dtype == np.float32:
            halves[key] = values.astype(np.float16)
            singles[key] = halves[key].astype(np.float32)
    found, expected = head(halves, letterbox, ASKED), head(singles, letterbox, ASKED)
    assert_same(found, expected, pixels=0, scores=0)
    assert boxes(found).xyxy.dtype == boxes(found).scores.dtype == np.float32


@pytest.mark.parametrize('name', CASES)
def test_the_best_come_first_above_the_threshold_and_outputs_stay_as_they_are(name):
    head, outputs, letterbox = CASES[name](0)
    before = {key: values.copy() for key, values in outputs.items()}

    def decode(**limits):
        return boxes(head(outputs, letterbox, Thresholds(iou=0.45, **limits)))

    found = decode(score=0.5, max_detections=1000)
    assert (np.diff(found.scores) <= 0).all() and found.scores.min() >= 0.5
    assert found.labels.dtype == np.int32 and found.labels.min() >= 0
    lowest = float(found.scores[-1])
    assert decode(score=lowest, max_detections=1000).scores[-1] == found.scores[-1]
    assert decode(score=lowest + 1e-6, max_detections=1000).scores.min(initial=1) > lowest
    (best,) = decode(score=0.5, max_detections=1).xyxy
    assert best.tolist() == found.xyxy[0].tolist()
    for key, values in outputs.items():
        assert np.array_equal(values, before[key], equal_nan=values.dtype.kind == 'f')
        assert not np.shares_memory(values, found.xyxy)


@pytest.mark.parametrize('name', CASES)
def test_boxes_of_a_class_compete_unless_they_are_final(name):
    head, outputs, letterbox = CASES[name](0)
    few, all_of_them = (
        len(head(outputs, letterbox, Thresholds(score=0.4, iou=iou, max_detections=10_000)))
        for iou in (0.2, 1.0)
    )
    assert (few == all_of_them) == name.startswith(FINAL) and few > 0


@pytest.mark.slow
@pytest.mark.parametrize('name', CASES)
def test_values_that_are_not_finite_are_in_no_result(name):
    head, outputs, letterbox = CASES[name](0)
    for bad, share in (
        *((np.nan, 0.1), (np.inf, 0.01), (-np.inf, 0.1)),
        *((np.nan, 1), (-np.inf, 1)),
    ):
        rng, spoiled = np.random.default_rng(0), {}
        for key, values in outputs.items():
            is_kept = values.dtype != np.float32 or values.size == 1
            spoiled[key] = np.where(is_kept | (rng.random(values.shape) > share), values, bad)
            spoiled[key] = spoiled[key].astype(values.dtype)
        found = boxes(head(spoiled, letterbox, ASKED))
        assert np.isfinite(found.xyxy).all()
        assert ((found.scores >= 0) & (found.scores <= 1)).all()
        assert share < 1 or len(found) == 0
