"""Readings of trained networks, ranked by their results for pictures."""

from contextlib import closing
import json
from pathlib import Path

import numpy as np
import pytest

from support.save_network import save_network
from trt_ros.errors import ParameterError
from trt_ros.progress import Reporter
from trt_ros.results.arrays import Depth
from trt_ros.results.boxes import Detections
from trt_ros.results.classes import Classification
from trt_ros.results.masks import ClassMask
from trt_ros.results.poses import Poses
from trt_ros.runtime.backends import open_network
from trt_ros.runtime.consistency import VIEWS, WHOLE, Seen, chance, condensed, support
from trt_ros.runtime.options import ModelOptions
from trt_ros.runtime.ranking import Truth, agreement_with, read_truths, search

pytestmark = pytest.mark.slow

MIRRORED, CROPPED = VIEWS
IMAGENET = {'mean': (0.485, 0.456, 0.406), 'std': (0.229, 0.224, 0.225)}
HALF = {'mean': (0.5,) * 3, 'std': (0.5,) * 3}
BGR_255 = {'scale': 1.0, 'order': 'bgr'}


@pytest.fixture(scope='module')
def pictures():
    from demo.scene import held_out

    return [pixels for pixels, *_ in held_out(2)]


def ranked(path, pictures, truths=(), **options):
    """Rank the readings of a network."""
    given = ModelOptions(model_path=str(path), backend='onnxruntime', **options)
    network, *_ = open_network(given, Reporter())
    with closing(network):
        return search(network, given, pictures, truths or [None] * len(pictures), score=0.25)


@pytest.fixture
def rank(tmp_path):
    """Rank the readings of a network of shapes."""
    from support.shape_networks import save_shapes

    def run(pictures, task='detect', truths=(), published=None, **options):
        path = save_shapes(tmp_path / 'shapes.onnx', task, **(published or {}))
        return ranked(path, pictures, truths, **options)

    return run


def preprocessing(found):
    used = found.candidate.fitted.preprocess
    return used.channel_order, *np.round([used.scale, *used.mean, *used.std], 3).tolist()


@pytest.mark.parametrize(
    ('task', 'published'),
    [
        ('detect', IMAGENET),
        ('classify', BGR_255),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in (('detect', BGR_255), ('segment', HALF), ('segment', {}))
        ),
    ],
)
def test_the_preprocessing_of_the_training_is_tied_with_the_best(task, published, rank, pictures):
    """The hue of a shape is none of its class: the channel orders are tied."""
    order = rank(pictures, task, published=published, resize='stretch')
    values = {'scale': 1 / 255, 'mean': (0.0,) * 3, 'std': (1.0,) * 3, 'order': 'rgb', **published}
    numbers = [values['scale'], *values['mean'], *values['std']]
    wanted = (values['order'], *np.round(numbers, 3).tolist())
    tied = [each for each in order if each.is_tied]
    assert wanted in map(preprocessing, tied)
    assert 1 < len(tied) < len(order)
    scales = {each.candidate.fitted.preprocess.scale for each in tied}
    assert {scale > 0.5 for scale in scales} == {values['scale'] > 0.5}
    best = max(order, key=lambda each: each.score)
    (true,) = [each for each in order if preprocessing(each) == wanted]
    assert true.score > 0.75 * best.score > 0


def test_given_options_are_not_varied_and_truth_decides_instead_of_the_results(rank, pictures):
    order = rank(pictures[:1], channel_order='bgr', resize='letterbox', scale=1 / 255, **HALF)
    assert len(order) == 1
    assert order[0].candidate.options.channel_order == 'bgr'
    """A network that is told wrong counts of objects prefers to see none."""
    order = rank(pictures[:1], truths=[Truth(0)], published=BGR_255, resize='letterbox')
    assert order[0].score == 1.0
    assert order[0].confidences == []


def test_images_that_a_network_makes_are_not_ranked(pictures, tmp_path):
    path = save_network(
        tmp_path / 'same.onnx', 'y = Identity(x)', {'x': (1, 3, 8, 8)}, {'y': (1, 3, 8, 8)}
    )
    with pytest.raises(ParameterError, match='decoder image are not ranked'):
        ranked(path, pictures, decoder='image')


def test_results_that_do_not_depend_on_the_picture_are_worth_nothing(pictures, tmp_path):
    from support.task_networks import save_task_networks

    for task in ('instances', 'pose'):
        order = ranked(save_task_networks(tmp_path)[task], pictures)
        assert all(each.is_weak and each.is_tied for each in order)


def seen(result, wh=(100, 50)):
    return Seen(result, wh, 0.3)


def boxes(*rows, names=()):
    values = np.array(rows, np.float32).reshape(-1, 6)
    labels = values[:, 5].astype(np.int32)
    return Detections(values[:, :4], values[:, 4], labels, class_names=names)


LEFT = (10, 10, 30, 30, 0.8, 1)
MIRROR = (70, 10, 90, 30, 0.6, 1)


