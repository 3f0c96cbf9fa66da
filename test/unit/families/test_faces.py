"""SCRFD, YuNet, RetinaFace, CenterFace and BlazeFace."""

import math

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families.faces import (
    BLAZEFACE,
    CENTERFACE,
    RETINAFACE,
    SCRFD,
    YUNET,
    YUNET_2022,
)
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (64, 96)
GRIDS = {8: (8, 12), 16: (4, 6), 32: (2, 3)}
TWICE = Letterbox.fit((192, 128), HW, 'letterbox_topleft')
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=100)
#: Offsets of the landmarks in strides or priors.
OFFSETS = np.array([[0, 0], [1, 0], [0.5, 0.5], [0, 1], [1, 1]], np.float32)


def outputs_of(kinds, per_cell, axes=3, dtype=np.float32):
    return {
        f'{name}_{stride}': np.zeros((1, rows * columns * per_cell, size)[3 - axes :], dtype)
        for name, size in kinds.items()
        for stride, (rows, columns) in GRIDS.items()
    }


def specs(outputs):
    return '; '.join(f'{name} ({", ".join(map(str, x.shape))})' for name, x in outputs.items())


def scrfd(axes=2, dtype=np.float32):
    return outputs_of({'score': 1, 'bbox': 4, 'kps': 10}, 2, axes, dtype)


def yunet(dtype=np.float32):
    return outputs_of({'cls': 1, 'obj': 1, 'bbox': 4, 'kps': 10}, 1, 3, dtype)


def retinaface(dtype=np.float32):
    count = 2 * sum(rows * columns for rows, columns in GRIDS.values())
    sizes = {'loc': 4, 'conf': 2, 'landms': 10}
    return {name: np.zeros((1, count, size), dtype) for name, size in sizes.items()}


def decode(network, family, outputs):
    return open_head(family, network(specs(outputs), hw=HW))(outputs, TWICE, THRESHOLDS)


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize('axes', [2, 3])
@pytest.mark.parametrize('second', [0, 1])
@pytest.mark.parametrize('stride', [8, 16, 32])
def test_scrfd_measures_from_the_upper_left_corner_of_the_cell(
    network, stride, second, axes, dtype
):
    outputs = scrfd(axes, dtype)
    row, column = 1, 2
    place = 2 * (row * GRIDS[stride][1] + column) + second
    for name, values in (
        ('score', 0.75),
        ('bbox', [0.5, 0.25, 0.5, 1]),
        ('kps', OFFSETS.ravel()),
    ):
        outputs[f'{name}_{stride}'][..., place, :] = values
    found = decode(network, SCRFD, outputs)
    x, y = column * stride, row * stride
    box = [x - stride / 2, y - stride / 4, x + stride / 2, y + stride]
    assert found.detections.xyxy.tolist() == [[2 * side for side in box]]
    assert found.detections.scores.tolist() == [0.75]
    points = 2 * ([x, y] + stride * OFFSETS)
    assert found.keypoints[0].tolist() == [[*point, 1] for point in points.tolist()]


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize('stride', [8, 16, 32])
def test_yunet_multiplies_both_scores_and_sizes_are_logarithms(network, stride, dtype):
    outputs = yunet(dtype)
    row, column = 1, 1
    place = row * GRIDS[stride][1] + column
    for name, values in (
        ('cls', 0.5),
        ('obj', 0.5),
        ('bbox', [0.5, 0.25, 0, math.log(0.5)]),
        ('kps', OFFSETS.ravel()),
    ):
        outputs[f'{name}_{stride}'][0, place] = values
    found = decode(network, YUNET, outputs)
    x, y = 1.5 * stride, 1.25 * stride
    box = [x - stride / 2, y - stride / 4, x + stride / 2, y + stride / 4]
    assert found.detections.xyxy[0].tolist() == pytest.approx([2 * v for v in box], abs=0.05)
    assert found.detections.scores.tolist() == [0.5]
    points = 2 * stride * (1 + OFFSETS)
    assert found.keypoints[0].tolist() == [[*point, 1] for point in points.tolist()]


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize(
    ('level', 'second', 'side'), [(0, 0, 16), (0, 1, 32), (1, 0, 64), (1, 1, 128)]
)
def test_retinaface_is_relative_to_priors_in_the_middle_of_the_cell(
    network, level, second, side, dtype
):
    outputs = retinaface(dtype)
    before = [0, 2 * 8 * 12][level]
    stride, row, column = [8, 16][level], 2, 3
    place = before + 2 * (row * GRIDS[stride][1] + column) + second
    outputs['loc'][0, place] = [0, 1, 5 * math.log(0.5), 5 * math.log(0.25)]
    outputs['conf'][0, place] = [0.25, 0.75]
    outputs['landms'][0, place] = OFFSETS.ravel()
    found = decode(network, RETINAFACE, outputs)
    x, y = (column + 0.5) * stride, (row + 0.5) * stride
    box = [x - side / 4, y + side / 10 - side / 8, x + side / 4, y + side / 10 + side / 8]
    expected = np.clip([2 * v for v in box], 0, [192, 128, 192, 128])
    assert found.detections.xyxy[0].tolist() == pytest.approx(expected, abs=0.2)
    assert found.detections.scores.tolist() == [0.75]
    points = 2 * ([x, y] + 0.1 * side * OFFSETS)
    assert found.keypoints[0, :, :2] == pytest.approx(points, abs=0.05)


