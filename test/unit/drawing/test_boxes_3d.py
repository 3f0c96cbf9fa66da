"""Boxes in space on images."""

import numpy as np
import pytest

from trt_ros.drawing.boxes_3d import draw_boxes_3d, project_edges
from trt_ros.drawing.labels import Label, Style, color_of
from trt_ros.vision.boxes_3d import box_corners
from trt_ros.vision.depth_points import Intrinsics

CAMERA = Intrinsics(100.0, 100.0, 100.0, 80.0, (200, 160))
UPRIGHT = (0.0, 0.0, 0.0, 1.0)


def box(center, size=(1.0, 1.0, 1.0), quaternion=UPRIGHT):
    return box_corners(np.array([center]), np.array([size]), np.array([quaternion]))


def drawn(corners, *, style=None):
    pixels = np.full((160, 200, 3), 90, np.uint8)
    labels = [Label(str(index), color_of(index)) for index in range(len(corners))]
    draw_boxes_3d(pixels, corners, labels, CAMERA, style=style or Style(0, line_width=1))
    return pixels


def test_corners_are_turned_by_the_quaternion():
    half = np.sqrt(0.5)
    corners = box((0.0, 0.0, 5.0), (0.2, 0.4, 2.0), (0.0, half, 0.0, half))[0]
    assert np.ptp(corners, axis=0) == pytest.approx([2.0, 0.4, 0.2])  # 90 degrees about y.


def test_edges_are_drawn_where_the_camera_sees_them():
    pixels = drawn(box((0.0, 0.0, 2.5)))  # Front at 2 m, back at 3 m.
    color = color_of(0)
    for distance in (2.0, 3.0):
        left, right = (round(100 + sign * 50 / distance) for sign in (-1, 1))
        top, bottom = (round(80 + sign * 50 / distance) for sign in (-1, 1))
        assert (pixels[top, left : right + 1] == color).all()
        assert (pixels[top : bottom + 1, right] == color).all()
    assert (pixels[80, 90:110] == 90).all() and (pixels[:50] == 90).all()


def test_boxes_are_drawn_in_front_of_the_camera_only():
    corners = np.concatenate([box((0.0, 0.0, -3.0)), box((np.nan, 0.0, 3.0))])
    assert (drawn(corners) == 90).all()
    assert drawn(box((0.0, 0.0, 1e300))).any()
    assert len(project_edges(box((0.0, 0.0, np.inf))[0], CAMERA)) == 0
    assert drawn(np.zeros((0, 8, 3))).min() == 90
    edges = project_edges(box((0.0, 0.0, 0.0), (1.0, 1.0, 4.0))[0], CAMERA)
    assert len(edges) == 8  # Those of its far end, and those that lead there.
    pixels = drawn(box((0.0, 0.0, 0.0), (1.0, 1.0, 4.0)))
    assert (pixels[55, 75:126] == color_of(0)).all()  # Its far end at 2 m.
    assert (pixels[0, 20] == color_of(0)).all()  # An edge towards the camera, at 45 degrees.


def test_the_first_box_is_on_top_and_labeled():
    corners = np.concatenate([box((0.0, 0.0, 2.5)), box((0.0, 0.0, 2.5))])
    pixels = drawn(corners, style=Style(1.0, line_width=1))
    assert (pixels[60:100, 125] == color_of(0)).all()
    label = pixels[35:54, 75:125]
    assert (label == color_of(0)).all(axis=2).any()
