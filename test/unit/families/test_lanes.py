"""Lanes of UFLD by rows, UFLDv2 by rows and columns, and LSTR as curves."""

import numpy as np
import pytest

from support.descriptions import head
from trt_ros.decode.choice import open_head
from trt_ros.errors import TensorMismatchError
from trt_ros.families.lanes import CURVE_POINTS, LSTR, UFLD_V2_CULANE, UFLD_V2_TUSIMPLE
from trt_ros.families.registry import POSES, choose_family
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.thresholds import Thresholds

INPUT = Letterbox.fit((800, 288), (288, 800), 'stretch')


def outputs(lanes, rows=18, columns=200, logit=20.0):
    """Each lane {row: column}; "no lane" at the other rows."""
    logits = np.zeros((1, columns + 1, rows, 4))
    logits[:, -1] = logit
    for lane, points in lanes.items():
        for row, column in points.items():
            logits[0, -1, row, lane] = 0
            logits[0, column, row, lane] = logit
    return {'out': logits.astype(np.float32)}


def decode(tensors, letterbox=INPUT, score=0.25, max_detections=100):
    thresholds = Thresholds(score, 0.5, max_detections)
    return head('ufld', tensors, hw=INPUT.input_hw)(tensors, letterbox, thresholds)


def test_a_lane_is_a_line_of_keypoints_in_input_pixels():
    tensors = outputs({2: {3: 99, 4: 100, 5: 101}})
    tensors['out'][0, 102, 5, 2] = 20  # Between columns it is their mean.
    found = decode(tensors)
    assert found.detections.labels.tolist() == [2]
    np.testing.assert_allclose(found.detections.scores, [1], atol=1e-5)
    pitch = 800 / 199
    np.testing.assert_allclose(
        found.keypoints[0, 3:6, :2],
        [(99.5 * pitch, 150), (100.5 * pitch, 160), (102 * pitch, 170)],
        atol=0.01,
    )
    assert (found.keypoints[0, :, 2] > 0.5).nonzero()[0].tolist() == [3, 4, 5]
    np.testing.assert_allclose(
        found.detections.xyxy, [[99.5 * pitch, 150, 102 * pitch, 170]], atol=0.01
    )


def test_rows_of_tusimple_in_the_pixels_of_the_image():
    letterbox = Letterbox.fit((1280, 720), (288, 800), 'stretch')
    found = decode(outputs({0: dict.fromkeys(range(56), 49)}, rows=56, columns=100), letterbox)
    # The rows 160, 170 .. 710 of TuSimple's annotations.
    np.testing.assert_allclose(found.keypoints[0, :, 1], np.arange(160, 720, 10), atol=1e-3)
    np.testing.assert_allclose(found.keypoints[0, :, 0], 49.5 * 1280 / 99, atol=0.01)


def test_lanes_of_two_points_or_of_a_low_score_or_beyond_the_limit_are_left_out():
    lanes = {0: {1: 5, 2: 6}, 1: {1: 9, 2: 9, 3: 9}}
    assert decode(outputs(lanes)).detections.labels.tolist() == [1]
    unsure = outputs({3: {1: 9, 2: 9, 3: 9}})
    unsure['out'][0, -1, 1:4, 3] = 19.9
    assert decode(unsure, score=0.5).detections.labels.tolist() == [3]
    assert len(decode(unsure, score=0.6)) == 0
    points = {row: 99 for row in range(3, 9)}
    tensors = outputs({0: points, 1: points, 2: points})
    asked = Thresholds(0.25, max_detections=1, classes=['2', '3'])
    found = head('ufld', tensors)(tensors, INPUT, ClassThresholds.of(asked, ()))
    assert found.detections.labels.tolist() == [2]


@pytest.mark.parametrize(
    'value, points', [(np.nan, [1, 3, 4]), (np.inf, [1, 3, 4]), (-np.inf, [1, 2, 3, 4])]
)
def test_rows_with_nan_or_infinity_have_no_point_but_a_cell_may_be_impossible(value, points):
    tensors = outputs({0: {1: 9, 2: 9, 3: 9, 4: 9}})
    tensors['out'][0, 7, 2, 0] = value
    found = decode(tensors)
    assert found.keypoints[0, :, 2].nonzero()[0].tolist() == points
    assert np.isfinite(found.keypoints).all()


