"""Results chosen by their class."""

import numpy as np
import pytest

from trt_ros.errors import ParameterError
from trt_ros.vision.class_choice import MAX_CANDIDATES, ClassChoice
from trt_ros.vision.detections import Detections
from trt_ros.vision.nms import non_max_suppression
from trt_ros.vision.results import (
    Classification,
    LazyMasks,
    OrientedBoxes,
    PaintedInstances,
    Poses,
)
from trt_ros.vision.thresholds import Thresholds, parse_class_scores

NAMES = ('person', 'car', 'dog', 'car')


def limits(classes=(), scores=(), agnostic=False, score=0.0, **more):
    return Thresholds(
        score=score,
        classes=classes,
        class_scores=parse_class_scores(scores),
        class_agnostic=agnostic,
        **more,
    )


def choice(classes=(), scores=(), names=NAMES):
    return ClassChoice.of(limits(classes, scores), names)


def wanted(result, *args, **more):
    """Choose by thresholds; arguments are those of limits()."""
    thresholds = limits(*args, **more)
    return ClassChoice.of(thresholds, NAMES).wanted(result, thresholds)


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
        assert len(wanted(Detections.empty(), ['dog'], agnostic=agnostic)) == 0


def test_without_a_choice_all_stays_as_it_is():
    assert not Thresholds(0.3, 0.5, 7).chooses_classes
    assert wanted(found := crowd(90)) is found


def test_classes_are_names_or_indices_and_a_name_may_stand_for_several():
    assert choice(['car', 2]).classes == choice(['car', '2']).classes == {1, 2, 3}
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
    assert not some.candidates(Thresholds(0.3, classes=['person'])).chooses_classes


@pytest.mark.parametrize('seed', range(5))
def test_choosing_after_suppression_is_choosing_before_it(seed):
    some = choice(['person', 'dog'], ['person:0.6', 'dog:0.1'])
    every = crowd(seed=seed)
    asked = some.candidates(Thresholds(0.3))
    candidates = every.take(np.flatnonzero(every.scores >= asked.score))
    after = wanted(suppressed(candidates), ['person', 'dog'], ['person:0.6', 'dog:0.1'], score=0.3)
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
    assert wanted(found, agnostic=True).scores.tolist() == pytest.approx([0.9, 0.7])
    assert len(wanted(found, agnostic=True, iou=0.9)) == 3
    # What is not wanted suppresses nothing.
    for unwanted in (wanted(found, ['car'], agnostic=True), wanted(found, (), ['person:1'], True)):
        assert unwanted.scores.tolist() == pytest.approx([0.8, 0.7])


def test_only_the_best_of_the_wanted_are_kept():
    found = wanted(crowd(), ['dog'], max_detections=3)
    assert found.labels.tolist() == [2, 2, 2]
    assert found.scores.tolist() == wanted(crowd(), ['dog']).scores[:3].tolist()


def test_rotated_boxes_are_chosen_too():
    found = OrientedBoxes(
        np.array([[50, 50, 40, 10], [50, 51, 40, 10], [50, 50, 40, 10]], np.float32),
        np.array([0.3, 0.3, 1.9], np.float32),
        np.array([0.9, 0.8, 0.7], np.float32),
        np.array([0, 1, 2], np.int32),
    )
    assert wanted(found, agnostic=True).labels.tolist() == [0, 2]
    assert wanted(found, ['car', 'dog']).labels.tolist() == [1, 2]


def test_keypoints_stay_with_their_objects():
    poses = Poses(crowd(20), np.arange(20, dtype=np.float32).repeat(6).reshape(20, 2, 3))
    found = wanted(poses, ['dog'])
    kept = np.flatnonzero(poses.detections.labels == 2)
    assert len(kept) and found.keypoints[:, 0, 0].tolist() == kept.tolist()
    assert found.detections.scores.tolist() == poses.detections.scores[kept].tolist()


def test_masks_behind_an_unwanted_object_are_seen():
    masks = [np.ones((4, 4), bool), np.ones((8, 8), bool)]
    boxes = Detections(
        np.array([[2, 2, 6, 6], [0, 0, 8, 8]], np.float32),
        np.array([0.9, 0.8], np.float32),
        np.array([0, 2], np.int32),
    )
    origins = np.array([[2, 2], [0, 0]], np.int32)
    front = np.full((8, 8), 2, np.uint16)
    front[2:6, 2:6] = 1
    painted = PaintedInstances(
        boxes, LazyMasks(2, lambda: masks), origins, (8, 8), front, (front * 2 - 1).astype('u1')
    )
    assert wanted(painted) is painted
    found = wanted(painted, ['dog'])
    assert (found.paint(np.array([3], np.uint8)) == 3).all()
    assert found.origins_xy.tolist() == [[0, 0]] and len(found.masks) == 1


def test_results_without_boxes_stay_as_they_are():
    scores = Classification(np.ones(4, np.float32))
    assert wanted(scores, ['dog']) is scores
