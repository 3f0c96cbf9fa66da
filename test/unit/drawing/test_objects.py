"""Drawing of objects, their trails and other results on pictures."""

import numpy as np
import pytest

from support.objects import detections
from trt_ros.drawing import draw
from trt_ros.drawing.labels import Style, color_of
from trt_ros.drawing.objects import (
    Trails,
    color_of_id,
    depth_view,
    draw_detections,
    draw_keypoints,
    draw_mask,
)
from trt_ros.drawing.panels import Panel, in_rows, input_view
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.results.arrays import Depth
from trt_ros.results.boxes import Detections, OrientedBoxes
from trt_ros.results.classes import Classification
from trt_ros.results.masks import ClassMask, ClassMasks, Instances
from trt_ros.results.poses import Poses
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess


def gray(size_wh=(200, 160)):
    return np.full((size_wh[1], size_wh[0], 3), 90, np.uint8)


BOX = detections((60, 50, 140, 120), score=0.5, label=1, class_names=('a', 'b'))


def with_names(result, class_names):
    result.class_names = class_names
    return result


def test_a_box_is_drawn_along_its_edges_in_the_color_of_its_class_and_the_best_on_top():
    pixels = gray()
    draw_detections(pixels, BOX)
    for edge in (pixels[60:120, 60], pixels[120, 60:140], pixels[60:120, 140]):
        assert (edge == color_of(1)).all()
    assert (pixels[60:110, 70:130] == 90).all()
    assert (pixels[130:] == 90).all()
    assert (pixels[36:48, 62:80] != 90).any()
    pixels = gray()
    box = (60, 50, 140, 120)
    draw_detections(pixels, detections(box, box, score=(0.9, 0.3), label=(0, 1)))
    assert (pixels[60:120, 60] == color_of(0)).all()


@pytest.mark.parametrize(
    'box', [(0, 0, 200, 160), (-50, -50, 20, 20), (190, 150, 500, 500), (10, 10, 10, 10)]
)
def test_draws_box_at_or_beyond_the_edge(box):
    pixels = gray()
    name = 'a name far longer than the box is wide'
    draw_detections(pixels, detections(box, class_names=(name,)))
    assert (pixels != 90).any()


def test_a_rotated_box_is_drawn_along_its_edges():
    pixels = gray()
    turned = OrientedBoxes(
        np.float32([[100, 80, 60, 20]]), np.float32([np.pi / 2]), np.float32([0.5]), np.int32([1])
    )
    draw_detections(pixels, with_names(turned, ('a', 'b')))
    # Its width now lies along y.
    for edge in (pixels[60:110, 90], pixels[60:110, 110], pixels[110, 90:110]):
        assert (edge == color_of(1)).all()
    assert (pixels[60:100, 95:105] == 90).all()


MASK = np.zeros((160, 200), np.uint8)
MASK[100, 100] = 1


@pytest.mark.parametrize(
    ('result', 'at_xy'),
    [
        (BOX, (60, 100)),
        (Poses(BOX, np.full((1, 1, 3), [100, 100, 1], np.float32)), (60, 100)),
        (Poses(BOX, np.full((1, 1, 3), [100, 100, 1], np.float32)), (100, 100)),
        (
            Instances(BOX, (np.ones((1, 1), bool),), np.array([[100, 100]], np.int32), (200, 160)),
            (100, 100),
        ),
        (ClassMask(MASK), (100, 100)),
        (Classification(np.float32([0.1, 0.9])), (4, 10)),
        (Depth(np.zeros((160, 200), np.float32)), (100, 100)),
    ],
)
def test_draws_results_of_every_task(result, at_xy):
    pixels = gray()
    draw(pixels, with_names(result, ('a', 'b')))
    assert (pixels[at_xy[1], at_xy[0]] != 90).any()


def test_depth_goes_from_blue_to_red_and_is_black_where_it_is_not_finite():
    ((near, far, none),) = depth_view(Depth(np.float32([[1, 3, np.nan]]))).tolist()
    assert near[0] > near[2] and far[2] > far[0] and none == [0, 0, 0]
    assert (depth_view(Depth(np.float32([[np.inf]]))) == 0).all()
    assert depth_view(Depth(np.float32([[2, 2]]))).shape == (1, 2, 3)


