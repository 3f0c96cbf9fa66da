"""Rows of boxes: scores, classes and counts, and which rows are no objects."""

import numpy as np
import pytest

from support.descriptions import head as open_as
from support.descriptions import network
from trt_ros.decode.choice import choose_decoder
from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import NetworkDescription
from trt_ros.families.nanodet import PICODET, PPYOLOE, PPYOLOE_PLUS
from trt_ros.runtime.heads import names_of
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (100, 200)
WHOLE = Letterbox.fit((200, 100), HW, 'stretch')
FOUR = [[10, 10, 30, 30], [11, 10, 31, 30], [100, 20, 180, 80], [0, 0, 5, 5]]


def decode(family, outputs, described=None, score=0.25, **known):
    """Decode {name: array}; return label, score and box of each detection."""
    outputs = {name: np.asarray(array) for name, array in outputs.items()}
    head = open_as(family, described or outputs, hw=HW, **known)
    found = head(outputs, WHOLE, Thresholds(score=score, iou=0.45, max_detections=100))
    values = found.labels.tolist(), found.scores.tolist(), found.xyxy.tolist()
    return [(label, pytest.approx(score), xyxy) for label, score, xyxy in zip(*values)]


def plain(boxes, scores, **others):
    boxes = np.array([boxes], np.float32).reshape(1, -1, 4)
    return {'boxes': boxes, 'scores': np.array([scores], np.float32), **others}


def test_scores_are_suppressed_per_class_and_without_labels_are_of_one():
    scores = [[0.6, 0.0], [0.9, 0.3], [0.0, 0.5], [0.1, 0.2]]
    expected = [(0, 0.9, FOUR[1]), (1, 0.5, FOUR[2]), (1, 0.3, FOUR[1])]
    assert decode('boxes', plain(FOUR, scores)) == expected
    outputs = plain(FOUR, [0.6, 0.9, 0.5, 0.1])
    assert decode('boxes', outputs) == [(0, 0.9, FOUR[1]), (0, 0.5, FOUR[2])]


def test_nothing_is_found_in_no_rows_beside_nan_or_of_no_class():
    outputs = {'boxes': np.zeros((0, 4)), 'labels': np.zeros(0, int), 'scores': np.zeros(0)}
    assert decode('boxes', outputs, 'boxes (?, 4); labels (?) int64; scores (?)') == []
    output = np.zeros((1, 7, 20), np.float32)
    output[0, :, 3] = [50, 50, 20, 20, 0.9, np.nan, 0]
    assert decode('yolov8', {'output0': output}) == []
    assert tensorflow((3, 1e38, np.nan, np.inf)) == [2]
    assert tensorflow((3, 0, 2, 1)) == [2, 0]


@pytest.mark.parametrize('count', [0, 2, 4, 99, -1])
def test_efficient_nms_rows_beyond_count_are_ignored(count):
    outputs = {
        'num_dets': np.array([[count]], np.int32),
        **plain(FOUR, [0.9, 0.8, 0.7, 0.6]),
        'classes': np.array([[3, 3, 5, -1]], np.int32),
    }
    expected = [(3, 0.9, FOUR[0]), (3, 0.8, FOUR[1]), (5, 0.7, FOUR[2])][: max(count, 0)]
    assert decode('efficient_nms', outputs) == expected


def tensorflow(classes=(3, 1, 2, 1), **count):
    """Return the labels of four boxes, of which the third has a low score."""
    names = ('detection_boxes', 'detection_scores', 'detection_classes')
    boxes = [[0.1, 0.2, 0.5, 0.6], [0.5, 0, 1, 0.25], [0, 0, 1, 1], [0, 0, 1, 1]]
    values = boxes, [0.5, 0.75, 0.125, 0.5], classes
    outputs = {name: np.array([each], np.float32) for name, each in zip(names, values)}
    outputs |= {name: np.array([each], np.float32) for name, each in count.items()}
    return [label for label, *_ in decode('tensorflow', outputs)]


@pytest.mark.parametrize(
    ('count', 'labels'), [(3, [0, 2]), (np.nan, []), (-np.inf, []), (np.inf, [0, 2, 0])]
)
def test_a_number_of_boxes_that_is_no_number_is_no_error(count, labels):
    assert tensorflow(num_detections=count) == labels


@pytest.mark.parametrize('given', [['cat', 'dog'], ['background', 'cat', 'dog']], ids=len)
def test_names_of_tensorflow_may_begin_with_background(given):
    seen = network(
        'detection_boxes (1, 4, 4); detection_classes (1, 4); detection_scores (1, 4); '
        'num_detections (1)'
    )
    has_background = given[0] == 'background'
    chosen = choose_decoder(
        'auto',
        NetworkDescription((), seen.outputs, {}, (640, 640), len(given)),
        has_background=has_background,
    )
    assert names_of(given, '', {}, chosen) == ('cat', 'dog')


