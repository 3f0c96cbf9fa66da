"""Results chosen by their class."""

from dataclasses import replace

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.errors import ParameterError
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes, non_max_suppression
from trt_ros.vision.thresholds import (
    DEFAULT_THRESHOLDS,
    Thresholds,
    parse_class_scores,
    with_limits,
)

NAMES = ('person', 'car', 'dog', 'car')
WHOLE = Letterbox.fit((100, 100), (100, 100), 'stretch')


def limits(classes=(), scores=(), agnostic=False, *, names=NAMES, score=0.0, **more):
    asked = Thresholds(
        score=score,
        classes=classes,
        class_scores=parse_class_scores(scores),
        class_agnostic=agnostic,
        **more,
    )
    return ClassThresholds.of(asked, names)


def crowd(count=300, seed=0):
    """Overlapping boxes of four classes, some with equal scores."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 60, (count, 2))
    xyxy = np.hstack([low, low + rng.uniform(10, 40, (count, 2))]).astype(np.float32)
    scores = rng.integers(1, 100, count) / np.float32(100)
    return xyxy, scores.astype(np.float32), rng.integers(0, 4, count).astype(np.int32)


def minima(thresholds, count=6):
    return thresholds.min_scores(np.arange(count)).tolist()


# The table.


def test_without_a_choice_every_class_has_the_same_minimum_and_an_only_object_is_chosen():
    assert not Thresholds(0.5, 0.5, 7).chooses_classes
    assert minima(Thresholds(0.5)) == minima(limits(score=0.5)) == [0.5] * 6
    assert Thresholds(0.5).min_scores(np.zeros(0, np.int32)).shape == (0,)
    heatmaps = {'heatmaps': np.full((1, 5, 8, 8), 0.5, np.float32)}
    head = open_as('heatmap_pose', 'heatmaps (1, 5, 8, 8)', hw=WHOLE.input_hw)
    assert len(head(heatmaps, WHOLE, Thresholds(0.9))) == 1
    assert len(head(heatmaps, WHOLE, limits(['person']))) == 1
    assert len(head(heatmaps, WHOLE, limits(['car']))) == 0
    assert len(head(heatmaps, WHOLE, limits(scores=['person:0.6']))) == 0


NEVER = np.inf


@pytest.mark.parametrize(
    ('classes', 'scores', 'expected'),
    [
        (['person', 2], [], [0.5, NEVER, 0.5, NEVER, NEVER, NEVER]),
        ([], ['car:0.75', 'dog:0.125'], [0.5, 0.75, 0.125, 0.75, 0.5, 0.5]),
        (['dog'], ['dog:0.75', 'car:0.125'], [NEVER, NEVER, 0.75, NEVER, NEVER, NEVER]),
    ],
)
def test_a_chosen_class_has_the_minimum_of_its_own_and_others_none(classes, scores, expected):
    some = limits(classes, scores, score=0.5)
    assert minima(some) == expected
    assert (some.score, some.others) == (min(expected), expected[-1])


def test_classes_are_names_or_indices_and_a_name_may_stand_for_several():
    for classes in (['car', 2], ['car', '2']):
        assert (
            np.isfinite(minima(limits(classes))).tolist()
            == [False, True, True, True] + [False] * 2
        )
    assert limits(['7'], names=()).table.tolist() == [np.inf] * 7 + [0]
    assert limits(['a:b'], ['a:b:0.5'], names=('a:b',)).table.tolist() == [0.5]
    assert minima(limits(['1'], names=('1', '0')), 2) == [0, np.inf]


@pytest.mark.parametrize(
    'classes, scores, names, text',
    [
        (['persn'], [], NAMES, "classes contains the unknown class 'persn'.*'person'"),
        (['4'], [], NAMES, "unknown class '4'.*indices from 0 to 3"),
        (['-1'], [], NAMES, "unknown class '-1'"),
        (['dog'], [], (), 'no class names: set labels'),
        (['65536'], [], (), "unknown class '65536'.*indices from 0 to 65535"),
        ([], ['dog'], NAMES, "class_score_thresholds contains 'dog'.*CLASS:SCORE"),
        (['DOG'], [], NAMES, "unknown class 'DOG'.*Did you mean 'dog'"),
        (['Gar'], [], NAMES, "unknown class 'Gar'.*Did you mean 'car'\\?"),
        ([], ['dog:0.5', 'dog:0.6'], NAMES, "class_score_thresholds contains 'dog' twice"),
        ([], ['dog:much'], NAMES, "contains 'dog:much'"),
        ([], ['dog:nan'], NAMES, "contains 'dog:nan'"),
        ([], ['dog:1.5'], NAMES, "contains 'dog:1.5'"),
        ([], ['cat:0.5'], NAMES, "class_score_thresholds contains the unknown class 'cat'"),
    ],
)
def test_an_unknown_class_or_score_is_refused(classes, scores, names, text):
    with pytest.raises(ParameterError, match=f'(?s){text}'):
        limits(classes, scores, names=names)


@pytest.mark.parametrize(
    ('limit', 'text'),
    [
        ({'score': -0.5}, 'score is -0.5'),
        ({'score': float('nan')}, 'score is nan'),
        ({'score': '0.5'}, "score is '0.5'"),
        ({'iou': -0.1}, 'iou is -0.1'),
        ({'max_detections': -1}, 'max_detections is -1'),
        ({'max_detections': 1.5}, 'max_detections is 1.5'),
        ({'class_scores': 'dog:0.5'}, r"(?s)class_scores is 'dog:0.5'.*\{'person': 0.6\}"),
        ({'class_scores': {'dog': 7}}, "class_scores of 'dog' is 7"),
        ({'classes': 'dog'}, r"(?s)classes is the text 'dog'.*\['dog'\]"),
    ],
)
def test_a_limit_out_of_its_range_is_refused(limit, text):
    with pytest.raises(ParameterError, match=text):
        Thresholds(**limit)


# Decoding.


@pytest.mark.parametrize('agnostic', [False, True])
@pytest.mark.parametrize('seed', range(5))
def test_boxes_are_chosen_before_the_nms(seed, agnostic):
    some = limits(['person', 'dog'], ['person:0.6', 'dog:0.1'], agnostic, score=0.3)
    xyxy, scores, labels = crowd(seed=seed)
    _, found = choose_boxes(xyxy, scores, labels, WHOLE, some)
    keep = np.flatnonzero(
        np.isin(labels, [0, 2])
        & (scores >= np.where(labels == 0, np.float32(0.6), np.float32(0.1)))
    )
    best = keep[
        non_max_suppression(
            xyxy[keep],
            scores[keep],
            np.zeros(len(keep)) if agnostic else labels[keep],
            iou_threshold=some.iou,
            max_detections=1000,
        )
    ]
    assert len(best) > 5
    assert found.xyxy.tolist() == np.minimum(xyxy[best], 100).tolist()
    assert found.labels.tolist() == labels[best].tolist()
    _, few = choose_boxes(xyxy, scores, labels, WHOLE, replace(some, max_detections=3))
    assert few.scores.tolist() == found.scores[:3].tolist()


def test_a_network_without_nms_finds_no_more_boxes_than_it_has():
    xyxy, scores, labels = crowd(50)
    for agnostic in (False, True):
        some = limits(['car'], agnostic=agnostic, iou=0.9)
        _, found = choose_boxes(xyxy, scores, labels, WHOLE, some, uses_nms=False, limit=4)
        best = np.sort(scores[labels % 2 == 1])[::-1]
        assert set(found.scores.tolist()) <= set(best[:4].tolist())
        assert len(found) == 4 if not agnostic else 0 < len(found) <= 4


def test_rotated_boxes_suppress_those_of_other_classes():
    head = np.zeros((1, 7, 3), np.float32)
    head[0, :4] = np.array([[50, 50, 40, 10], [50, 51, 40, 10], [50, 50, 40, 10]]).T
    head[0, 4:6] = [[0.9, 0, 0], [0, 0.8, 0.7]]
    head[0, 6] = [0.3, 0.3, 1.9]
    decode = open_as('yolov8_obb', 'head (1, 7, ?)')
    found = decode({'head': head}, WHOLE, limits(agnostic=True, names=('a', 'b')))
    assert found.scores.tolist() == pytest.approx([0.9, 0.7])
    assert len(decode({'head': head}, WHOLE, limits(names=('a', 'b')))) == 3
    chosen = decode({'head': head}, WHOLE, limits(['b'], names=('a', 'b')))
    assert chosen.scores.tolist() == pytest.approx([0.8, 0.7])


def test_equal_limits_give_the_same_thresholds_and_others_their_own():
    classes, scores = ['a'], {'a': 0.5}

    def made(**limits):
        return with_limits(DEFAULT_THRESHOLDS, limits)

    first = made(score=0.5, classes=classes)
    assert made(score=0.5, classes=['a']) is first
    assert with_limits(first, {'iou': 0.1}) == Thresholds(0.5, 0.1, classes=('a',))
    classes.append('b')
    scores_before = made(class_scores=scores)
    assert made(score=0.5, classes=classes) == Thresholds(0.5, classes=('a', 'b')) != first
    scores['b'] = 0.7
    assert made(class_scores=scores).class_scores == {'a': 0.5, 'b': 0.7}
    assert made(class_scores=scores) is not scores_before
    assert made(max_detections=1).max_detections == 1
    with pytest.raises(ParameterError, match=r'max_detections is 1\.0'):
        made(max_detections=1.0)
