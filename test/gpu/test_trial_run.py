"""Trial runs on a GPU: told as on the CPU, and without a trace in GPU memory."""

import re

import pytest

from trt_ros.runtime.gpu.measure import open_frames
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.runtime.pipeline import Pipeline

pytestmark = pytest.mark.gpu


def test_a_trial_run_is_told_as_on_the_cpu_and_its_memory_given_back(
    gpu, small_detector, tmp_path
):
    path, lines = str(small_detector()), {}
    options = {'decoder': 'yolov8', 'engine_cache_dir': str(tmp_path)}
    for backend in ('onnxruntime', 'auto'):
        with Pipeline.open(path, backend=backend, **options) as pipeline:
            lines[backend] = re.search(
                r'\w+ results in a trial run: boxes with', '\n'.join(pipeline.log_lines)
            )[0]
    assert lines['auto'] == lines['onnxruntime']
    with Pipeline.open(path, **options) as pipeline:
        assert isinstance(pipeline, GpuPipeline)
        tried = pipeline.memory()['device']
    with open_frames(path, **options) as pipeline:
        pipeline.warm_up()
        assert {*pipeline.memory()['device']} == {*tried}
        assert pipeline.memory()['device']['activations'] == tried['activations']
