"""What results of all tasks have in common."""

from dataclasses import replace
from importlib.util import find_spec
import json

import numpy as np
import pytest

from support.objects import detections
from trt_ros.errors import ParameterError
from trt_ros.results.arrays import Depth, Tensors
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.results.classes import Classification
from trt_ros.results.masks import ClassMask, ClassMasks, Instances
from trt_ros.results.poses import Poses

NAMES = ('cat', 'dog')
BOXES = detections(
    *((8, 4, 24, 16), (0, 0, 64, 48), (1, 2, 3, 4)),
    **{'score': (0.9, 0.5, 0.25), 'label': (1, 0, 7)},
    ids=np.array(['a', '', 'c'], object),
    class_names=NAMES,
)
ORIENTED = OrientedBoxes(
    np.float32([[16, 10, 16, 12], [32, 24, 64, 48], [2, 3, 4, 2]]),
    np.float32([0, 0, np.pi / 2]),
    BOXES.scores,
    BOXES.labels,
    ids=BOXES.ids,
    class_names=NAMES,
)
INSTANCES = Instances(
    BOXES, [np.eye(2, dtype=bool)] * 3, np.int32([[8, 4], [0, 0], [1, 2]]), (64, 48)
)
POSES = Poses(BOXES, np.arange(18, dtype=np.float32).reshape(3, 2, 3))
ALL = pytest.mark.parametrize(
    'found', [BOXES, ORIENTED, INSTANCES, POSES], ids=lambda found: type(found).__name__
)


@ALL
def test_objects_are_a_sequence_with_names_and_ids_that_may_be_others(found):
    nothing = found[:0]
    assert (len(nothing), list(nothing), nothing.names) == (0, [], [])
    assert nothing.as_json() == {'detections': []}
    assert nothing.xyxy.shape == (0, 4) and nothing.corners().shape == (0, 4, 2)
    assert [each.name for each in found] == found.names == ['dog', 'cat', '7']
    assert [each.id for each in found] == ['a', None, 'c']
    assert [each.score for each in found] == [pytest.approx(0.9), 0.5, 0.25]
    assert [each.xyxy.tolist() for each in found] == found.xyxy.tolist()
    assert (found[-1].name, found[2].label, found[0].id) == ('7', 7, 'a')
    with pytest.raises(IndexError):
        found[3]
    tracked = found.with_ids(np.array([5, 6, 7]))
    assert [each.id for each in tracked] == [5, 6, 7]
    assert tracked.xyxy.tolist() == found.xyxy.tolist()
    assert found.ids_as_text() == ['a', '', 'c']
    assert [each.id for each in found.with_ids(None)] == [None] * 3


@ALL
@pytest.mark.parametrize('key', [slice(1, None), np.array([False, True, True]), [1, 2]])
def test_a_slice_a_mask_and_indices_choose_objects(found, key):
    some = found[key]
    assert type(some) is type(found)
    assert (some.names, some.ids_as_text()) == (['cat', '7'], ['', 'c'])
    assert some.xyxy.tolist() == found.xyxy[1:].tolist()
    assert some.as_json()['detections'] == found.as_json()['detections'][1:]


def test_objects_have_what_their_task_finds_and_upright_boxes_surround_rotated_ones():
    assert ORIENTED[2].theta == pytest.approx(np.pi / 2)
    assert ORIENTED[0].cxcywh.tolist() == [16, 10, 16, 12]
    assert INSTANCES[0].origin_xy.tolist() == [8, 4] and INSTANCES[0].mask.tolist()[0][0]
    assert POSES[1].keypoints.tolist() == POSES.keypoints[1].tolist()
    assert (BOXES[0].mask, BOXES[0].theta, BOXES[0].keypoints) == (None, None, None)
    want = [[8, 4, 24, 16], [0, 0, 64, 48], [1, 1, 3, 5]]
    np.testing.assert_allclose(ORIENTED.xyxy, want, rtol=1e-5)
    assert ORIENTED.detections.names == ORIENTED.names
    low, high = ORIENTED.corners().min(axis=1), ORIENTED.corners().max(axis=1)
    np.testing.assert_allclose(np.hstack([low, high]), ORIENTED.xyxy, rtol=1e-5)


