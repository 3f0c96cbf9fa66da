"""Regions on the GPU: the kernel equals the NumPy reference, the pipeline ONNX Runtime."""

from itertools import product

import numpy as np
import pytest

from support.frames import noise_frame
from support.save_network import save_network
from trt_ros.families.registry import CLASSIFIERS, TENSORS
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import ENCODINGS
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.regions import REGION_RESIZES, Crop

pytestmark = pytest.mark.gpu

BOXES = np.array(
    [
        [60, 40, 30, 50, 0],
        [110, 70, 60, 30, 0.7],
        [0, 0, 40, 60, -2.5],
        [60, 40, 900, 500, 0.1],
        [-500, 3, 10, 10, 1],
        [1e9, 1e9, 1e8, 5, 0],
        [20.5, 30.25, 0.5, 1, 3],
    ]
)


@pytest.mark.parametrize('encoding', ENCODINGS)
def test_the_kernel_equals_numpy(encoding, crop_on_gpu):
    """Within a quarter of a gray level: coordinates are float32, and the GPU fuses operations."""
    for (width, height), dtype, layout, order, resize in product(
        [(118, 76), (1920, 1080)],
        ('float32', 'float16', 'uint8'),
        ('nchw', 'nhwc'),
        ('rgb', 'bgr'),
        REGION_RESIZES,
    ):
        frame = noise_frame(encoding, width, height, is_bigendian=order == 'bgr')
        scaling = (
            {'scale': 1.0}
            if dtype == 'uint8'
            else {'mean': (0.4, 0.5, 0.6), 'std': (0.2, 0.3, 0.25)}
        )
        preprocess = Preprocess(
            (48, 40), dtype=dtype, layout=layout, channel_order=order, pad_value=7, **scaling
        )
        crop = Crop(preprocess, 1.25, resize)
        maps = crop.maps(BOXES)
        want = crop(frame, maps).astype(np.float64)
        got = crop_on_gpu(frame, crop, maps).astype(np.float64)
        gray_level = preprocess.scale / min(preprocess.std)
        rounding = {'float32': 0.0, 'float16': 2.0**-10 * np.abs(want).max(), 'uint8': 1.0}[dtype]
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= gray_level / 4 + rounding, (width, dtype, layout)


@pytest.fixture(scope='module')
def mean_color(tmp_path_factory) -> str:
    """Write a network that returns the mean color of each image of a batch."""
    return save_network(
        tmp_path_factory.mktemp('models') / 'mean.onnx',
        'pooled = GlobalAveragePool(images) out = Flatten(pooled)',
        {'images': ('n', 3, 16, 16)},
        {'out': ('n', 3)},
    )


def values(result):
    """Return the numbers of an embedding or a classification."""
    return result['out'] if isinstance(result, dict) else result.scores


@pytest.mark.parametrize('frames_in_flight', [1, 2])
@pytest.mark.parametrize('unified_memory', ['off', 'on'])
@pytest.mark.parametrize(
    ('decoder', 'families'), [('embedding', TENSORS), ('classifier', CLASSIFIERS)]
)
def test_the_pipeline_equals_onnx_runtime(
    gpu, mean_color, decoder, families, unified_memory, frames_in_flight
):
    options = {
        'regions': True,
        'decoder': decoder,
        'region_scale': 1.25,
        'families': families,
        'batch': 4,
    }
    rng = np.random.default_rng(0)
    with (
        Pipeline.open(
            mean_color,
            backend='tensorrt_rtx',
            precision='fp32',
            unified_memory=unified_memory,
            frames_in_flight=frames_in_flight,
            **options,
        ) as on_gpu,
        Pipeline.open(mean_color, backend='onnxruntime', **options) as on_cpu,
    ):
        assert any('CUDA graph' in line and 'no graph' not in line for line in on_gpu.log_lines)
        for encoding, (width, height) in product(('bgr8', 'nv12'), ((64, 48), (320, 240))):
            frame = noise_frame(encoding, width, height)
            for count in (0, 1, 2, 3, 4, 7):
                boxes = np.column_stack(
                    [
                        rng.uniform(0, (width, height), (count, 2)),
                        rng.uniform(4, 60, (count, 2)),
                        rng.uniform(-3, 3, count),
                    ]
                )
                got, want = (each.infer_regions(frame, boxes) for each in (on_gpu, on_cpu))
                assert len(got) == len(want) == count
                for found, expected in zip(map(values, got), map(values, want)):
                    np.testing.assert_allclose(found, expected, atol=0.01)
        assert on_gpu.diagnostics()['CUDA graph fallbacks'] == ''