def test_rows_of_nms_that_choose_no_box_are_ignored():
    outputs = {'chosen': np.array([(-1, -1, -1), (0, 0, 0), (1, 0, 1), (0, 2, 0), (0, 0, 3)])}
    outputs |= plain(FOUR[:3], [[0.6, 0.9, 0.1], [0.3, 0.2, 0.7]])
    described = 'chosen (?, 3) int64; boxes (1, 3, 4); scores (1, 2, 3)'
    assert decode('onnx_nms', outputs, described) == [(0, 0.6, FOUR[0])]
    outputs['scores'] = outputs['scores'][:, :1, :2]
    with pytest.raises(TensorMismatchError, match=r'got chosen .*, scores \(1, 1, 2\)'):
        decode('onnx_nms', outputs, described)


PADDLE = pytest.mark.parametrize('family', [PPYOLOE, PPYOLOE_PLUS, PICODET], ids=lambda x: x.name)
INPUTS = 'scale_factor (1, 2); im_shape (1, 2)'
FINISHED = 'multiclass_nms3_0.tmp_0 (?, 6); multiclass_nms3_0.tmp_2 (1) int32'


@PADDLE
def test_rows_of_paddle_are_class_score_and_corners_without_further_nms(family):
    box, bad = [10, 20, 30, 40], [10, np.inf, 30, 40]
    rows = [[1, 0.5, *box], [-1, 0.9, *box], [1, 0.75, *box], [0, 0.1, *box], [2, np.nan, *box]]
    rows = np.array([*rows, [2, 0.5, *bad]], np.float32)
    outputs = {'multiclass_nms3_0.tmp_0': rows, 'multiclass_nms3_0.tmp_2': np.int32([6])}
    found = decode(family.name, outputs, FINISHED, inputs=INPUTS)
    assert found == [(1, 0.75, box), (1, 0.5, box)]
    head = open_as(family.name, FINISHED, inputs=INPUTS)
    assert (head.class_count, head.takes_batches) == (None, False)


@PADDLE
def test_boxes_of_paddle_before_nms_have_scores_by_class_and_no_resize(family):
    scores = np.array([[0, 0.5, 0], [0, 0.75, 0.375], [0.25, 0, 0], [0, np.nan, 0]]).T
    found = decode(family.name, plain(FOUR, scores), inputs=INPUTS)
    assert found == [(1, 0.75, FOUR[1]), (2, 0.375, FOUR[1]), (0, 0.25, FOUR[2])]
    fed = family.constant_inputs(network(FINISHED, inputs=INPUTS, hw=HW))
    assert [value.tolist() for value in fed.values()] == [[[1, 1]], [[100, 200]]]
    assert list(fed) == ['scale_factor', 'im_shape']
    assert {value.dtype for value in fed.values()} == {np.dtype(np.float32)}
    assert family.constant_inputs(network(FINISHED, hw=HW)) == {}


def queries(family, *logits, score=0.25, **known):
    """Return label and score of the detections of queries of one box."""
    outputs = {'logits': np.full((1, 6, len(logits[0])), -50, np.float32)}
    outputs['logits'][..., -1] = 50 if family == 'detr' else -50  # No object.
    outputs['logits'][0, : len(logits)] = logits
    outputs['pred_boxes'] = np.full((1, 6, 4), 0.5, np.float32)
    return [(label, value) for label, value, _ in decode(family, outputs, score=score, **known)]


def test_sigmoid_scores_are_independent_and_softmax_scores_of_the_best_class_or_no_object():
    one, other = np.log([1, 1e-9, 3]), np.log([1e-9, 1.5, 1e-9])
    expected = [(2, 0.75), (1, 0.6), (0, 0.5)]
    assert queries('rtdetr', one, other) == expected
    assert queries('rtdetr', one, one) == [(2, 0.75), (2, 0.75), (0, 0.5), (0, 0.5)]
    assert len(queries('rtdetr', *[[1, 2, 3]] * 6)) == 6  # As many as queries.
    assert queries('rfdetr', np.log([1e-9, 1, 3]), class_count=2) == [(1, 0.5)]
    assert queries('detr', np.log([3, 6, 1]), [0, 0, 1]) == [(1, 0.6)]
    # As transformers does: though no object is likelier.
    assert queries('detr', np.log([2, 1e-9, 3])) == [(0, 0.4)]
    found = queries('detr', *[[0, 3, 0, 0]] * 5, [2, 0, 0, 0], score=0.0)
    assert [label for label, _ in found] == [1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize('family', ['rtdetr', 'detr'])
def test_logits_too_large_for_exp_give_finite_scores(family):
    assert queries(family, [1000, -50, -50]) == [(0, 1.0)]
