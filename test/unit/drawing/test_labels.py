"""Places of labels."""

import tracemalloc

import numpy as np
import pytest

from support.objects import detections
from trt_ros.drawing.labels import MAX_PLACED, color_of, covered, drawn_name, place_labels
from trt_ros.drawing.objects import draw_detections

SIZE = (60.0, 20.0)


def placed(*boxes, image_wh=(640, 480)):
    boxes = np.array(boxes, float).reshape(-1, 4)
    return place_labels(boxes, np.tile(SIZE, (len(boxes), 1)), image_wh).tolist()


def test_a_label_stays_in_the_image_and_avoids_small_boxes():
    assert placed((600, 2, 640, 300)) == [[580, 0]]  # Covers little of its own box.
    assert placed((600, 2, 640, 30)) == [[580, 30]]  # Above would cover much of it.
    assert placed((0, 0, 640, 480)) == [[0, 0]]
    assert placed((-90, 470, -50, 475)) == [[0, 450]]
    assert placed((100, 100, 200, 200), (110, 82, 122, 96)) == [[100, 200], [110, 62]]
    pixels = np.full((300, 400, 3), 90, np.uint8)
    pixels[85:96, 110:121] = (7, 8, 9)
    boxes, names = ((100, 100, 300, 200), (110, 85, 121, 96)), ('large', 'small')
    found = detections(*boxes, score=(0.9, 0.5), label=(0, 1), class_names=names)
    draw_detections(pixels, found)
    assert (pixels[88:94, 113:118] == (7, 8, 9)).all()
    assert (pixels[202:212, 102:300] == color_of(0)).all(axis=2).any()


def test_labels_of_equal_boxes_do_not_cover_each_other_and_of_very_many_the_rest_is_above():
    corners = np.array(placed(*[(100, 100, 200, 200)] * 4), float)
    boxes = np.hstack([corners, corners + SIZE])
    assert (covered(boxes, boxes) == np.eye(4)).all()
    boxes = np.random.default_rng(0).uniform(50, 400, (MAX_PLACED + 9, 2)).round()
    boxes = np.hstack([boxes, boxes + 30])
    corners = placed(*boxes)
    assert corners[MAX_PLACED:] == [[x, y - 20] for x, y, *_ in boxes[MAX_PLACED:].tolist()]


def test_labels_of_very_many_boxes_take_little_memory():
    tracemalloc.start()
    place_labels(np.full((10_000, 4), (0, 0, 9, 9), float), np.full((10_000, 2), 9.0), (64, 48))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6


@pytest.mark.parametrize(
    ('name', 'drawn'),
    [
        ('traffic light', 'traffic light'),
        ('Möhre', 'Mohre'),
        ('Straße', 'Strasse'),
        ('garçon à vélo', 'garcon a velo'),
        ('Øl ½', 'Ol 12'),
        ('пшеница', '1'),
        ('小麦', '1'),
        ('麦 wheat', 'wheat'),
        ('', '1'),
        ('\ud800', '1'),
    ],
)
def test_names_are_drawn_in_letters_that_the_font_has(name, drawn):
    assert drawn_name(['soil', name], 1) == drawn
