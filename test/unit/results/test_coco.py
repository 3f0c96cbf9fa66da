"""Results in COCO's format, as pycocotools reads them."""

import json

import numpy as np
import pytest

from support.objects import detections
from trt_ros.errors import ParameterError
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.results.classes import Classification
from trt_ros.results.labels import CocoIds, built_in_names, category_ids
from trt_ros.results.masks import ClassMask, Instances, run_lengths

# Of pycocotools 2.0.11 with NumPy 2.
pytestmark = pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')

WH = (64, 48)
CATEGORIES = {0: 1, 1: 18}


TWO = detections((8, 4, 24, 16), (0, 0, 64, 48), score=(0.9, 0.5), label=(1, 0))


def entries_of(result, image_id=1):
    return list(result.as_coco(image_id, CATEGORIES))


def test_boxes_are_left_top_width_and_height_without_what_has_no_category():
    assert entries_of(TWO, 2) == [
        {'image_id': 2, 'category_id': 18, 'bbox': [8.0, 4.0, 16.0, 12.0], 'score': 0.9},
        {'image_id': 2, 'category_id': 1, 'bbox': [0.0, 0.0, 64.0, 48.0], 'score': 0.5},
    ]
    assert entries_of(detections((0, 0, 8, 8), label=7)) == []
    assert entries_of(Classification(np.ones(2, np.float32))) == []


def test_boxes_like_those_of_annotations_are_all_found_by_pycocotools():
    coco = pytest.importorskip('pycocotools.coco').COCO()
    from pycocotools.cocoeval import COCOeval

    truth = [(18, [8, 4, 16, 12]), (1, [0, 0, 64, 48])]
    coco.dataset = {
        'info': {},
        'images': [{'id': 1}],
        'categories': [{'id': category} for category, _ in truth],
        'annotations': [
            {'id': i, 'image_id': 1, 'category_id': of, 'bbox': box, 'area': 192, 'iscrowd': 0}
            for i, (of, box) in enumerate(truth, 1)
        ],
    }
    coco.createIndex()
    evaluation = COCOeval(coco, coco.loadRes(entries_of(TWO)), 'bbox')
    for step in (evaluation.evaluate, evaluation.accumulate, evaluation.summarize):
        step()
    assert evaluation.stats[0] == pytest.approx(1)


@pytest.mark.parametrize(
    'window',
    [
        np.zeros((0, 0), bool),
        np.zeros((5, 7), bool),
        np.ones((5, 7), bool),
        np.ones((48, 64), bool),
        np.random.default_rng(0).random((40, 50)) > 0.5,
        np.random.default_rng(1).random((48, 64)) > 0.98,
    ],
)
def test_masks_are_encoded_as_by_pycocotools(window):
    mask_utils = pytest.importorskip('pycocotools.mask')
    for x, y in {(0, 0), (WH[0] - window.shape[1], WH[1] - window.shape[0]), (3, 2)}:
        whole = np.zeros((WH[1], WH[0]), np.uint8)
        part = whole[y : y + window.shape[0], x : x + window.shape[1]]
        if part.shape != window.shape:
            continue
        part[:] = window
        want = mask_utils.encode(np.asfortranarray(whole))
        assert run_lengths(window, np.array([x, y]), WH) == {
            'size': [WH[1], WH[0]],
            'counts': want['counts'].decode(),
        }


def test_instances_have_their_masks_and_rotated_boxes_are_polygons():
    masks, places = (
        [np.ones((12, 16), bool), np.eye(48, 64, dtype=bool)],
        np.int32([[8, 4], [0, 0]]),
    )
    entries = entries_of(Instances(TWO, masks, places, WH))
    assert [each['segmentation'] for each in entries] == [
        run_lengths(mask, place, WH) for mask, place in zip(masks, places)
    ]
    result = OrientedBoxes(
        np.float32([[32, 24, 20, 10]]), np.float32([np.pi / 2]), np.float32([0.9]), np.int32([1])
    )
    (entry,) = entries_of(result)
    assert entry['bbox'] == [27.0, 14.0, 10.0, 20.0]
    assert entry['segmentation'] == [[37.0, 14.0, 37.0, 34.0, 27.0, 34.0, 27.0, 14.0]]


def test_each_class_of_a_mask_is_an_entry_without_score():
    labels = np.full((48, 64), 255, np.uint8)
    labels[:, :32], labels[:, 32:40], labels[:, 40:50] = 0, 1, 7
    first, second = entries_of(ClassMask(labels))
    assert first['category_id'] == 1 and second['category_id'] == 18
    assert first.keys() == {'image_id', 'category_id', 'segmentation'}
    mask_utils = pytest.importorskip('pycocotools.mask')
    np.testing.assert_array_equal(mask_utils.decode(second['segmentation']), labels == 1)


def test_classes_of_coco_have_its_numbers_with_gaps_and_others_count_from_one():
    ids = category_ids(built_in_names('coco'), 80)
    assert (ids[0], ids[11], ids[79]) == (1, 13, 90)
    with_gaps = category_ids(built_in_names('coco_91'), 91)
    assert 0 not in with_gaps and 12 not in with_gaps
    assert with_gaps[13] == 13
    assert category_ids(('person', 'weed'), 2) == {0: 1, 1: 2}
    assert category_ids(('weed',), 2) == {0: 1, 1: 2}
    assert category_ids(('background', 'road'), 2) == {1: 1}


@pytest.mark.parametrize('names', [(), []])
def test_unknown_classes_count_from_one_and_are_listed_once_found(names):
    ids = category_ids(names, 0)
    result = detections((0, 0, 4, 4), (0, 0, 4, 4), label=(6, 2))
    assert [each['category_id'] for each in result.as_coco(1, ids)] == [7, 3]
    mask = ClassMask(np.array([[255, 2, 0]], np.uint8))
    assert [each['category_id'] for each in mask.as_coco(1, ids)] == [1, 3]
    assert dict(ids) == {6: 7, 2: 3, 0: 1}


def test_ids_are_those_of_annotations(tmp_path):
    path = tmp_path / 'instances.json'
    path.write_text(
        json.dumps(
            {
                'images': [{'id': 397133, 'file_name': 'val/000000397133.jpg'}],
                'categories': [{'id': 5, 'name': 'weed'}, {'id': 9, 'name': 'crop'}],
            }
        )
    )
    ids = CocoIds.read(path)
    assert ids.images == {'000000397133.jpg': 397133}
    assert category_ids(('soil', 'crop'), 2, ids.categories) == {1: 9}
    with pytest.raises(
        ParameterError, match=r'The classes are soil; the categories are weed, crop\.'
    ):
        category_ids(('soil',), 1, ids.categories)


SAME = [{'id': number, 'file_name': f'{number}/a.png'} for number in (1, 2)]


@pytest.mark.parametrize(
    ('text', 'problem'),
    [
        *((each, 'as annotations in COCO format') for each in ('', '[]', '{"images": 3}')),
        ('{"images": [{"id": 1}]}', 'as annotations in COCO format'),
        (json.dumps({'images': SAME, 'categories': []}), r'have 2 images of the name a\.png'),
    ],
)
def test_files_of_another_format_or_of_equal_names_are_refused(tmp_path, text, problem):
    path = tmp_path / 'no.json'
    path.write_text(text)
    with pytest.raises(ParameterError, match=problem):
        CocoIds.read(path)
