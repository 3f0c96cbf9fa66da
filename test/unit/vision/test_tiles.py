"""Tiles: places, pixels and merged results."""

from itertools import pairwise

import numpy as np
import pytest

from support.frames import noise_frame
from trt_ros.errors import BadFrameError
from trt_ros.results.boxes import Detections, OrientedBoxes
from trt_ros.results.poses import Poses
from trt_ros.vision.frame import ENCODINGS, Frame, to_color
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.regions import Tiles
from trt_ros.vision.thresholds import Thresholds

INPUT = Preprocess((64, 48))
ORIGINS = np.array([[0, 0], [80, 40]])


def boxes(*rows: tuple[float, ...]) -> Detections:
    """Make detections of x1, y1, x2, y2, score and label each."""
    values = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(values[:, :4], values[:, 4], values[:, 5].astype(np.int32))


@pytest.mark.parametrize('overlap', [0.0, 0.2, 0.55, 0.9])
@pytest.mark.parametrize(('columns', 'rows'), [(1, 1), (4, 2), (3, 7)])
@pytest.mark.parametrize('wh', [(3840, 2160), (1280, 721), (501, 500)])
def test_tiles_cover_the_image_and_overlap(overlap, columns, rows, wh):
    letterbox, origins = Tiles(INPUT, columns, rows, overlap).places(wh)
    assert len(origins) == columns * rows
    for axis, size, side in zip((0, 1), wh, letterbox.image_wh):
        starts = sorted(set(origins[:, axis].tolist()))
        assert starts[0] == 0
        assert starts[-1] + side == size
        assert len(starts) == (columns, rows)[axis]
        assert all(b + int(overlap * side) <= a + side for a, b in pairwise(starts))


def test_boxes_of_tiles_are_merged_by_nms_and_tiles_that_show_nothing_refused():
    with pytest.raises(BadFrameError, match=r'8x2 tiles of 2. × 13. pixels, expected at least 32'):
        Tiles(INPUT, 8, 2).places((160, 240))
    tiles = Tiles(INPUT, 2, 1)
    first = boxes((85, 45, 99, 60, 0.7, 1), (0, 0, 5, 5, 0.4, 0))
    second = boxes((5, 5, 20, 20, 0.9, 1), (5, 5, 20, 20, 0.8, 0))
    found = tiles.merge([first, second], ORIGINS, Thresholds(iou=0.5))
    assert found.xyxy.tolist() == [[85, 45, 100, 60], [85, 45, 100, 60], [0, 0, 5, 5]]
    assert found.labels.tolist() == [1, 0, 0]
    agnostic = Thresholds(iou=0.5, class_agnostic=True, max_detections=1)
    assert len(tiles.merge([first, second], ORIGINS, agnostic)) == 1
    assert len(tiles.merge([boxes(), boxes()], ORIGINS, Thresholds())) == 0


@pytest.mark.parametrize('encoding', ENCODINGS)
def test_pixels_are_those_of_an_image_of_the_tile(encoding):
    frame, tiles = noise_frame(encoding, 150, 98), Tiles(INPUT, 3, 2, 0.1)
    letterbox, origins = tiles.places(frame.wh)
    (width, height), color = letterbox.image_wh, to_color(frame, 'rgb')
    for found, (left, top) in zip(tiles(frame), origins, strict=True):
        pixels = np.ascontiguousarray(color[top : top + height, left : left + width])
        np.testing.assert_array_equal(found, INPUT(Frame.from_pixels(pixels, 'rgb8'))[0][0])


def test_poses_and_rotated_boxes_are_merged():
    tiles, labels = Tiles(INPUT, 2, 1), np.zeros(1, np.int32)

    def pose(x, y, score):
        keypoints = np.array([[[x + 1, y + 2, 0.5]]], np.float32)
        return Poses(boxes((x, y, x + 10, y + 10, score, 0)), keypoints)

    found = tiles.merge([pose(81, 41, 0.5), pose(1, 1, 0.6)], ORIGINS, Thresholds())
    assert found.keypoints.tolist() == [[[82, 43, 0.5]]]
    assert found.xyxy.tolist() == [[81, 41, 91, 51]]

    def rotated(x, theta, score):
        box = np.array([[x, 50, 20, 10]], np.float32)
        angle, scores = np.array([theta], np.float32), np.array([score], np.float32)
        return OrientedBoxes(box, angle, scores, labels)

    both = [rotated(100, 0.5, 0.9), rotated(20, 0.5, 0.8)]
    assert len(tiles.merge(both, ORIGINS, Thresholds())) == 2
    origins = np.array([[0, 0], [80, 0]])
    (only,) = tiles.merge(both, origins, Thresholds())
    assert only.cxcywh.tolist() == [100, 50, 20, 10]