@pytest.mark.parametrize(
    ('first', 'second', 'view', 'expected'),
    [
        ([], [], MIRRORED, (0, 0)),
        ([LEFT], [MIRROR], MIRRORED, (0.6, 0)),
        ([LEFT], [LEFT], MIRRORED, (0, 0.8)),
        ([LEFT], [(*MIRROR[:5], 0)], MIRRORED, (0, 0.7)),  # Of another class.
        ([(*LEFT[:4], 0.2, 1)], [], MIRRORED, (0, 0)),  # Too weak to be expected.
        ([(0, 0, 5, 5, 0.8, 1)], [], CROPPED, (0, 0)),  # Out of sight.
        ([LEFT], [LEFT], WHOLE, (0.8, 0)),
        ([(*LEFT[:4], 0.2, 1)], [MIRROR], MIRRORED, (0, 0)),  # Weak, but not alone.
    ],
)
def test_objects_are_confirmed_by_those_at_the_same_place(first, second, view, expected):
    found = support(seen(boxes(*first)), seen(boxes(*second)), view)
    assert tuple(found) == pytest.approx(expected)


def test_keypoints_count_too():
    def pose(*points):
        return seen(Poses(boxes((10, 10, 90, 40, 0.8, 0)), np.array([points], np.float32)))

    left, right = (30, 20, 1), (70, 20, 1)
    assert support(pose(left, left), pose(right, right), MIRRORED).confirmed == pytest.approx(0.8)
    assert support(pose(left, left), pose(left, left), MIRRORED).confirmed == 0


def test_pixels_are_compared_where_a_view_shows_them():
    ramp = np.tile(np.arange(200, dtype=np.uint8) // 50, (400, 1))
    mask, turned = seen(ClassMask(ramp)), seen(ClassMask(ramp[:, ::-1].copy()))
    assert support(mask, turned, MIRRORED).confirmed == pytest.approx(2.0, abs=0.01)  # Bits.
    assert support(mask, seen(ClassMask(np.zeros_like(ramp))), MIRRORED).confirmed == 0
    depth, constant = (seen(Depth(x.astype(np.float32))) for x in (ramp, np.ones_like(ramp)))
    cut = seen(Depth(CROPPED.pixels(ramp.astype(np.float32))))
    assert support(depth, cut, CROPPED).confirmed > 0.99
    assert support(depth, depth, MIRRORED).confirmed == 0  # Negative.
    assert support(depth, constant, WHOLE).confirmed == 0
    assert condensed(mask.result).labels.shape == (400, 200)
    assert condensed(ClassMask(np.zeros((1920, 1080), np.uint8))).labels.shape == (384, 216)


def test_class_scores_of_equal_pictures_are_chance():
    one = seen(Classification(np.array([1.0, 0.0], np.float32)))
    other = seen(Classification(np.array([0.0, 1.0], np.float32)))
    assert support(one, one, MIRRORED).confirmed == pytest.approx(1)
    assert chance(one, []) == 0
    assert chance(one, [one, other]) == pytest.approx(0.5)


# Annotations and counts of pictures, and the agreement of results with them.

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
    with pytest.raises(ParameterError, match=r'There are 2 images of the name a\.png'):
        read_truths(annotations, [Path('x/a.png'), Path('y/a.png')])


@pytest.mark.parametrize(
    ('text', 'message'),
    [(None, 'have none of the pictures'), ('{}', 'Cannot read'), ('no', 'Cannot read')],
)
def test_unusable_annotations_are_refused(annotations, text, message):
    if text is not None:
        annotations.write_text(text)
    with pytest.raises(ParameterError, match=message):
        read_truths(annotations, [Path('other.png')])


BOX = (10, 20, 40, 60)


@pytest.mark.parametrize(
    ('result', 'truth', 'expected'),
    [
        (boxes(), Truth(0, (), np.zeros((0, 4))), 1.0),
        (boxes((*BOX, 1.0, 1)), Truth(1, ('dog',), np.array([BOX])), 1.0),
        (boxes((*BOX, 0.5, 1)), Truth(1, ('dog',), np.array([BOX])), 2 / 3),
        (boxes((0, 0, 9, 9, 1.0, 1)), Truth(1, ('dog',), np.array([BOX])), 0.0),
        (boxes((*BOX, 1.0, 0), names=('cat', 'dog')), Truth(1, ('dog',), np.array([BOX])), 0.0),
        # Names of another language say nothing.
        (boxes((*BOX, 1.0, 0), names=('Katze',)), Truth(1, ('cat',), np.array([BOX])), 1.0),
        (boxes(*[(*BOX, 1.0, 1)] * 3), Truth(4), 0.75),
        (boxes(), Truth(0), 1.0),
    ],
)
def test_agreement_of_objects(result, truth, expected):
    assert agreement_with(result, truth) == pytest.approx(expected)


def test_agreement_of_class_scores_needs_names_and_depth_has_no_truth():
    result = Classification(np.array([0.25, 0.75], np.float32), class_names=('cat', 'dog'))
    assert agreement_with(result, Truth(1, ('dog',), np.array([BOX]))) == 0.75
    result.class_names = ()
    with pytest.raises(ParameterError, match='need the names of its classes'):
        agreement_with(result, Truth(1, ('dog',)))
    with pytest.raises(ParameterError, match='do not apply to Depth'):
        agreement_with(Depth(np.ones((2, 2), np.float32)), Truth(1))
