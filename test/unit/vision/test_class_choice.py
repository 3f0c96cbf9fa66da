"""Detections chosen by their class."""

import numpy as np
import pytest

from trt_ros.errors import ParameterError
from trt_ros.vision.class_choice import MAX_CANDIDATES, ClassChoice
from trt_ros.vision.detections import Detections
from trt_ros.vision.nms import non_max_suppression
from trt_ros.vision.results import OrientedBoxes
from trt_ros.vision.thresholds import Thresholds

NAMES = ('person', 'car', 'dog', 'car')


def choice(classes=(), scores=(), names=NAMES, agnostic=False):
    return ClassChoice.of(classes, scores, names, agnostic=agnostic)


def crowd(count=300, seed=0):
    """Overlapping boxes of four classes, best score first."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 60, (count, 2))
    xyxy = np.hstack([low, low + rng.uniform(10, 40, (count, 2))]).astype(np.float32)
    scores = np.sort(rng.uniform(0, 1, count).astype(np.float32))[::-1]
    return Detections(xyxy, scores, rng.integers(0, 4, count).astype(np.int32))


def suppressed(found, iou=0.45):
    best = non_max_suppression(
        found.xyxy, found.scores, found.labels, iou_threshold=iou, max_detections=MAX_CANDIDATES
    )
    return found.take(best)


def test_nothing_is_chosen_from_nothing():
    for agnostic in (False, True):
        assert len(choice(['dog'], agnostic=agnostic).wanted(Detections.empty(), 0.45)) == 0


def test_without_a_choice_all_stays_as_it_is():
    everything, thresholds = choice(), Thresholds(0.3, 0.5, 7)
    assert everything.is_trivial
    assert everything.candidates(thresholds) is thresholds
    assert everything.wanted(found := crowd(), 0.45) is found


def test_classes_are_names_or_indices_and_a_name_may_stand_for_several():
    assert choice(['car', '2']).classes == {1, 2, 3}
    assert choice(['7'], names=()).classes == {7}
    assert choice(scores=['car:0.5', 'dog: 1']).min_scores == {1: 0.5, 3: 0.5, 2: 1.0}
    assert choice(['a:b'], ['a:b:0.5'], names=('a:b',)).min_scores == {0: 0.5}
    assert choice(['1'], names=('1', '0')).classes == {0}


@pytest.mark.parametrize(
    'classes, scores, names, text',
    [
        (['persn'], [], NAMES, "classes contains the unknown class 'persn'.*'person'"),
        (['4'], [], NAMES, "unknown class '4'.*indices from 0 to 3"),
        (['-1'], [], NAMES, "unknown class '-1'"),
        (['dog'], [], (), 'no class names: set labels'),
        ([], ['dog'], NAMES, "class_score_thresholds contains 'dog'.*CLASS:SCORE"),
        ([], ['dog:much'], NAMES, "contains 'dog:much'"),
        ([], ['dog:nan'], NAMES, "contains 'dog:nan'"),
        ([], ['dog:1.5'], NAMES, "contains 'dog:1.5'"),
        ([], ['cat:0.5'], NAMES, "class_score_thresholds contains the unknown class 'cat'"),
    ],
)
def test_an_unknown_class_or_score_is_refused(classes, scores, names, text):
    with pytest.raises(ParameterError, match=f'(?s){text}'):
        choice(classes, scores, names)


def test_the_decoder_lets_everything_pass_that_may_be_wanted():
    some = choice(['person'], ['person:0.1', 'dog:0.05', 'car:0.9'])
    assert some.candidates(Thresholds(0.3, 0.5, 7)) == Thresholds(0.1, 0.5, MAX_CANDIDATES)
    assert choice(['person']).candidates(Thresholds(0.3)).score == 0.3


@pytest.mark.parametrize('seed', range(5))
def test_choosing_after_suppression_is_choosing_before_it(seed):
    some = choice(['person', 'dog'], ['person:0.6', 'dog:0.1'])
    every = crowd(seed=seed)
    asked = some.candidates(Thresholds(0.3))
    candidates = every.take(np.flatnonzero(every.scores >= asked.score))
    after = some.wanted(suppressed(candidates), 0.45)
    after = after.take(np.flatnonzero(after.scores >= some.scores_for(after.labels, 0.3)))
    before = np.isin(every.labels, [0, 2])
    before &= every.scores >= np.where(every.labels == 0, np.float32(0.6), np.float32(0.1))
    expected = suppressed(every.take(np.flatnonzero(before)))
    assert len(expected) > 10
    for name in ('xyxy', 'scores', 'labels'):
        assert getattr(after, name).tolist() == getattr(expected, name).tolist()


def test_boxes_of_other_classes_are_suppressed_on_request():
    found = Detections(
        np.array([[0, 0, 10, 10], [0, 1, 10, 11], [40, 0, 50, 10]], np.float32),
        np.array([0.9, 0.8, 0.7], np.float32),
        np.array([0, 1, 1], np.int32),
    )
    assert choice(agnostic=True).wanted(found, 0.45).scores.tolist() == pytest.approx([0.9, 0.7])
    assert len(choice(agnostic=True).wanted(found, 0.9)) == 3
    # What is not wanted suppresses nothing.
    assert choice(['car'], agnostic=True).wanted(found, 0.45).scores.tolist() == pytest.approx(
        [0.8, 0.7]
    )


def test_rotated_boxes_are_chosen_too():
    found = OrientedBoxes(
        np.array([[50, 50, 40, 10], [50, 51, 40, 10], [50, 50, 40, 10]], np.float32),
        np.array([0.3, 0.3, 1.9], np.float32),
        np.array([0.9, 0.8, 0.7], np.float32),
        np.array([0, 1, 2], np.int32),
    )
    assert choice(agnostic=True).wanted(found, 0.45).labels.tolist() == [0, 2]
    assert choice(['car', 'dog']).wanted(found, 0.45).labels.tolist() == [1, 2]
