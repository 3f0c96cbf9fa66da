"""Boxes and names on a picture."""

import numpy as np
import pytest

pytest.importorskip('cv2')

from trt_ros.draw import colour_of, draw_detections
from trt_ros.vision.detections import Detections
from trt_ros.vision.results import OrientedBoxes


def grey(size_wh=(200, 160)):
    return np.full((size_wh[1], size_wh[0], 3), 90, np.uint8)


def found(*boxes):
    """Detections of (x1, y1, x2, y2, score, label)."""
    table = np.array(boxes, float).reshape(-1, 6)
    return Detections(
        table[:, :4].astype(np.float32), table[:, 4].astype(np.float32),
        table[:, 5].astype(np.int32))


def test_nothing_found_leaves_the_picture_as_it_is():
    pixels = grey()
    draw_detections(pixels, Detections.empty(), ())
    assert (pixels == 90).all()


def test_a_box_is_drawn_along_its_edges_in_the_colour_of_its_class():
    pixels = grey()
    draw_detections(pixels, found((60, 50, 140, 120, 0.5, 1)), ('a', 'b'))
    for edge in (pixels[60:120, 60], pixels[120, 60:140], pixels[60:120, 140]):
        assert (edge == colour_of(1)).all()
    assert (pixels[60:110, 70:130] == 90).all()
    assert (pixels[130:] == 90).all()
    assert (pixels[36:48, 62:80] != 90).any()


@pytest.mark.parametrize('box', [
    (0, 0, 200, 160), (-50, -50, 20, 20), (190, 150, 500, 500), (10, 10, 10, 10)])
def test_a_box_at_or_over_the_edge_is_drawn_without_fail(box):
    pixels = grey()
    draw_detections(pixels, found((*box, 0.9, 0)), ('a name far longer than the box is wide',))
    assert (pixels != 90).any()


def test_a_class_without_a_name_shows_its_number():
    numbered, named = grey(), grey()
    draw_detections(numbered, found((60, 50, 140, 120, 0.5, 7)), ('a',))
    draw_detections(named, found((60, 50, 140, 120, 0.5, 7)), ('',) * 7 + ('7',))
    assert np.array_equal(numbered, named)


def test_the_best_detection_is_on_top():
    pixels = grey()
    box = (60, 50, 140, 120)
    draw_detections(pixels, found((*box, 0.9, 0), (*box, 0.3, 1)), ())
    assert (pixels[60:120, 60] == colour_of(0)).all()


def test_classes_have_colours_that_can_be_told_apart():
    colours = np.array([colour_of(index) for index in range(10)], int)
    distances = np.abs(colours[:, None] - colours).sum(axis=2)
    assert distances[~np.eye(10, dtype=bool)].min() > 40


def test_a_rotated_box_is_drawn_along_its_edges():
    pixels = grey()
    draw_detections(pixels, OrientedBoxes(
        np.array([[100, 80, 60, 20]], np.float32), np.array([np.pi / 2], np.float32),
        np.array([0.5], np.float32), np.array([1], np.int32)), ('a', 'b'))
    # Its width now lies along y.
    for edge in (pixels[60:110, 90], pixels[60:110, 110], pixels[110, 90:110]):
        assert (edge == colour_of(1)).all()
    assert (pixels[60:100, 95:105] == 90).all()