SIZES = {'ufld_v2_culane': (200, 100, 72, 81), 'ufld_v2_tusimple': (100, 100, 56, 41)}
HW = {'ufld_v2_culane': (320, 1600), 'ufld_v2_tusimple': (320, 800)}
DETECTORS = {family.name: family for family in (UFLD_V2_CULANE, UFLD_V2_TUSIMPLE)}
CULANE, TUSIMPLE = DETECTORS
CULANE_IMAGE, TUSIMPLE_IMAGE = (1640, 590), (1280, 720)


def empty(name):
    """No lane anywhere."""
    row_cells, column_cells, rows, columns = SIZES[name]
    outputs = {
        'loc_row': np.zeros((1, row_cells, rows, 4)),
        'loc_col': np.zeros((1, column_cells, columns, 4)),
        'exist_row': np.zeros((1, 2, rows, 4)),
        'exist_col': np.zeros((1, 2, columns, 4)),
    }
    for kind in ('row', 'col'):
        outputs[f'exist_{kind}'][:, 0] = 6
    return {key: value.astype(np.float32) for key, value in outputs.items()}


def place(outputs, lane, cell, at, kind='row', logit=6.0):
    """Put a lane into a cell at some rows or columns."""
    outputs[f'loc_{kind}'][0, cell, at, lane] = 50
    outputs[f'exist_{kind}'][0, 0, at, lane] = 0
    outputs[f'exist_{kind}'][0, 1, at, lane] = logit


def decode_v2(network, name, outputs, image_wh=CULANE_IMAGE, **thresholds):
    family = DETECTORS[name]
    head = open_head(family, network(outputs, hw=HW[name]))
    preprocess = Preprocess(HW[name], **family.preprocess)
    return head(outputs, preprocess.letterbox(image_wh), Thresholds(**thresholds))


def test_middle_lanes_are_columns_at_rows_of_the_whole_image(network):
    outputs = empty(CULANE)
    place(outputs, 1, 99, slice(20, 72))
    found = decode_v2(network, CULANE, outputs)
    assert found.detections.labels.tolist() == [1]
    visible = found.keypoints[0, :, 2] > 0
    assert np.flatnonzero(visible).tolist() == list(range(20, 72))
    x, y, visibility = found.keypoints[0, visible].T
    np.testing.assert_allclose(x, 99.5 / 199 * 1640, atol=0.01)
    # CULane's rows: 0.42 to 1 of the height.
    np.testing.assert_allclose(y, np.linspace(0.42, 1, 72)[20:] * 590, atol=0.01)
    np.testing.assert_allclose(visibility, 1 / (1 + np.exp(-6)), atol=1e-3)
    assert found.detections.scores.tolist() == [pytest.approx(visibility.mean())]


def test_outer_lanes_are_rows_at_columns_of_the_whole_image(network):
    outputs = empty(TUSIMPLE)
    place(outputs, 3, 60, slice(10, 35), 'col')
    found = decode_v2(network, TUSIMPLE, outputs, TUSIMPLE_IMAGE)
    assert found.detections.labels.tolist() == [3]
    visible = found.keypoints[0, :, 2] > 0
    x, y, _ = found.keypoints[0, visible].T
    np.testing.assert_allclose(x, np.arange(10, 35) * 1280 / 40, atol=0.01)
    np.testing.assert_allclose(y, 60.5 / 99 * 720, atol=0.01)
    left, top, right, bottom = found.detections.xyxy[0].tolist()
    assert (left, right) == (pytest.approx(320), pytest.approx(34 * 32))
    assert top == bottom == pytest.approx(60.5 / 99 * 720, abs=0.01)


def test_each_lane_is_read_from_its_own_anchors(network):
    """Middle lanes at columns and outer lanes at rows are not published, as by the authors."""
    outputs = empty(CULANE)
    for lane in (0, 3):
        place(outputs, lane, 50, slice(None))
    for lane in (1, 2):
        place(outputs, lane, 50, slice(None), 'col')
    assert len(decode_v2(network, CULANE, outputs)) == 0


