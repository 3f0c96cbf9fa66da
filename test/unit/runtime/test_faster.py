"""Choice between GPU and CPU by the times of runs, on clocks of the test."""

from types import SimpleNamespace

import numpy as np
import pytest

from support.fake_runner import FakeRunner
from trt_ros.errors import ModelError
from trt_ros.families.registry import TENSORS
from trt_ros.progress import CancelledError
from trt_ros.runtime import faster
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import TensorSpec

STATEFUL = ('x=tensor:x', 'h=state:y')


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that runs advance."""
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(faster, 'time', clock)
    return clock


@pytest.fixture
def open_on(clock):
    """Open a pipeline that adds its input to its state, in a time of the clock."""

    def open_on(backend, seconds, shape=(1, 2), inputs=STATEFUL, change=np.positive):
        def run(tensors):
            clock.now += seconds
            return {'y': change(sum(tensors.values()) + np.float32(1))}

        specs = [TensorSpec(name, shape, 'float32', 'input') for name in 'xh'[: len(inputs)]]
        output = TensorSpec('y', shape, 'float32', 'output')
        runner = FakeRunner(run, inputs=specs, outputs=[output])
        runner.backend = backend
        return Pipeline.open('net.onnx', families=TENSORS, runner=runner, inputs=inputs)

    return open_on


def choose(gpu, cpu, **options):
    asked = PipelineOptions(model_path='net.onnx', **options)
    opened = []

    def open_pipeline(changed):
        opened.append(changed.backend)
        if isinstance(cpu, Exception):
            raise cpu
        return cpu

    return *faster.faster_of(gpu, asked, open_pipeline), opened


@pytest.mark.parametrize(('on_gpu', 'on_cpu'), [(60e-6, 20e-6), (60e-6, 60e-6), (60e-6, 200e-6)])
def test_the_faster_one_is_kept_as_new_and_the_other_is_closed(open_on, on_gpu, on_cpu):
    gpu, cpu = open_on('tensorrt', on_gpu), open_on('onnxruntime', on_cpu)
    found, (line,), opened = choose(gpu, cpu)
    assert opened == ['onnxruntime']
    assert f'60 us on the GPU, {1e6 * on_cpu:.0f} us on the CPU' in line
    assert found is (cpu if on_cpu < on_gpu else gpu)
    assert ('set backend to tensorrt for the GPU' in line) == (found is cpu)
    assert found({'x': np.zeros((1, 2))})['y'].tolist() == [[1, 1]]
    assert (gpu if found is cpu else cpu).runner.is_closed
    assert not found.runner.is_closed


@pytest.mark.parametrize(
    'options',
    [
        {'backend': 'tensorrt'},
        {'precision': 'fp16'},
        {'device': 1},
        {'gpu_wait': 'spin'},
        {'stream_priority': -1},
    ],
)
def test_a_wish_for_the_gpu_is_not_questioned(open_on, options):
    gpu = open_on('tensorrt', 60e-6)
    assert choose(gpu, None, **options) == (gpu, (), [])
    assert not gpu.runner.call_count


def test_long_runs_images_and_dynamic_shapes_are_not_compared(open_on):
    for gpu in (
        open_on('tensorrt', 2e-3),
        open_on('tensorrt', 1e-6, (1, 3, 8, 8), ('x=image:x',)),
        open_on('tensorrt', 1e-6, (1, -1), ('x=tensor:x',)),
        open_on('onnxruntime', 1e-6),
    ):
        assert choose(gpu, None) == (gpu, (), [])


def test_a_network_that_the_cpu_cannot_run_stays_on_the_gpu(open_on):
    gpu = open_on('tensorrt', 60e-6)
    found, lines, _ = choose(gpu, ModelError('A plugin is unknown.'))
    assert found is gpu and 'not compared' in lines[0] and 'A plugin is unknown.' in lines[0]
    with pytest.raises(CancelledError):
        choose(gpu, CancelledError('Stopped.'))
    assert not gpu.runner.is_closed


@pytest.mark.parametrize('change', [np.abs, np.sign, lambda y: np.where(y < 0, np.nan, y)])
def test_a_gpu_that_computes_something_else_is_not_used(open_on, change, caplog):
    gpu, cpu = open_on('tensorrt', 20e-6, change=change), open_on('onnxruntime', 60e-6)
    found, (line,), _ = choose(gpu, cpu)
    assert found is cpu and gpu.runner.is_closed
    assert 'GPU and CPU differ on random inputs, output y' in line
    assert 'trt-ros verify' in caplog.text
    assert found({'x': np.zeros((1, 2))})['y'].tolist() == [[1, 1]]


def test_values_that_are_not_finite_on_both_are_no_difference(open_on):
    def log(y):
        return np.where(y < 0, np.nan, y)

    gpu, cpu = (
        open_on(name, seconds, change=log)
        for name, seconds in (('tensorrt', 20e-6), ('onnxruntime', 60e-6))
    )
    assert choose(gpu, cpu)[0] is gpu
