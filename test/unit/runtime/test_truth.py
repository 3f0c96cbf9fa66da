"""Annotations and counts of pictures, and the agreement of results with them."""

import json
from pathlib import Path

import numpy as np
import pytest

from trt_ros.errors import ParameterError
from trt_ros.results.arrays import Depth
from trt_ros.results.boxes import Detections
from trt_ros.results.classes import Classification
from trt_ros.runtime.ranking import Truth, agreement_with, read_truths

ANNOTATIONS = {
    'images': [{'id': 1, 'file_name': 'x/a.png'}, {'id': 2, 'file_name': 'b.png'}],
    'categories': [{'id': 7, 'name': 'cat'}, {'id': 9, 'name': 'dog'}],
    'annotations': [{'image_id': 1, 'category_id': 9, 'bbox': [10, 20, 30, 40]}],
}


@pytest.fixture
def annotations(tmp_path):
    path = tmp_path / 'truth.json'
    path.write_text(json.dumps(ANNOTATIONS))
    return path


def test_annotations_are_read_by_file_name(annotations):
    a, b, c = read_truths(annotations, [Path('a.png'), Path('y/b.png'), Path('c.png')])
    assert (a.count, a.names, a.xyxy.tolist()) == (1, ('dog',), [[10, 20, 40, 60]])
    assert (b.count, b.names, b.xyxy.shape) == (0, (), (0, 4))
    assert c is None


@pytest.mark.parametrize(
    ('text', 'message'),
    [(None, 'have none of the pictures'), ('{}', 'Cannot read'), ('no', 'Cannot read')],
)
def test_unusable_annotations_are_refused(annotations, text, message):
    if text is not None:
        annotations.write_text(text)
    with pytest.raises(ParameterError, match=message):
        read_truths(annotations, [Path('other.png')])


def found(*rows, names=()):
    values = np.array(rows, np.float32).reshape(-1, 6)
    labels = values[:, 5].astype(np.int32)
    return Detections(values[:, :4], values[:, 4], labels, class_names=names)


BOX = (10, 20, 40, 60)


@pytest.mark.parametrize(
    ('result', 'truth', 'expected'),
    [
        (found(), Truth(0, (), np.zeros((0, 4))), 1.0),
        (found((*BOX, 1.0, 1)), Truth(1, ('dog',), np.array([BOX])), 1.0),
        (found((*BOX, 0.5, 1)), Truth(1, ('dog',), np.array([BOX])), 2 / 3),
        (found((0, 0, 9, 9, 1.0, 1)), Truth(1, ('dog',), np.array([BOX])), 0.0),
        (found((*BOX, 1.0, 0), names=('cat', 'dog')), Truth(1, ('dog',), np.array([BOX])), 0.0),
        # Names of another language say nothing.
        (found((*BOX, 1.0, 0), names=('Katze',)), Truth(1, ('cat',), np.array([BOX])), 1.0),
        (found(*[(*BOX, 1.0, 1)] * 3), Truth(4), 0.75),
        (found(), Truth(0), 1.0),
    ],
)
def test_agreement_of_objects(result, truth, expected):
    assert agreement_with(result, truth) == pytest.approx(expected)


def test_agreement_of_class_scores():
    result = Classification(np.array([0.25, 0.75], np.float32), class_names=('cat', 'dog'))
    assert agreement_with(result, Truth(1, ('dog',), np.array([BOX]))) == 0.75
    result.class_names = ()
    with pytest.raises(ParameterError, match='need the names of its classes'):
        agreement_with(result, Truth(1, ('dog',)))


def test_depth_has_no_truth():
    with pytest.raises(ParameterError, match='do not apply to Depth'):
        agreement_with(Depth(np.ones((2, 2), np.float32)), Truth(1))
