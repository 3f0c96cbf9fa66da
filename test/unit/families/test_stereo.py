"""Depth of rendered pairs of images, of points, and of other focal lengths, in meters."""

from pathlib import Path

import numpy as np
import pytest

from support.descriptions import head as open_as
from support.stereo_scenes import (
    BASELINE,
    CAMERA,
    LENSES,
    render,
    save_iterations,
    save_stereo,
    visible,
)
from trt_ros import Pipeline
from trt_ros.families.registry import DEPTHS
from trt_ros.vision.depth_points import (
    Intrinsics,
    canonical_factor,
    depth_of_disparity,
    missing_offset,
)
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox

pytestmark = pytest.mark.slow

PAIR = 'left=image:left?mean=0&std=1', 'right=image:right?mean=0&std=1'


def measured(path, lenses, stacked=''):
    """Return the errors of visible pixels that the network is sure of, and their share."""
    depth = render(False)[1]
    frames = [
        Frame.from_pixels(render(is_right, lens)[0]).with_lens(lens)
        for is_right, lens in zip((False, True), map(LENSES.get, lenses or ('', '')))
    ]
    inputs = ('x=images:left,right?mean=0&std=1',) if stacked else PAIR
    with Pipeline.open(path, families=DEPTHS, inputs=inputs, backend='onnxruntime') as pipeline:
        assert pipeline.decoder.head.kind == 'disparity'
        found = pipeline({'x': frames} if stacked else dict(zip(('left', 'right'), frames)))
    is_used = visible(depth) & (found.confidence > 0.5)
    errors = abs(depth_of_disparity(found.values, CAMERA.fx, BASELINE) / depth - 1)
    return errors[is_used], is_used.sum() / visible(depth).sum()


@pytest.mark.parametrize(
    ('stacked', 'lenses'),
    [
        ('', ()),
        ('', ('equidistant', 'plumb_bob')),
        ('axis', ('plumb_bob', 'rational_polynomial')),
        ('channels', ()),
    ],
)
def test_depth_of_a_rendered_pair_is_within_1_percent_where_visible(tmp_path, stacked, lenses):
    errors, _ = measured(save_stereo(tmp_path / 'stereo.onnx', stacked=stacked), lenses, stacked)
    assert len(errors) > 5000
    assert np.median(errors) < 0.003
    assert (errors < 0.01).mean() > 0.97


@pytest.mark.parametrize('lenses', [(), ('plumb_bob', 'equidistant')])
def test_depth_of_a_trained_network_is_within_1_percent_at_the_median(lenses):
    """The network of tools/train_stereo.py, which has not seen such surfaces."""
    errors, share = measured(Path(__file__).with_name('stereo.onnx'), lenses)
    assert share > 0.95
    assert np.median(errors) < 0.005
    assert (errors < 0.01).mean() > 0.9


def test_iterations_are_a_loop_of_a_bundle(tmp_path):
    (left, depth), (right, _) = render(False), render(True)
    options = {'families': DEPTHS, 'inputs': PAIR, 'backend': 'onnxruntime', 'decoder': 'depth'}
    with Pipeline.open(save_iterations(tmp_path), **options) as pipeline:
        assert pipeline.decoder.head.kind == 'disparity'
        found = pipeline({'left': left[..., ::-1], 'right': right[..., ::-1]})
    errors = abs(depth_of_disparity(found.values, CAMERA.fx, BASELINE) / depth - 1)
    assert np.median(errors[visible(depth)]) < 0.003


def test_triangulation_is_exact_and_depth_at_300_pixels_becomes_that_of_the_camera():
    z, x = np.array([[0.5, 1.0, 40.0]]), 0.3
    left, right = 700 * x / z + 320, 700 * (x - 0.12) / z + 310
    found = depth_of_disparity((left - right).astype(np.float32), 700, 0.12, 320 - 310)
    assert found == pytest.approx(z, rel=1e-4)
    assert not np.isfinite(depth_of_disparity(np.zeros((1, 1), np.float32), 700, 0.12)).any()
    camera = Intrinsics(900.0, 900.0, 320.0, 240.0, (640, 480))
    assert canonical_factor(camera, 0.5) == 1.5


@pytest.mark.parametrize('is_sky', [False, True])
def test_confidence_is_that_of_the_image_and_1_without_sky(is_sky):
    planes = {
        'depth': np.ones((1, 4, 4)),
        'sky' if is_sky else 'valid': np.full((1, 4, 4), 0.25, np.float16),
    }
    head = open_as('depth', planes, hw=(4, 4))
    found = head(planes, Letterbox.fit((8, 6), (4, 4), 'stretch'))
    assert found.confidence.shape == (6, 8)
    assert np.unique(found.confidence) == [0.75 if is_sky else 0.25]


@pytest.mark.parametrize('image_wh', [(64, 48), (128, 96), (90, 30)])
def test_points_with_an_unknown_offset_become_meters(image_wh):
    width, height = image_wh
    camera = Intrinsics(60.0, 61.0, width / 2 - 3, height / 2 + 2, image_wh)
    letterbox = Letterbox.fit(image_wh, (64, 64), 'letterbox')
    cols, rows = np.meshgrid(np.arange(64) + 0.5, np.arange(64) + 0.5)
    u, v = np.moveaxis(letterbox.points_to_image(np.stack([cols, rows], -1)) - 0.5, -1, 0)
    z = 3 + 0.01 * u
    points = np.stack([(u - camera.cx) / camera.fx * z, (v - camera.cy) / camera.fy * z, z], -1)
    outputs = {
        'points': ((points - [0, 0, 1.25]) / 2)[None].astype(np.float32),
        'mask': np.ones((1, 64, 64), np.float32),
        'metric_scale': np.array([2], np.float32),
    }
    outputs['points'][0, ::5] = np.inf
    outputs['mask'][0, ::5] = 0
    found = open_as('moge', outputs, hw=(64, 64))(outputs, letterbox)
    offset = missing_offset(found.points, camera)
    assert offset == pytest.approx(1.25, abs=1e-4)
    # Between two cells that are finite.
    depth = found.values[height // 2] + offset
    want = 3 + 0.01 * np.arange(width)
    is_inside = np.isfinite(depth) & (np.arange(width) > 2) & (np.arange(width) < width - 3)
    assert depth[is_inside] == pytest.approx(want[is_inside], abs=1e-3)
    assert np.isnan(missing_offset(found.points[:0], camera))
