"""Scores outside 0 to 1, which no family publishes; those of layouts are in test_layouts.py."""

import numpy as np
import pytest

from support.descriptions import FAMILIES
from trt_ros.decode.choice import open_head
from trt_ros.errors import ScoreRangeError
from trt_ros.tensors import CUT_NMS
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import as_float32, check_range, highest, passing, sortable
from trt_ros.vision.thresholds import Thresholds

HW = (64, 64)
WHOLE = Letterbox.fit((64, 64), HW, 'stretch')
CELLS = 84  # Of strides 8, 16 and 32.
CORNERS = (16, 16, 48, 48)
CUT = (
    '{"operator": "NonMaxSuppression", "iou_threshold": 0.5, "per_class": 9, '
    '"score_threshold": null, "in_all": 9, "background": -1, "normalized": false}'
)


def rows(count, *values):
    output = np.zeros((1, count, len(values)), np.float32)
    output[0, 3] = values
    return output


def visible(score):
    """(1, 4 + 2 + 6, 84)."""
    output = np.zeros((1, 12, CELLS), np.float32)
    output[0, :, 3] = 32, 32, 16, 16, 0.1, 0.9, 1, 2, 0.5, 3, 4, score
    return output


def chosen(score):
    scores = np.zeros((1, 2, 9), np.float32)
    scores[0, 1, 3] = score
    return np.array([[0, 1, 3]], np.int64), rows(9, *CORNERS), scores


#: What layouts do not decode: family, outputs of `network`, metadata, values by a score.
CASES = {
    'onnx_nms': ('onnx_nms', 'ids (?, 3) int64; boxes (1, 9, 4); scores (1, 2, 9)', {}, chosen),
    'onnx_nms, cut off': (
        'onnx_nms',
        'boxes (1, 9, 4); scores (1, 9, 3)',
        {CUT_NMS: CUT},
        lambda s: [rows(9, *CORNERS), rows(9, 0.1, 0.1, s)],
    ),
    'yolo_fastest_v2': (
        'yolo_fastest_v2',
        'a (1, 4, 4, 95); b (1, 2, 2, 95)',
        {},
        lambda s: [
            np.tile(np.array([*[0.5] * 12, s, 0, 0, 1, *[0] * 79], np.float32), (1, n, n, 1))
            for n in (4, 2)
        ],
    ),
    'mediapipe_hand': (
        'mediapipe_hand',
        'points (1, 63); score (1, 1)',
        {},
        lambda s: [np.zeros((1, 63), np.float32), np.full((1, 1), s, np.float32)],
    ),
    'visible keypoints': (
        'yolov8_pose',
        'out (1, 12, 84)',
        {'kpt_shape': '[2, 3]'},
        lambda s: [visible(s)],
    ),
}


@pytest.mark.parametrize('case', CASES)
def test_scores_are_0_to_1_or_an_error(network, case):
    name, outputs, metadata, values = CASES[case]
    seen = network(outputs, hw=HW, **metadata)
    head = open_head(FAMILIES[name], seen)

    def scores_found(score, threshold=0.25):
        arrays = {spec.name: array for spec, array in zip(seen.outputs, values(score))}
        found = head(arrays, WHOLE, Thresholds(threshold, 0.5, max_detections=10))
        return getattr(found, 'detections', found).scores

    for score in (1.0, 1.0005):  # Rounding.
        assert 0.05 < scores_found(score).max(initial=0) <= 1
    for score in (315.0, 1.01, -4.0):
        with pytest.raises(
            ScoreRangeError, match=f'a score of {score:g}, outside 0 to 1'
        ) as error:
            scores_found(score)
        assert 'Set `decoder`' in error.value.remedy
    for score in (np.nan, np.inf, -np.inf):
        found = scores_found(score, 0.0)
        assert np.isfinite(found).all() and found.max(initial=0) <= 1


