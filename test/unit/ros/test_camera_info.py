"""Cameras of CameraInfo messages."""

import pytest

pytest.importorskip('sensor_msgs')

from sensor_msgs.msg import CameraInfo, RegionOfInterest

from trt_ros.errors import BadFrameError
from trt_ros.ros.camera_info import intrinsics_of, lens_of
from trt_ros.vision.depth_points import Intrinsics
from trt_ros.vision.lens import Lens

K = [100.0, 0.0, 60.0, 0.0, 200.0, 40.0, 0.0, 0.0, 1.0]
P = [110.0, 0.0, 62.0, 0.0, 0.0, 220.0, 42.0, 0.0, 0.0, 0.0, 1.0, 0.0]
ROI = RegionOfInterest(x_offset=20, y_offset=10, width=80, height=60)


def info(**fields):
    return CameraInfo(width=120, height=80, **{'k': K, **fields})


@pytest.mark.parametrize(
    ('fields', 'expected'),
    [
        ({}, Intrinsics(100.0, 200.0, 60.0, 40.0, (120, 80))),
        ({'p': P}, Intrinsics(110.0, 220.0, 62.0, 42.0, (120, 80))),
        ({'binning_x': 2, 'binning_y': 4}, Intrinsics(50.0, 50.0, 30.0, 10.0, (60, 20))),
        ({'roi': ROI}, Intrinsics(100.0, 200.0, 40.0, 30.0, (80, 60))),
        (
            {'binning_x': 2, 'binning_y': 5, 'roi': ROI},
            Intrinsics(50.0, 40.0, 20.0, 6.0, (40, 12)),
        ),
    ],
    ids=['K', 'P', 'binning', 'region of interest', 'both'],
)
def test_intrinsics_are_those_of_the_pixels_of_the_image(fields, expected):
    assert intrinsics_of(info(**fields), 'camera_info') == expected


IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
FOCAL, BINNED, FOUR = (100, 200, 60, 40), (50, 200, 30, 40), (0.1, 0.2, 0.3, 0.4)
TURNED = (0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ('fields', 'expected'),
    [
        ({}, None),
        ({'d': [0.0] * 14, 'r': IDENTITY, 'distortion_model': 'rational_polynomial'}, None),
        ({'p': P}, Lens(FOCAL, (0,) * 12, IDENTITY, (110, 220, 62, 42))),
        ({'r': TURNED}, Lens(FOCAL, (0,) * 12, TURNED, FOCAL)),
        (
            {'d': [*FOUR, 0.5], 'distortion_model': 'plumb_bob', 'binning_x': 2},
            Lens(BINNED, (*FOUR, 0.5, *[0.0] * 7), IDENTITY, BINNED),
        ),
        (
            {'d': FOUR, 'distortion_model': 'equidistant'},
            Lens(FOCAL, FOUR, IDENTITY, FOCAL, 'equidistant'),
        ),
    ],
    ids=['no distortion', 'zeros', 'P', 'R', 'plumb_bob', 'equidistant'],
)
def test_raw_images_have_a_lens_unless_it_changes_nothing(fields, expected):
    assert lens_of(info(**fields), 'camera_info') == expected


@pytest.mark.parametrize(
    'fields',
    [
        {'d': [0.1], 'distortion_model': 'division'},
        {'d': [0.0] * 12 + [0.1, 0.0], 'distortion_model': 'rational_polynomial'},
        {'d': [float('nan')]},
        {'d': [float('inf')]},
    ],
    ids=['another model', 'a tilted sensor', 'NaN', 'infinity'],
)
def test_an_unsupported_distortion_is_refused(fields):
    with pytest.raises(BadFrameError, match='has an unsupported distortion'):
        lens_of(info(**fields), 'camera_info')


@pytest.mark.parametrize(
    'r',
    [
        [1.0] * 9,
        [float('nan')] * 9,
        [1e300] * 9,
        [1.0, 0.1, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0],
    ],
    ids=['singular', 'NaN', 'beyond float64 when squared', 'shear', 'mirror'],
)
def test_a_rectification_that_is_no_rotation_is_refused(r):
    with pytest.raises(BadFrameError, match='R of the calibration on camera_info is no rotation'):
        lens_of(info(r=r), 'camera_info')


def test_a_rotation_with_the_digits_of_a_file_is_one():
    turned = [0.9659, -0.2588, 0.0, 0.2588, 0.9659, 0.0, 0.0, 0.0, 1.0]
    assert lens_of(info(r=turned), 'camera_info').r == tuple(turned)


def test_cameras_without_calibration_and_regions_far_from_them_are_refused():
    with pytest.raises(BadFrameError, match='No calibration was received on depth_info'):
        intrinsics_of(info(k=[0.0] * 9), 'depth_info')
    with pytest.raises(BadFrameError, match=r'not that of a camera: .* cx -4e'):
        intrinsics_of(info(roi=RegionOfInterest(x_offset=4_000_000_000)), 'camera_info')


UNKNOWN = [float('nan'), float('inf'), float('-inf'), 1e300]


@pytest.mark.parametrize(
    ('index', 'value'),
    [(0, -100.0), (0, 1e-300), *((index, value) for index in (0, 2, 4, 5) for value in UNKNOWN)],
)
def test_calibration_that_no_camera_has_is_refused(index, value):
    k = [*K[:index], value, *K[index + 1 :]]
    with pytest.raises(BadFrameError, match='not that of a camera') as caught:
        intrinsics_of(info(k=k), 'camera_info')
    assert caught.value.kind == 'bad calibration'
