"""Trails of tracks."""

import numpy as np

from trt_ros.drawing.labels import Style
from trt_ros.drawing.objects import Trails, color_of_id
from trt_ros.results.boxes import Detections

SECOND = 1_000_000_000


def at(*centers_x):
    boxes = [(x - 5, 45, x + 5, 55) for x in centers_x]
    count = len(boxes)
    return Detections(
        np.float32(boxes).reshape(-1, 4), np.ones(count, np.float32), np.zeros(count, np.int32)
    )


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


def test_old_points_are_forgotten_also_of_tracks_that_ended():
    trails = Trails()
    for second, x in enumerate([20, 60, 100]):
        trails.add(at(x).with_ids(np.array(['7'], object)), second * SECOND, 1.0)
    pixels = drawn(trails)
    assert (pixels[50, 60:101] == color_of_id('7')).all() and (pixels[50, :59] == 90).all()
    trails.add(at().with_ids(np.array([], object)), 9 * SECOND, 1.0)
    assert (drawn(trails) == 90).all()


def test_a_time_that_goes_back_begins_again():
    trails = Trails()
    trails.add(at(20).with_ids(np.array(['7'], object)), 9 * SECOND, 10.0)
    trails.add(at(150).with_ids(np.array(['7'], object)), 8 * SECOND, 10.0)
    assert (drawn(trails)[50, :149] == 90).all()
