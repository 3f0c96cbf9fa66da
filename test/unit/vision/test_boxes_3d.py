"""3D boxes against rendered scenes, whose depths are known exactly."""

import numpy as np
import pytest

from support.rgbd_scenes import CAMERA, HD, Solid, render, yaw
from trt_ros.errors import BadFrameError
from trt_ros.vision.boxes_3d import DepthScene, box_corners, enclosing_boxes
from trt_ros.vision.depth_points import DepthImage
from trt_ros.vision.frame import Frame

FACING = Solid((0.1, -0.2, 3.0), (0.5, 0.6, 0.4), yaw(0))


def measure(scene, boxes, encoding='16UC1', noise=0.0, seed=0, **options):
    """Measure boxes (x, y, w, h, theta) of a rendered scene."""
    depth = scene.depth(encoding, noise, seed)
    boxes = np.array(boxes, float)
    return DepthScene(depth, scene.camera, **options).measure(boxes, np.arange(len(boxes)))


@pytest.mark.parametrize('encoding', ['16UC1', '32FC1'])
def test_the_front_of_a_box_is_where_it_was_put(encoding):
    scene = render([FACING])
    found = measure(scene, [scene.box(0)], encoding)
    assert found.centers[0] == pytest.approx([0.1, -0.2, 2.8], abs=0.01)
    assert found.sizes[0, :2] == pytest.approx([0.5, 0.6], rel=0.06)
    assert found.sizes[0, 2] < 0.01
    assert (found.centers.dtype, found.sizes.dtype) == (np.float32, np.float32)


@pytest.mark.slow
@pytest.mark.parametrize('degrees', [0, 35, 60])
@pytest.mark.parametrize('center', [(0, 0, 3.0), (0.6, -0.3, 3.0), (-0.8, 0.4, 3.0)])
def test_the_center_is_within_2_cm_at_3_m_despite_noise_and_background(degrees, center):
    for size in ((0.3, 0.8, 0.3), (0.4, 0.4, 0.05)):
        scene = render([Solid(center, size, yaw(degrees))])
        truth, _ = scene.surface(0)
        for background in (0.0, 0.3):
            found = measure(scene, [scene.box(0, background)], noise=0.01, seed=degrees)
            assert np.linalg.norm(found.centers[0] - truth) < 0.02


def test_a_wall_close_behind_a_pole_in_front_and_with_a_mask_what_is_larger_do_not_count():
    pole = Solid((0.1, 0, 1.5), (0.03, 3, 0.03), yaw(0))
    scene = render([FACING, pole], wall=3.4)
    found = measure(scene, [scene.box(0, 0.3)], noise=0.01)
    assert found.centers[0] == pytest.approx([0.1, -0.2, 2.8], abs=0.02)
    thin = Solid((0, 0, 3.0), (0.08, 1.0, 0.08), yaw(0))
    scene = render([thin])
    wide = (*scene.box(0)[:2], 300.0, 200.0, 0.0)
    found = measure(scene, [wide], noise=0.01, instances=scene.owners)
    assert found.centers[0] == pytest.approx([0, 0, 2.96], abs=0.02)
    assert measure(scene, [wide], noise=0.01).centers[0, 2] == pytest.approx(4.5, abs=0.02)


def test_a_rotated_box_is_measured_along_its_sides():
    turned = np.array([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]])
    scene = render([Solid((0, 0, 3.0), (1.0, 0.2, 0.1), turned)])
    x, y, *_ = scene.box(0)
    scale = CAMERA.fx / 2.95
    box = (x, y, 1.0 * scale, 0.2 * scale, np.arctan2(0.6, 0.8))
    found = measure(scene, [box])
    assert found.centers[0] == pytest.approx([0, 0, 2.95], abs=0.01)
    assert found.sizes[0, :2] == pytest.approx(scene.surface(0)[1][:2], rel=0.05)
    depths = DepthScene(scene.depth(), CAMERA)
    points = depths.points(np.array(box), 0, found.ranges[0])
    own = np.count_nonzero(scene.owners == 1)
    assert len(points) == pytest.approx(own, rel=0.03)


