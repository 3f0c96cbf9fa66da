"""Tiles on the GPU: the kernel equals the NumPy reference, the pipeline ONNX Runtime."""

import numpy as np
import pytest

from support.frames import noise_frame
from support.tiled import mosaic, with_batch
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import ENCODINGS
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.nms import iou
from trt_ros.vision.regions import Tiles
from trt_ros.vision.thresholds import Thresholds

pytestmark = pytest.mark.gpu

ASKED = Thresholds(0.3, 0.5, max_detections=500)


@pytest.mark.parametrize('encoding', ENCODINGS)
@pytest.mark.parametrize('antialias', [False, True])
def test_pixels_equal_numpy(encoding, antialias, tiles_on_gpu):
    for width, height in ((118, 76), (1920, 1080)):
        frame = noise_frame(encoding, width, height)
        tiles = Tiles(Preprocess((48, 40), antialias=antialias), 3, 2, 0.15)
        assert np.abs(tiles_on_gpu(frame, tiles) - tiles(frame)).max() <= 1 / 255 / 4


@pytest.mark.parametrize('unified_memory', ['off', 'on'])
@pytest.mark.parametrize('tiles', ['4x2', '6x4'])
def test_boxes_equal_onnx_runtime(gpu, tiles, unified_memory, tmp_path):
    path, values = with_batch(tmp_path / 'n.onnx', 'n'), {'tiles': tiles, 'tile_overlap': 0.25}
    with (
        Pipeline.open(
            path, precision='fp32', device=gpu.index, unified_memory=unified_memory, **values
        ) as on_gpu,
        Pipeline.open(path, backend='onnxruntime', **values) as on_cpu,
    ):
        assert 'decoding on the GPU' in on_gpu.log_lines[-1]
        for seed in (1, 2, 1):
            image = mosaic(seed)
            got, want = on_gpu(image, ASKED), on_cpu(image, ASKED)
            assert len(got) == len(want) > 40
            overlaps = iou(want.xyxy[:, None], got.xyxy) * (want.labels[:, None] == got.labels)
            best = overlaps.argmax(axis=1)
            assert len(set(best.tolist())) == len(want)
            assert overlaps.max(axis=1, initial=0).min(initial=1) > 0.98
            # tensorrt_rtx computes products in TF32, also with fp32.
            np.testing.assert_allclose(got.scores[best], want.scores, atol=1e-2)