@pytest.mark.parametrize(
    'wanted',
    [
        {},
        {'channel_order': 'bgr', 'scale': 1.0},
        {'layout': 'nhwc', 'dtype': 'float16'},
        {'mean': (0.485, 0.456, 0.406), 'std': (0.229, 0.224, 0.225)},
    ],
)
def test_network_input_is_restored_to_the_picture(wanted):
    picture = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    preprocess = Preprocess((8, 8), **wanted)
    tensor, _ = preprocess(Frame.from_pixels(picture))
    assert np.abs(input_view(tensor, preprocess).astype(int) - picture).max() <= 1


def test_pictures_are_arranged_in_captioned_rows_of_equal_height():
    sheet = in_rows(
        [[Panel(gray((40, 20)), 'a'), Panel(gray((20, 20)), 'b')], [Panel(gray((20, 40)), '')]],
        height=100,
    )
    assert sheet.shape[1] == 300
    assert (sheet[-100:, :50] == 90).all() and (sheet[-100:, 50:] == 255).all()
    assert sheet[0].min() == 255


def test_masks_overlay_all_classes_but_the_background_and_further_ones_their_class_0():
    pixels = gray((4, 2))
    classes = np.array([[0, 0, 1, 1], [1, 1, 300, 300]], np.uint16)
    draw_mask(pixels, classes, opacity=1.0, background=0)
    assert (pixels[0, :2] == 90).all()
    assert (pixels[0, 2:] == color_of(1)).all()
    assert (pixels[1, 2:] == color_of(300)).all()
    pixels = gray((4, 2))
    draw_mask(pixels, np.zeros((2, 4), np.uint8), opacity=0.5)
    assert np.abs(pixels[0, 0] - (np.array(color_of(0)) + 90) / 2).max() <= 1
    masks = {
        'area': ClassMask(np.repeat(np.uint8([[0, 1]]), 4, axis=0)),
        'line': ClassMask(np.repeat(np.uint8([[0], [0], [1], [1]]), 2, axis=1)),
    }
    pixels = gray((2, 4))
    draw(pixels, ClassMasks(masks, [2, 2]), opacity=1.0)
    assert (pixels[:2, 0] == color_of(0)).all()
    assert (pixels[:2, 1] == color_of(1)).all()
    assert (pixels[2:] == color_of(2)).all()


@pytest.mark.parametrize(
    ('count', 'names', 'first', 'second', 'is_drawn'),
    [
        (17, (), 5, 6, True),  # The shoulders of COCO.
        (133, (), 5, 6, True),
        (21, (), 0, 5, True),  # Wrist and index finger.
        (3, ('right_shoulder', 'tail', 'left_shoulder'), 2, 0, True),
        (133, ('x',) * 133, 5, 6, False),
        (3, ('x',) * 3, 2, 0, False),
    ],
)
def test_limbs_are_drawn_between_visible_keypoints(count, names, first, second, is_drawn):
    pixels = gray()
    points = np.zeros((1, count, 3), np.float32)
    points[0, 7 % count] = 20, 90, 0.1  # In COCO, the elbow at the left shoulder.
    points[0, first], points[0, second] = (20, 30, 0.9), (120, 30, 0.9)
    draw_keypoints(pixels, points, names, min_visibility=0.5)
    assert (pixels[30, 70] == (color_of(first) if is_drawn else 90)).all()
    assert (pixels[60, 20] == 90).all()


def test_without_labels_only_edges_are_drawn():
    plain = gray()
    draw_detections(plain, BOX, style=Style(label_size=0))
    assert (plain[:50] == 90).all() and (plain[60:120, 60] == color_of(1)).all()
    scores = gray()
    draw(scores, Classification(np.float32([0.1, 0.9])), style=Style(label_size=0))
    assert (scores == 90).all()


