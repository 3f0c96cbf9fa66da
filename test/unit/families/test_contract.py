"""What the NumPy decoders of all families of boxes and keypoints have in common."""

import numpy as np
import pytest

from support.box_cases import CASES, assert_same
from trt_ros.vision.thresholds import Thresholds

ASKED = Thresholds(score=0.5, iou=0.45, max_detections=100)


@pytest.mark.parametrize('name', CASES)
def test_half_precision_is_decoded_in_single(name):
    head, outputs, letterbox = CASES[name](0)
    halves, singles = dict(outputs), dict(outputs)
    for key, values in outputs.items():
        if values.dtype == np.float32:
            halves[key] = values.astype(np.float16)
            singles[key] = halves[key].astype(np.float32)
    found, boxes = head(halves, letterbox, ASKED), head(singles, letterbox, ASKED)
    assert_same(found, boxes, pixels=0, scores=0)
    found = getattr(found, 'detections', found)
    assert found.xyxy.dtype == found.scores.dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize(
    ('bad', 'share'), [(np.nan, 0.1), (np.inf, 0.01), (-np.inf, 0.1), (np.nan, 1), (-np.inf, 1)]
)
@pytest.mark.parametrize('name', CASES)
def test_values_that_are_not_finite_are_in_no_result(name, bad, share):
    head, outputs, letterbox = CASES[name](0)
    rng = np.random.default_rng(0)
    outputs = {key: values.copy() for key, values in outputs.items()}
    for values in outputs.values():
        if values.dtype == np.float32 and values.size > 1:
            values[rng.random(values.shape) <= share] = bad
    found = head(outputs, letterbox, ASKED)
    found = getattr(found, 'detections', found)
    assert np.isfinite(found.xyxy).all()
    assert ((found.scores >= 0) & (found.scores <= 1)).all()
    assert share < 1 or len(found) == 0