@pytest.mark.parametrize(
    ('name', 'shape', 'at', 'score', 'known'),
    [
        ('yolov8', (1, 84, CELLS), np.s_[:], -5, {'task': 'detect'}),
        ('yolov5', (1, 252, 16), np.s_[..., 5:15], 315, {}),
    ],
    ids=['logits', 'landmarks in place of classes'],
)
def test_scores_out_of_range_are_found_without_an_object(network, name, shape, at, score, known):
    """All anchors are background, as in warming up."""
    output = np.zeros(shape, np.float32)
    output[at] = score
    head = open_head(FAMILIES[name], network(f'out {shape}', hw=HW, **known))
    with pytest.raises(ScoreRangeError, match=f'a score of {score}'):
        head({'out': output}, WHOLE, Thresholds(score=1.0, iou=1.0, max_detections=1))


@pytest.mark.parametrize('values', [[], [0, 1], [[0.25], [0.5]]])
def test_scores_in_the_range_are_not_copied(values):
    scores = np.array(values, np.float32)
    assert check_range(scores) is scores


def test_rounding_is_limited_and_the_worst_score_named_beside_what_is_not_finite():
    scores = np.array([1.0005, -0.0005, 0.5, np.nan, np.inf, -np.inf], np.float32)
    before = scores.copy()
    limited = check_range(scores)
    np.testing.assert_array_equal(limited, [1, 0, 0.5, np.nan, np.inf, -np.inf])
    assert limited.dtype == np.float32
    np.testing.assert_array_equal(scores, before)
    with pytest.raises(ScoreRangeError, match='a score of -7,'):
        check_range(np.array([[np.nan, 2], [-7, np.inf]], np.float32))


def test_unused_entries_and_rows_may_hold_negative_scores():
    scores = np.array([-1, 1.0005, 0.5], np.float32)
    assert check_range(scores, is_padded=True).tolist() == [0, 1, 0.5]
    with pytest.raises(ScoreRangeError, match='a score of 2,'):
        check_range(np.array([-1, 2], np.float32), is_padded=True)
    passes = passing(np.array([-1, 0.5, np.nan], np.float32), 0.25, is_padded=True)
    assert passes.tolist() == [False, True, False]


# Half floats.

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = ALL[np.isfinite(ALL)]


@pytest.mark.parametrize('values', [ALL[:0], FINITE, ALL, FINITE[:99].reshape(3, 33).T])
def test_every_half_becomes_the_same_number(values):
    expected = values.astype(np.float32)
    assert as_float32(values).dtype == np.float32
    assert np.array_equal(as_float32(values), expected, equal_nan=True)
    assert np.array_equal(np.signbit(as_float32(values)), np.signbit(expected))


def test_other_numbers_become_float32_too():
    assert as_float32(np.array([1.5, -2.0])).dtype == np.float32
    singles = np.ones(3, np.float32)
    assert as_float32(singles) is singles
    assert sortable(singles) is singles


def test_integers_sort_as_their_halves():
    finite = np.sort(FINITE)
    ranks = sortable(finite).astype(int)
    assert (np.diff(ranks) >= 0).all()
    assert np.array_equal(
        np.diff(ranks) > 0,
        (finite[1:] != finite[:-1]) | np.signbit(finite[:-1]) & ~np.signbit(finite[1:]),
    )


@pytest.mark.parametrize('special', [None, np.nan, -np.nan, -1.0, -0.0, np.inf, -np.inf])
@pytest.mark.parametrize('dtype', ['float16', 'float32'])
def test_the_highest_score_is_that_of_numpy(special, dtype):
    scores = np.random.default_rng(0).uniform(0, 1, (5, 7)).astype(dtype)
    if special is not None:
        scores[2, 3] = special
        scores[:, 4] = special
    found = highest(scores)
    assert found.dtype == np.float32
    assert np.array_equal(found, scores.max(axis=0).astype(np.float32), equal_nan=True)
