"""Boxes of known sizes against rendered scenes."""

import numpy as np
import pytest

from support.rgbd_scenes import Solid, render, yaw
from trt_ros.errors import ParameterError
from trt_ros.vision.boxes_3d import DepthScene
from trt_ros.vision.depth_points import Intrinsics
from trt_ros.vision.upright_boxes import fit_upright, level_axes, parse_sizes, quaternion_of

SMALL = Intrinsics(305.0, 306.0, 159.3, 120.2, (320, 240))


def pitch(degrees):
    """Rotation about the x axis of the optical frame: the camera looks down."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]])


@pytest.mark.slow
@pytest.mark.parametrize('down', [0, 20, 90])
@pytest.mark.parametrize('size', [(0.5, 0.6, 0.4), (0.3, 0.8, 0.3), (1.2, 0.9, 0.5)])
def test_centers_and_extents_are_within_5_cm(size, down):
    size_of_class, errors = np.array(size)[[0, 2, 1]], []
    for degrees in range(0, 180, 30):
        for center in ((0, 0, 3.0), (-0.8, 0.4, 3.0)):
            solid = Solid(center, size, pitch(down) @ yaw(degrees))
            scene = render([solid], SMALL)
            depths = DepthScene(scene.depth(noise=0.005), SMALL, instances=scene.owners)
            box = np.array(scene.box(0))
            surface = depths.measure(box[None], np.arange(1))
            points = depths.points(box, 0, surface.ranges[0])
            found, axes = fit_upright(points, size_of_class, level_axes(-pitch(down)[:, 1]))
            assert np.linalg.norm(found - center) < 0.05
            extents = np.abs(axes) @ size_of_class, np.abs(solid.rotation) @ size
            errors.append(abs(extents[0] - extents[1]).max())
            assert np.linalg.det(axes) == pytest.approx(1)
    assert np.percentile(errors, 90) < 0.05


def test_rotations_are_those_of_quaternions_and_sizes_have_a_class_and_three_numbers():
    for vector in np.random.default_rng(0).standard_normal((20, 4)):
        x, y, z, w = vector / np.linalg.norm(vector) * np.sign(vector[3])
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        rotation = np.eye(3) + 2 * w * cross + 2 * cross @ cross
        assert quaternion_of(rotation) == pytest.approx([x, y, z, w])
    assert parse_sizes(['a:b:1,2,0.5'])['a:b'].tolist() == [1, 2, 0.5]
    for bad in (['car'], ['car:1,2'], ['car:1,2,0'], ['car:1,2,nan'], ['a:1,1,1', 'a:1,1,1']):
        with pytest.raises(ParameterError, match='sizes contains'):
            parse_sizes(bad)