def test_pixels_without_depth_do_not_count_and_an_object_of_them_has_none():
    scene = render([FACING])
    x, y, width, height, _ = map(int, scene.box(0))
    scene.meters[y - height // 2 : y, x - width // 2 : x] = 0
    assert measure(scene, [scene.box(0)]).centers[0, 2] == pytest.approx(2.8, abs=0.01)
    outside = (-500.0, 10.0, 50.0, 50.0, 0.0)
    largest = float(np.finfo(np.float32).max)
    for bad, encoding in (
        *((bad, '32FC1') for bad in (0.0, np.nan, np.inf, -1.0, largest)),
        *((bad, '16UC1') for bad in (0.0, 65.535)),
    ):
        scene.meters[:] = bad
        with np.errstate(invalid='ignore'):
            found = measure(scene, [scene.box(0), outside], encoding)
        assert found.has_depth.tolist() == [False, False]
        assert np.isnan(found.sizes).all()


def test_max_range_hides_what_is_farther_and_boxes_far_beyond_the_image_are_no_error():
    scene = render([FACING])
    found = measure(scene, [scene.box(0)], max_range=2.0)
    assert not found.has_depth.any()
    huge = [(0.0, 0.0, 1e30, 1e30, 0.3), (320.0, 240.0, 1e7, 1e7, 0.0)]
    found = measure(render([FACING]), huge)
    assert found.centers.shape == (2, 3)


def test_the_points_of_an_object_are_those_of_its_pixels():
    scene = render([FACING, Solid((-0.8, 0.2, 2.0), (0.3, 0.3, 0.3), yaw(30))])
    for options in ({}, {'instances': scene.owners}):
        depths = DepthScene(scene.depth('32FC1'), CAMERA, **options)
        boxes = np.array([scene.box(0), scene.box(1)])
        found = depths.measure(boxes, np.arange(2))
        for index in range(2):
            points = depths.points(boxes[index], index, found.ranges[index])
            own = scene.owners == index + 1
            exact = (scene.rays() * scene.meters[..., None])[own]
            assert points.dtype == np.float32
            assert len(points) == pytest.approx(len(exact), rel=0.1)
            assert points.mean(axis=0) == pytest.approx(exact.mean(axis=0), abs=0.01)
    assert len(depths.points(np.array([-50.0, 0, 10, 10, 0]), 0, found.ranges[0])) == 0


@pytest.mark.slow
def test_many_objects_are_measured_at_once_as_one_by_one():
    solids = [
        Solid((x, y, 3.0 + x / 4), (0.3, 0.3, 0.2), yaw(20))
        for x in (-1.5, -0.5, 0.5, 1.5)
        for y in (-0.6, 0.6)
    ]
    scene = render(solids, HD)
    boxes = [scene.box(index, 0.2) for index in range(len(solids))]
    together = measure(scene, boxes, noise=0.01)
    for index, box in enumerate(boxes):
        alone = measure(scene, [box], noise=0.01)
        assert np.array_equal(alone.centers[0], together.centers[index])
        assert np.linalg.norm(alone.centers[0] - scene.surface(index)[0]) < 0.02


def test_wrong_sizes_and_encodings_are_named_and_a_big_endian_depth_image_is_read():
    scene = render([FACING])
    with pytest.raises(BadFrameError, match='640 × 480, but its calibration is for 1280 × 720'):
        DepthScene(scene.depth(), HD)
    with pytest.raises(BadFrameError, match='instances is 1280 × 720, but 640 × 480 is expected'):
        DepthScene(scene.depth(), CAMERA, instances=np.zeros((720, 1280), np.uint16))
    with pytest.raises(BadFrameError, match='Encoding mono8 is not one of depth images'):
        DepthImage.of(Frame.from_pixels(np.zeros((2, 2), np.uint8), 'mono8'))
    values = np.array([[1000, 2500]], '>u2')
    frame = Frame.from_pixels(values, '16UC1')
    assert DepthImage.of(frame).meters((slice(None), slice(None))) == pytest.approx(
        np.array([[1.0, 2.5]])
    )


def test_enclosing_boxes_of_surfaces_have_equal_horizontal_sides_parallel_to_the_axes():
    turn = np.array([[0, 0, 2.0, 2.0]] * 2)  # A quarter turn about z, not normalized.
    corners = box_corners(np.array([[1.0, 2, 3]] * 2), np.array([[4.0, 0.2, 1]] * 2), turn)
    boxes = enclosing_boxes(corners, np.array([False, True]))
    assert boxes == pytest.approx(np.array([[0.9, 0, 2.5, 1.1, 4, 3.5], [-1, 0, 2.5, 3, 4, 3.5]]))
    corners = box_corners(np.zeros((1, 3)), np.array([[4.0, 2, 1]]), np.zeros((1, 4)))
    assert corners[0].max(axis=0).tolist() == [2, 1, 0.5]
