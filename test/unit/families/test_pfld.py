"""Landmarks of a face from 0 to 1, of a whole image or of the faces that another network finds."""

from demo.scene import draw_scene
import numpy as np
import pytest

from support.bundles import write_cascade
from trt_ros.decode.choice import open_head
from trt_ros.families.keypoints import PFLD
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.regions import Crop, Preprocess
from trt_ros.vision.thresholds import Thresholds


@pytest.mark.parametrize('count', [5, 68, 98])
def test_landmarks_are_shares_of_the_image(network, count):
    values = np.random.default_rng(0).uniform(0, 1, (1, 2 * count)).astype(np.float32)
    head = open_head(PFLD, network(f'out (1, {2 * count})', hw=(112, 112)))
    assert head.keypoint_count == count and head.region_scale == 1.1
    twice = Letterbox.fit((224, 112), (112, 112), 'stretch')
    (found,) = head({'out': values}, twice, Thresholds())
    np.testing.assert_allclose(
        found.keypoints[:, :2], values.reshape(-1, 2) * (224, 112), rtol=1e-5
    )
    assert found.keypoints[:, 2].tolist() == [1] * count


@pytest.mark.slow
def test_landmarks_of_a_bundle_are_in_pixels_of_the_image(tmp_path):
    path = write_cascade(tmp_path, max_regions=2, finds='landmarks')
    pixels = draw_scene(np.random.default_rng(3), (640, 480))[0]
    with Pipeline.open(path, backend='onnxruntime', cpu_threads=1) as pipeline:
        found = pipeline(pixels, score=0.3)
    assert len(found) > 2 and found.region_results[2] is None
    crop = Crop(Preprocess((32, 24)), 1.1)
    for each, box, affine in zip(
        found, found.rotated_boxes()[:2], crop.maps(found.rotated_boxes())
    ):
        (points,) = each.region.keypoints
        assert points.shape == (2, 3)
        np.testing.assert_allclose(points[0, :2], affine[:, 2], atol=1e-3)  # 0, 0
        corner = affine[:, :3] @ (24, 32, 1)  # 1, 1
        np.testing.assert_allclose(points[1, :2], corner, atol=1e-3)
        assert each.region.detections.xyxy[0] == pytest.approx([*affine[:, 2], *corner], abs=1e-2)
        assert box[:2] == pytest.approx((affine[:, 2] + corner) / 2, abs=1e-2)