@pytest.mark.parametrize('found', [BOXES, ORIENTED])
def test_boxes_are_extended_by_upright_ones(found):
    lost = replace(BOXES[:1], ids=np.array([9], object))
    both = found.extended(lost)
    assert type(both) is type(found) and len(both) == 4
    assert both.ids_as_text() == ['a', '', 'c', '9']
    np.testing.assert_allclose(both.xyxy[3], lost.xyxy[0])


def test_names_reach_the_boxes_of_instances_and_poses_and_are_divided_among_masks():
    for found in (replace(INSTANCES), replace(POSES)):
        found.class_names = ('a', 'b')
        assert found.detections.names == ['b', 'a', '7']
    BOXES.class_names = NAMES
    cells = np.zeros((2, 2), np.uint8)
    masks = ClassMasks({'area': ClassMask(cells), 'line/x': ClassMask(cells + 1)}, [2, 3])
    masks.class_names = ('a', 'b', 'c', 'd', 'e')
    assert [each.names for each in masks.values()] == [['a'], ['d']]
    assert masks.class_names == ('a', 'b', 'c', 'd', 'e')
    files = []
    masks.as_json(lambda name, values: files.append(name) or name)
    assert files == ['area_mask.png', 'line_x_mask.png']


@pytest.mark.parametrize(
    'found',
    [
        BOXES,
        ORIENTED,
        INSTANCES,
        POSES,
        ClassMask(np.uint8([[0, 1], [1, 255]])),
        ClassMasks({'out': ClassMask(np.uint8([[0]]))}, [2]),
        Classification(np.float32([0.25, 0.75]), class_names=NAMES),
        Depth(np.float32([[1, np.nan]])),
        Tensors({'out': np.zeros((1, 2), np.float32)}),
    ],
    ids=lambda found: type(found).__name__,
)
def test_every_result_is_written_as_json(found):
    text = json.dumps(found.as_json())
    assert json.loads(text)
    assert all(isinstance(each, dict) for each in found.as_coco(1, {0: 1, 1: 2}))


def test_json_of_a_tracked_box_has_its_id():
    found = replace(BOXES, scores=np.float32([0.90004, 0.5, 0.25]))
    assert found.as_json()['detections'][0] == {
        'label': 'dog',
        'class_index': 1,
        'score': 0.9,
        'xyxy': [8.0, 4.0, 24.0, 16.0],
        'id': 'a',
    }


@pytest.mark.parametrize('scores', [[0.5, 0.5, 0.5], [np.nan, np.nan, 0.5]])
def test_the_best_come_first_and_as_many_as_asked_of_equal_or_undefined_scores(scores):
    assert len(Classification(np.float32(scores)).top(2)) == 2
    assert Classification(np.float32([0.25, 0.75]), class_names=NAMES).names == ['dog', 'cat']


@pytest.mark.parametrize('found', [BOXES, ORIENTED, INSTANCES, POSES, BOXES[:0], INSTANCES[:0]])
def test_objects_become_detections_of_supervision(found):
    pytest.importorskip('supervision')
    tracked = found.with_ids(np.arange(len(found)) + 4)
    other = tracked.to_supervision()
    np.testing.assert_array_equal(other.xyxy, found.xyxy)
    assert other.data['class_name'].tolist() == found.names
    assert other.class_id.tolist() == found.labels.tolist()
    assert other.tracker_id.tolist() == tracked.ids.tolist()
    assert found.to_supervision().tracker_id is None  # Texts.


def test_supervision_is_named_where_it_is_missing():
    if find_spec('supervision'):
        pytest.skip('supervision is installed')
    with pytest.raises(ParameterError, match='Remedy: Run pip install supervision'):
        BOXES.to_supervision()


def test_masks_and_corners_reach_supervision():
    pytest.importorskip('supervision')
    masks = INSTANCES.to_supervision().mask
    assert masks.shape == (3, 48, 64) and masks.dtype == bool
    assert masks.sum(axis=(1, 2)).tolist() == [2, 2, 2]
    assert masks[0, 4, 8] and masks[0, 5, 9]
    assert ORIENTED.to_supervision()[1:].data['xyxyxyxy'].shape == (2, 4, 2)