def test_a_landmark_that_is_not_finite_is_not_visible(network):
    outputs = scrfd()
    outputs['score_32'][0], outputs['bbox_32'][0] = 0.9, [0, 0, 1, 1]
    outputs['kps_32'][0, 2] = np.nan
    found = decode(network, SCRFD, outputs)
    assert found.keypoints[0, :, 2].tolist() == [1, 0, 1, 1, 1]


def of_one(network, family, outputs, hw=HW):
    """Decode at the size of the input: box, score and keypoints of the one face."""
    whole = Letterbox.fit(hw[::-1], hw, 'stretch')
    found = open_head(family, network(specs(outputs), hw=hw))(outputs, whole, THRESHOLDS)
    (box,), (score,), (points,) = found.detections.xyxy, found.detections.scores, found.keypoints
    return box.tolist(), float(score), points[:, :2].tolist()


@pytest.mark.parametrize(
    ('stride', 'anchor', 'side'), [(8, 1, 16), (16, 0, 32), (32, 1, 96), (64, 2, 256)]
)
def test_yunet_of_2022_has_priors_and_a_limited_objectness(network, stride, anchor, side):
    hw, per_cell = (128, 192), {8: 3, 16: 2, 32: 2, 64: 3}
    cells = {each: (hw[0] // each) * (hw[1] // each) for each in per_cell}
    count = sum(cells[each] * per_cell[each] for each in per_cell)
    outputs = {
        name: np.zeros((count, size), np.float32)
        for name, size in (('loc', 14), ('conf', 2), ('iou', 1))
    }
    row, column = 1, 2
    place = sum(cells[each] * per_cell[each] for each in per_cell if each < stride)
    place += (row * hw[1] // stride + column) * per_cell[stride] + anchor
    loc = [0.2, -0.1, -3, -4, *OFFSETS.ravel()]
    outputs['loc'][place], outputs['conf'][place], outputs['iou'][place] = loc, (0.5, 0.49), 1.2
    outputs['conf'][0], outputs['iou'][0] = (0, 1), -0.1
    box, score, points = of_one(network, YUNET_2022, outputs, hw)
    x, y = (column + 0.5) * stride, (row + 0.5) * stride
    center = np.array([x + 0.1 * 0.2 * side, y - 0.1 * 0.1 * side])
    half = side * np.exp([0.2 * -3, 0.2 * -4]) / 2
    limits = [*hw[::-1], *hw[::-1]]
    expected = np.clip([*(center - half), *(center + half)], 0, limits).tolist()
    assert box == pytest.approx(expected, abs=1e-3)
    assert score == pytest.approx(0.7)
    assert np.allclose(points, [x, y] + 0.1 * side * OFFSETS, atol=1e-3)


def test_centerface_has_y_first_and_landmarks_in_the_box(network):
    rows, columns, row, column = HW[0] // 4, HW[1] // 4, 7, 11
    outputs = {
        name: np.zeros((1, size, rows, columns), np.float32)
        for name, size in (('537', 1), ('538', 2), ('539', 2), ('540', 10))
    }
    for name, values in (
        ('537', [0.8]),
        ('538', [1.5, 1]),
        ('539', [0.25, -0.5]),
        ('540', OFFSETS[:, ::-1].ravel()),
    ):
        outputs[name][0, :, row, column] = values
    box, score, points = of_one(network, CENTERFACE, outputs)
    size = 4 * np.exp([1, 1.5])
    low = 4 * np.array([column + 0.5 - 0.5, row + 0.5 + 0.25]) - size / 2
    assert box == pytest.approx([*low, *(low + size)], abs=1e-3)
    assert score == pytest.approx(0.8)
    assert np.allclose(points, low + size * OFFSETS, atol=1e-3)


@pytest.mark.parametrize(('side', 'stride', 'per_cell'), [(128, 8, 2), (128, 16, 6), (256, 32, 6)])
def test_blazeface_is_in_pixels_from_the_centers_of_the_cells(network, side, stride, per_cell):
    outputs = {'regressors': np.zeros((1, 896, 16), np.float32)}
    outputs['classificators'] = np.full((1, 896, 1), -9, np.float32)
    row, column = 3, 2
    place = 512 * (per_cell == 6) + (row * side // stride + column) * per_cell + 1
    outputs['regressors'][0, place] = [4, -3, 20, 30, *range(12)]
    outputs['classificators'][0, place] = 2
    box, score, points = of_one(network, BLAZEFACE, outputs, (side, side))
    x, y = (column + 0.5) * stride, (row + 0.5) * stride
    assert box == pytest.approx([x - 6, max(y - 18, 0), x + 14, y + 12])
    assert score == pytest.approx(1 / (1 + math.exp(-2)))
    assert np.allclose(points, np.add([x, y], np.arange(12).reshape(6, 2)))


def test_overlapping_faces_are_suppressed_with_their_landmarks(network):
    outputs = scrfd()
    for place, score in ((0, 0.6), (1, 0.8)):
        outputs['score_32'][place] = score
        outputs['bbox_32'][place] = [0, 0, 1, 1]
        outputs['kps_32'][place] = score
    found = decode(network, SCRFD, outputs)
    assert found.detections.scores.tolist() == pytest.approx([0.8])
    assert found.keypoints[0, 0, :2].tolist() == pytest.approx([51.2, 51.2])
