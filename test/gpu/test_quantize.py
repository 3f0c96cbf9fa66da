"""`trt-ros quantize` on a GPU: latency table, and the engine of the quantised network."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trt_ros.cli import main
from trt_ros.demo.evaluate import MODEL, evaluate
from trt_ros.demo.scene import TRAINING, draw
from trt_ros.runtime.options import LabelledOptions
from trt_ros.runtime.pipeline import Pipeline

cv2 = pytest.importorskip('cv2')
onnx = pytest.importorskip('onnx')
pytestmark = pytest.mark.gpu


@pytest.fixture
def quantised(gpu, tmp_path):
    """Quantise the demo detector to fp8; return the file and the report."""
    pictures = tmp_path / 'pictures'
    pictures.mkdir()
    for index in range(16):
        picture = draw(np.random.default_rng([TRAINING, index]), (640, 480))[0]
        cv2.imwrite(str(pictures / f'{index}.png'), picture)
    output, report = tmp_path / 'q.onnx', tmp_path / 'report.json'
    flags = ['--to', 'fp8', '--output', output, '--json', report, '--max-drop', '1']
    flags += ['--device', gpu.index, '--engine-cache-dir', tmp_path]
    assert main(['quantize', str(MODEL), str(pictures), *map(str, flags)]) == 0
    return output, json.loads(report.read_text())


def test_fp8_engine_keeps_the_precision_of_the_demo_detector(gpu, quantised, tmp_path):
    output, report = quantised
    assert report['engine']['problem'] == report['engine']['error'] == ''
    assert report['engine']['agreement']['value'] >= report['agreement']['value'] - 0.02
    rows = {row['precision']: row for row in report['latency']['rows']}
    assert list(rows) == ['tf32', 'fp16', 'bf16', 'fp8 and fp16']
    for row in rows.values():
        assert row['error'] == ''
        assert 0 < row['graph_ms'] < 50
        assert 0 < row['frame_ms'] < 50
    assert report['latency']['verdict'].startswith('fp8 is ')
    options = LabelledOptions(
        model_path=str(output),
        precision='fp16',
        device=gpu.index,
        engine_cache_dir=str(tmp_path),
    )
    with Pipeline.open(options) as pipeline:
        assert pipeline.backend != 'onnxruntime'
        found = evaluate(pipeline, 60)
    with Pipeline.open(str(MODEL), backend='onnxruntime') as pipeline:
        expected = evaluate(pipeline, 60)
    assert np.nanmean(found) >= np.nanmean(expected) - 0.01