@pytest.mark.parametrize(
    ('kind', 'lane', 'few', 'enough'), [('row', 1, 36, 37), ('col', 0, 20, 21)]
)
def test_a_lane_has_points_in_half_of_the_rows_or_a_quarter_of_the_columns(
    network, kind, lane, few, enough
):
    for count in (few, enough):
        outputs = empty(CULANE)
        place(outputs, lane, 50, slice(0, count), kind)
        assert len(decode_v2(network, CULANE, outputs)) == (count == enough)


def test_a_point_is_the_mean_of_the_best_cell_and_its_neighbors(network):
    outputs = empty(CULANE)
    place(outputs, 1, 99, slice(None))
    outputs['loc_row'][0, 100, :, 1] = 50
    outputs['loc_row'][0, 150, :, 1] = 49.9  # Far away: not in the mean.
    outputs['loc_row'][0, :, 5, 1] = 0
    outputs['loc_row'][0, 0, 5, 1] = 50  # At the edge.
    found = decode_v2(network, CULANE, outputs)
    assert found.keypoints[0, 9, 0] == pytest.approx(100 / 199 * 1640, abs=0.01)
    assert found.keypoints[0, 5, 0] == pytest.approx(0.5 / 199 * 1640, abs=0.01)


def test_lanes_come_best_score_first_and_limited(network):
    outputs = empty(CULANE)
    for lane, kind, logit in ((0, 'col', 1.0), (1, 'row', 3.0), (2, 'row', 2.0), (3, 'col', 4.0)):
        place(outputs, lane, 50, slice(None), kind, logit)
    assert decode_v2(network, CULANE, outputs).detections.labels.tolist() == [3, 1, 2, 0]
    for limits, labels in (({'score': 0.9}, [3, 1]), ({'max_detections': 1}, [3])):
        found = decode_v2(network, CULANE, outputs, **limits)
        assert found.detections.labels.tolist() == labels


@pytest.mark.parametrize('value', [np.nan, np.inf])
@pytest.mark.parametrize('output', ['loc_row', 'exist_row'])
def test_rows_with_non_finite_values_have_no_point(network, output, value):
    outputs = empty(CULANE)
    place(outputs, 1, 99, slice(None))
    outputs[output][0, 0, 7, 1] = value
    found = decode_v2(network, CULANE, outputs)
    assert np.isfinite(found.keypoints).all()
    assert np.flatnonzero(found.keypoints[0, :, 2] == 0).tolist()[0] == 7


