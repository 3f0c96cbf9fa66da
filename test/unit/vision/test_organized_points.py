"""Colored points of depth images."""

import os
import threading

import numpy as np
import pytest

from support.rgbd_scenes import CAMERA, HD, Solid, render, yaw
from trt_ros.vision.depth_points import Intrinsics, OrganizedPoints, organized_wh


@pytest.fixture
def organized():
    points = OrganizedPoints()
    yield points
    points.close()


def points_of(organized, meters, bgr, camera, **options):
    width, height = organized_wh(camera.image_wh, options.get('stride', 1))
    out = np.full((height, width, 4), 7, np.float32)
    organized.compute(out, meters.astype(np.float32), bgr, camera, **options)
    return out


def expected(meters, bgr, camera, *, stride=1, max_range=np.inf):
    """Return the points by the definition, in whole images."""
    z = meters.astype(np.float32)[::stride, ::stride]
    width, height = camera.image_wh
    across = ((np.arange(0, width, stride) - camera.cx) / camera.fx).astype(np.float32)
    down = ((np.arange(0, height, stride) - camera.cy) / camera.fy).astype(np.float32)
    is_valid = (z > 0) & (z <= max_range) & np.isfinite(z)
    xyz = np.stack([z * across, z * down[:, None], z], axis=-1)
    blue, green, red = np.moveaxis(bgr[::stride, ::stride].astype(np.uint32), 2, 0)
    rgb = red << 16 | green << 8 | blue
    return np.dstack([np.where(is_valid[..., None], xyz, np.nan), rgb.view(np.float32)])


def assert_same(out, exact):
    assert np.array_equal(out[..., :3], exact[..., :3], equal_nan=True)
    assert np.array_equal(out.view(np.uint32)[..., 3], exact.view(np.uint32)[..., 3])


@pytest.mark.parametrize('stride', [1, 2, 3, 64])
def test_each_pixel_has_its_point_and_color(organized, stride):
    scene = render([Solid((0.1, -0.2, 3.0), (0.5, 0.6, 0.4), yaw(30))])
    bgr = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
    out = points_of(organized, scene.meters, bgr, CAMERA, stride=stride)
    exact = (scene.rays() * scene.meters[..., None])[::stride, ::stride]
    assert np.allclose(out[..., :3], exact, rtol=0, atol=1e-5)
    assert_same(out, expected(scene.meters, bgr, CAMERA, stride=stride))


@pytest.mark.parametrize('order', ['rgb8', 'bgra8', 'mono8', 'padded'])
def test_colors_of_any_view_are_the_same_as_of_a_copy(organized, order):
    rng = np.random.default_rng(1)
    meters = rng.uniform(0.5, 9, (480, 640))
    pixels = rng.integers(0, 256, (480, 700, 4), np.uint8)
    view = {  # As to_color() returns them.
        'rgb8': np.ascontiguousarray(pixels[:, :640, :3])[..., ::-1],
        'bgra8': pixels[:, :640, :3],
        'mono8': np.broadcast_to(pixels[:, :640, :1], (480, 640, 3)),
        'padded': np.ascontiguousarray(pixels[..., :3])[:, :640],
    }[order]
    view.setflags(write=False)
    for stride in (1, 2):
        out = points_of(organized, meters, view, CAMERA, stride=stride)
        assert_same(out, expected(meters, view, CAMERA, stride=stride))


def test_pixels_without_depth_have_no_point_but_a_color(organized):
    camera = Intrinsics(1.0, 1.0, 0.0, 0.0, (7, 1))
    meters = np.array([[0, -1, np.nan, np.inf, 5.001, 5.0, 1.0]])
    out = points_of(organized, meters, np.full((1, 7, 3), 255, np.uint8), camera, max_range=5.0)
    is_lost = [True, True, True, True, True, False, False]
    for axis in range(3):
        assert np.isnan(out[0, :, axis]).tolist() == is_lost
    assert out[0, 6].tolist()[:3] == [6.0, 0.0, 1.0]
    assert (out.view(np.uint32)[..., 3] == 0xFFFFFF).all()


@pytest.fixture
def usable_cores():
    """Return a function that limits the cores of this thread until the end of the test."""
    before = os.sched_getaffinity(0)

    def limit(count):
        if count > len(before):
            pytest.skip(f'this machine has {len(before)} cores')
        os.sched_setaffinity(0, sorted(before)[:count])

    yield limit
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize('cores', [1, 2])
def test_one_thread_and_two_compute_the_same(organized, usable_cores, cores):
    usable_cores(cores)
    rng = np.random.default_rng(2)
    meters = rng.uniform(-1, 9, (720, 1280))
    meters[:200] = np.abs(meters[:200]) + 0.1  # Whole bands without a lost pixel.
    bgr = rng.integers(0, 256, (720, 1280, 3), np.uint8)
    before = threading.active_count()
    for max_range in (np.inf, 8.0):
        out = points_of(organized, meters, bgr, HD, max_range=max_range)
        assert_same(out, expected(meters, bgr, HD, max_range=max_range))
    assert threading.active_count() == before + cores - 1
    organized.close()
    organized.close()
    assert threading.active_count() == before


def test_another_camera_size_or_stride_takes_effect_at_once(organized):
    rng = np.random.default_rng(3)
    for wh, stride in (
        ((640, 480), 1),
        ((640, 480), 2),
        ((1, 5), 1),
        ((5, 1), 1),
        ((640, 481), 1),
    ):
        for focal in (300.0, 400.0):
            camera = Intrinsics(focal, focal, 3.0, 2.0, wh)
            meters = rng.uniform(-0.1, 1, wh[::-1])
            bgr = rng.integers(0, 256, (*wh[::-1], 3), np.uint8)
            out = points_of(organized, meters, bgr, camera, stride=stride)
            assert_same(out, expected(meters, bgr, camera, stride=stride))