def test_a_transparent_picture_has_only_what_is_drawn():
    pixels = np.zeros((160, 200, 4), np.uint8)
    instances = Instances(
        BOX, (np.ones((9, 9), bool),), np.array([[100, 100]], np.int32), (200, 160)
    )
    draw(pixels, with_names(instances, ('a', 'b')), opacity=0.5)
    assert pixels[104, 104].tolist() == [*color_of(1), 128]  # Straight, not premultiplied.
    assert pixels[90, 60].tolist() == [*color_of(1), 255]
    assert pixels[90, 90].tolist() == [0, 0, 0, 0]
    assert set(np.unique(pixels[36:48, 62:80, 3])) == {255}


@pytest.mark.parametrize(
    ('mask', 'names', 'is_painted'),
    [
        (ClassMask(MASK), ('background', 'crop'), False),
        (ClassMask(MASK), ('__background__', 'crop'), False),
        (ClassMask(MASK), ('road', 'crop'), True),
        (ClassMask(MASK), (), True),
        (ClassMask(MASK, is_binary=True), (), False),
        (ClassMask(MASK, is_binary=True), ('off', 'on'), True),
        (ClassMask(np.where(MASK, MASK, 255).astype(np.uint8)), ('road', 'crop'), False),
        (ClassMask(np.where(MASK, np.uint16(1), np.uint16(65535))), (), False),
    ],
)
def test_background_and_pixels_without_a_class_are_not_painted(mask, names, is_painted):
    pixels = gray()
    draw(pixels, with_names(mask, names), opacity=1.0)
    assert (pixels[100, 100] == color_of(1)).all()
    assert pixels[5, 5].tolist() == (list(color_of(0)) if is_painted else [90] * 3)


@pytest.mark.parametrize(
    ('pixels', 'result', 'error', 'problem'),
    [
        (np.zeros((9, 9, 3), np.float32), Depth(np.zeros((9, 9))), BadFrameError, 'of .* float32'),
        (np.zeros((9, 9), np.uint8), Depth(np.zeros((9, 9))), BadFrameError, r'of \(9, 9\) uint8'),
        (np.zeros((0, 9, 3), np.uint8), Detections.empty(), BadFrameError, 'that is not empty'),
        (np.broadcast_to(np.uint8(0), (9, 9, 3)), Detections.empty(), BadFrameError, 'writable'),
        (
            np.zeros((9, 18, 3), np.uint8)[:, ::2],
            Detections.empty(),
            BadFrameError,
            'C-contiguous',
        ),
        ('picture.png', Detections.empty(), BadFrameError, 'Cannot draw on pixels of str'),
        (np.zeros((9, 9, 3), np.uint8), [Detections.empty()], ParameterError, 'list is no result'),
    ],
)
def test_other_arrays_and_objects_are_refused(pixels, result, error, problem):
    with pytest.raises(error, match=problem):
        draw(pixels, result)


SECOND = 1_000_000_000


def at(*centers_x):
    return detections(*((x - 5, 45, x + 5, 55) for x in centers_x))


def trails_of(*places, keep_seconds=10.0):
    """Return the trail of one object, at (second, x)."""
    trails = Trails()
    for second, x in places:
        trails.add(at(x).with_ids(np.array(['7'], object)), second * SECOND, keep_seconds)
    return trails


def drawn(trails):
    pixels = np.full((100, 200, 3), 90, np.uint8)
    trails.draw(pixels, Style(line_width=1))
    return pixels


def test_a_trail_joins_the_centers_of_one_track_in_its_color():
    trails = Trails()
    for second, (x, other) in enumerate([(20, 150), (60, 160), (100, 170)]):
        trails.add(at(x, other).with_ids(np.array(['7', ''], object)), second * SECOND, 10.0)
    pixels = drawn(trails)
    assert (pixels[50, 20:101] == color_of_id('7')).all()
    assert (pixels[50, 102:] == 90).all()  # A box without an id has no trail.


def test_old_points_are_forgotten_and_all_where_time_goes_back():
    trails = trails_of((0, 20), (1, 60), (2, 100), keep_seconds=1.0)
    pixels = drawn(trails)
    assert (pixels[50, 60:101] == color_of_id('7')).all() and (pixels[50, :59] == 90).all()
    trails.add(at().with_ids(np.array([], object)), 9 * SECOND, 1.0)
    assert (drawn(trails) == 90).all()
    assert (drawn(trails_of((9, 20), (8, 150)))[50, :149] == 90).all()