@pytest.mark.parametrize('name', DETECTORS)
def test_the_network_sees_the_lower_part_of_the_image(name):
    """The stretched image is cut off above, as the authors crop it."""
    height, width = HW[name]
    inner = {CULANE: 533, TUSIMPLE: 400}[name]
    letterbox = Preprocess(HW[name], **DETECTORS[name].preprocess).letterbox((1000, 500))
    assert letterbox.inner_wh == (width, inner)
    assert letterbox.pad_xy == (0, height - inner)
    pixels = np.repeat(np.arange(500)[:, None] // 2, 1000, axis=1).astype(np.uint8)
    frame = Frame.from_pixels(np.stack([pixels] * 3, axis=-1), 'rgb8')
    cropped, _ = Preprocess(HW[name], **DETECTORS[name].preprocess)(frame)
    whole, _ = Preprocess((inner, width), **{**DETECTORS[name].preprocess, 'resize': 'stretch'})(
        frame
    )
    np.testing.assert_allclose(cropped, whole[:, :, -height:], atol=1e-5)


def test_another_shape_is_refused(network):
    outputs = empty(CULANE)
    head = open_head(UFLD_V2_CULANE, network(outputs))
    outputs['exist_col'] = outputs['exist_col'][:, :, 1:]
    whole = Letterbox.fit((1600, 320), HW[CULANE], 'stretch')
    with pytest.raises(TensorMismatchError, match=r'got .*exist_col \(1, 2, 80, 4\)'):
        head(outputs, whole)
    with pytest.raises(
        TensorMismatchError, match=r'expected \(1, G, 72, 4\) with \(1, L, 81, 4\)'
    ):
        open_head(UFLD_V2_CULANE, network('out (1, 201, 18, 4)'))


def test_networks_of_curvelanes_are_named(network):
    seen = network(
        'loc_row (1, 200, 72, 10); loc_col (1, 100, 81, 10); exist_row (1, 2, 72, 10); '
        'exist_col (1, 2, 81, 10); lanes (1, 1, 25, 50); others (1, 1, 25, 50)',
        hw=(800, 1600),
    )
    with pytest.raises(TensorMismatchError, match='No decoder recognizes') as error:
        choose_family(POSES, 'auto', seen)
    assert error.value.remedy.startswith('Ten lanes of 72 rows and 81 columns are UFLDv2 of Curve')
    assert 'The node `tensor` runs any network' in error.value.remedy


def test_positions_do_not_depend_on_the_resize(network):
    """A camera image that is cropped already, with `resize: stretch`."""
    outputs = empty(TUSIMPLE)
    place(outputs, 1, 50, slice(None))
    head = open_head(UFLD_V2_TUSIMPLE, network(outputs, hw=HW[TUSIMPLE]))
    cropped = Letterbox.fit((1280, 576), HW[TUSIMPLE], 'stretch')  # Without the upper 144 rows.
    found = head(outputs, cropped, Thresholds())
    np.testing.assert_allclose(found.keypoints[0, :, 1], np.arange(160, 720, 10) - 144, atol=0.01)


LSTR_HW = (360, 640)
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


def decode_curves(network, outputs, image_wh=IMAGE, **thresholds):
    letterbox = Preprocess(LSTR_HW, **LSTR.preprocess).letterbox(image_wh)
    head = open_head(LSTR, network(outputs, hw=LSTR_HW))
    return head(outputs, letterbox, Thresholds(**thresholds))


@pytest.mark.parametrize('classes', [2, 3])
def test_a_lane_is_its_curve_between_two_ends(network, classes):
    """The curve that the authors' picture of the repository shows."""
    outputs = outputs_of((4.0, 229 / 720, 0.99, 0.824, 0.19), classes=classes)
    found = decode_curves(network, outputs)
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


def test_points_outside_the_image_and_of_rows_without_a_value_are_not_visible(network):
    found = decode_curves(network, outputs_of((4.0, 0.5, 1.5, 0.0, 0.0)))
    visible = found.keypoints[0, :, 2] > 0
    assert visible.tolist() == [True] * 25 + [False] * 25
    assert found.detections.xyxy[0, 3] <= 720
    assert (
        len(decode_curves(network, outputs_of((4.0, 0.5, 0.9, 0.0, 9.0)))) == 0
    )  # Left of the image.
    outputs = outputs_of((4.0, 0.0, 1.0, 0.0, 0.0))
    outputs['pred_curves'][0, 0, 2:] = (0.0, 0.0, 0.5, 0.0, 0.0, 0.0)  # x = 0.5 / y.
    visible = decode_curves(network, outputs).keypoints[0, :, 2] > 0
    assert visible.tolist() == [False] * 25 + [True] * 25


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('name', ['pred_logits', 'pred_curves'])
def test_non_finite_values_are_no_lane(network, name, value):
    outputs = outputs_of((4.0, 0.4, 0.9, 0.1, 0.0), (4.0, 0.4, 0.9, 0.2, 0.0))
    outputs[name][0, 0] = value
    assert len(decode_curves(network, outputs)) == 1


@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16', 'bool'])
def test_the_image_is_not_padded(network, dtype):
    seen = network(
        'pred_logits (1, 7, 2); pred_curves (1, 7, 8)',
        inputs=f'mask (1, 1, 360, 640) {dtype}',
        hw=LSTR_HW,
    )
    constants = LSTR.constant_inputs(seen)
    assert list(constants) == ['mask']
    assert (constants['mask'].shape, constants['mask'].any()) == ((1, 1, *LSTR_HW), False)
    nbytes = {'float32': 4, 'bool': 1}.get(dtype, 2)
    assert constants['mask'].nbytes == nbytes * 360 * 640
    alone = network('logits (1, 7, 2); curves (1, 7, 8)', hw=LSTR_HW)
    assert LSTR.constant_inputs(alone) == {}
