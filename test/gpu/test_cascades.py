"""A detector and a classifier of its objects in one launch, compared with two pipelines."""

from demo.scene import draw_scene
import numpy as np
import pytest

from support.bundles import write_cascade
from trt_ros.demo import MODEL
from trt_ros.families.registry import CLASSIFIERS
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame

pytestmark = pytest.mark.gpu
COLORS = {
    'families': CLASSIFIERS,
    'regions': True,
    'labels': ('red', 'green', 'blue'),
    'mean': (0.0,) * 3,
    'std': (1.0,) * 3,
}


def scene(seed):
    return draw_scene(np.random.default_rng(seed), (640, 480))[0]


@pytest.fixture
def options(gpu, nothing_left):
    return {'backend': 'tensorrt_rtx', 'device': gpu.index, 'precision': 'fp32'}


@pytest.mark.parametrize(
    ('batch', 'max_regions', 'more'),
    [
        ('n', 16, {}),
        ('n', 2, {'frames_in_flight': 2}),
        ('n', 4, {'unified_memory': 'on'}),
        (1, 3, {}),
        (3, 4, {}),
    ],
)
def test_results_are_those_of_two_pipelines(tmp_path, options, batch, max_regions, more):
    path = write_cascade(tmp_path, batch=batch, max_regions=max_regions)
    options |= more
    with (
        Pipeline.open(path, **options) as both,
        Pipeline.open(MODEL, **options) as detector,
        Pipeline.open(tmp_path / 'color.onnx', batch=max_regions, **COLORS, **options) as colors,
    ):
        assert both.log_lines[-1].endswith('in the same launch')
        for seed, score in ((3, 0.3), (1, 0.3), (3, 1.0), (3, 0.9), (4, 0.05)):
            frame = Frame.from_pixels(scene(seed), 'bgr8')
            found, wanted = both(frame, score=score), detector(frame, score=score)
            np.testing.assert_array_equal(found.xyxy, wanted.xyxy)
            regions = colors.infer_regions(frame, wanted[:max_regions])
            assert len(found.region_results) == len(wanted)
            assert list(found.region_results[max_regions:]) == [None] * len(wanted[max_regions:])
            for each, expected in zip(found, regions):
                np.testing.assert_allclose(each.region.scores, expected.scores, atol=1e-4)
        assert both.diagnostics()['CUDA graph fallbacks'] == ''
