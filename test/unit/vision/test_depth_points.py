"""Points of depth images."""

import numpy as np
import pytest

from support.rgbd_scenes import CAMERA, Solid, render, yaw
from trt_ros.vision.depth_points import Intrinsics, organised_points, organised_wh


def points_of(metres, bgr, camera, **options):
    width, height = organised_wh(camera.image_wh, options.get('stride', 1))
    out = np.full((height, width, 4), 7, np.float32)
    organised_points(out, metres.astype(np.float32), bgr, camera, **options)
    return out


@pytest.mark.parametrize('stride', [1, 2, 3, 64])
def test_each_pixel_has_its_point_and_colour(stride):
    scene = render([Solid((0.1, -0.2, 3.0), (0.5, 0.6, 0.4), yaw(30))])
    bgr = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
    out = points_of(scene.metres, bgr, CAMERA, stride=stride)
    reverse = np.ascontiguousarray(bgr[..., ::-1])[..., ::-1]  # As to_colour() returns it of rgb8.
    assert points_of(scene.metres, reverse, CAMERA, stride=stride).tobytes() == out.tobytes()
    exact = (scene.rays() * scene.metres[..., None])[::stride, ::stride]
    assert np.allclose(out[..., :3], exact, rtol=0, atol=1e-5)
    blue, green, red = np.moveaxis(bgr[::stride, ::stride].astype(np.uint32), 2, 0)
    assert np.array_equal(out.view(np.uint32)[..., 3], red << 16 | green << 8 | blue)


def test_pixels_without_depth_have_no_point_but_a_colour():
    camera = Intrinsics(1.0, 1.0, 0.0, 0.0, (7, 1))
    metres = np.array([[0, -1, np.nan, np.inf, 5.001, 5.0, 1.0]])
    out = points_of(metres, np.full((1, 7, 3), 255, np.uint8), camera, max_range=5.0)
    is_lost = [True, True, True, True, True, False, False]
    for axis in range(3):
        assert np.isnan(out[0, :, axis]).tolist() == is_lost
    assert out[0, 6].tolist()[:3] == [6.0, 0.0, 1.0]
    assert (out.view(np.uint32)[..., 3] == 0xFFFFFF).all()
