"""LSTR: lanes as curves."""

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.errors import TensorMismatchError
from trt_ros.families.lanes import CURVE_POINTS, LSTR
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

HW = (360, 640)
IMAGE = (1280, 720)
QUERIES = 7
SHARED = (-0.0221, 0.123, 0.1, 0.285)  # k, f, m and n.


def outputs_of(*lanes, classes=2, queries=QUERIES):
    """Lanes of a logit, upper and lower end, b and c; the other queries are no lanes."""
    logits, curves = np.zeros((1, queries, classes)), np.zeros((1, queries, 8))
    logits[..., 0] = 5
    for query, (logit, top, bottom, b, c) in enumerate(lanes):
        logits[0, query, :2] = 0, logit
        curves[0, query] = (top, bottom, *SHARED, b, c)
    return {'pred_logits': logits.astype(np.float32), 'pred_curves': curves.astype(np.float32)}


def decode(network, outputs, image_wh=IMAGE, **thresholds):
    specs = '; '.join(f'{key} {value.shape}' for key, value in outputs.items())
    letterbox = Preprocess(HW, **LSTR.preprocess).letterbox(image_wh)
    return open_head(LSTR, network(specs, hw=HW))(outputs, letterbox, Thresholds(**thresholds))


@pytest.mark.parametrize('classes', [2, 3])
def test_a_lane_is_its_curve_between_two_ends(network, classes):
    """The curve that the authors' picture of the repository shows."""
    outputs = outputs_of((4.0, 229 / 720, 0.99, 0.824, 0.19), classes=classes)
    found = decode(network, outputs)
    assert found.detections.labels.tolist() == [0]
    x, y, visibility = found.keypoints[0].T
    np.testing.assert_allclose(y, np.linspace(229, 0.99 * 720, CURVE_POINTS), atol=0.5)
    rows = y / 720
    k, f, m, n = SHARED
    exact = k / (rows - f) ** 2 + m / (rows - f) + n + 0.824 * rows - 0.19
    np.testing.assert_allclose(x, exact * 1280, atol=0.01)
    # The softmax of 4 and zeros.
    probability = np.exp(4) / (np.exp(4) + classes - 1)
    np.testing.assert_allclose(visibility, probability, atol=1e-4)
    assert found.detections.scores.tolist() == [pytest.approx(probability, abs=1e-4)]


def test_points_outside_the_image_are_not_visible(network):
    found = decode(network, outputs_of((4.0, 0.5, 1.5, 0.0, 0.0)))
    visible = found.keypoints[0, :, 2] > 0
    assert visible.tolist() == [True] * 25 + [False] * 25
    assert found.detections.xyxy[0, 3] <= 720
    assert len(decode(network, outputs_of((4.0, 0.5, 0.9, 0.0, 9.0)))) == 0  # Left of the image.


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('name', ['pred_logits', 'pred_curves'])
def test_non_finite_values_are_no_lane(network, name, value):
    outputs = outputs_of((4.0, 0.4, 0.9, 0.1, 0.0), (4.0, 0.4, 0.9, 0.2, 0.0))
    outputs[name][0, 0] = value
    assert len(decode(network, outputs)) == 1


def test_a_curve_without_a_value_at_a_row_has_no_point_there(network):
    outputs = outputs_of((4.0, 0.0, 1.0, 0.0, 0.0))
    outputs['pred_curves'][0, 0, 2:] = (0.0, 0.0, 0.5, 0.0, 0.0, 0.0)  # x = 0.5 / y.
    visible = decode(network, outputs).keypoints[0, :, 2] > 0
    assert visible.tolist() == [False] * 25 + [True] * 25


@pytest.mark.parametrize(
    ('outputs', 'problem'),
    [
        ('pred_logits (1, 7, 4); pred_curves (1, 7, 8)', r'\(1, 7, 4\)'),
        ('pred_logits (1, 7, 2); pred_curves (1, 5, 8)', r'\(1, 5, 8\)'),
        ('out (1, 7, 2); curves (1, 7, 8)', 'expected pred_logits'),
    ],
)
def test_other_outputs_are_refused(network, outputs, problem):
    with pytest.raises(TensorMismatchError, match=problem) as error:
        open_head(LSTR, network(outputs, hw=HW))
    assert 'Name these outputs so' in error.value.remedy


@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16', 'bool'])
def test_the_image_is_not_padded(network, dtype):
    seen = network(
        'pred_logits (1, 7, 2); pred_curves (1, 7, 8)',
        inputs=f'mask (1, 1, 360, 640) {dtype}',
        hw=HW,
    )
    constants = LSTR.constant_inputs(seen)
    assert list(constants) == ['mask']
    assert (constants['mask'].shape, constants['mask'].any()) == ((1, 1, *HW), False)
    nbytes = {'float32': 4, 'bool': 1}.get(dtype, 2)
    assert constants['mask'].nbytes == nbytes * 360 * 640
    alone = network('logits (1, 7, 2); curves (1, 7, 8)', hw=HW)
    assert LSTR.constant_inputs(alone) == {}


def test_channels_are_normalized_in_the_order_of_bgr():
    frame = Frame.from_pixels(np.full((2, 2, 3), (255, 0, 0), np.uint8), 'bgr8')
    tensor = Preprocess(HW, **LSTR.preprocess)(frame)[0]
    blue, _, red = tensor[0, :, 0, 0]
    assert blue == pytest.approx((1 - 0.40789654) / 0.28863828, abs=1e-4)
    assert red == pytest.approx(-0.47026115 / 0.27809835, abs=1e-4)
