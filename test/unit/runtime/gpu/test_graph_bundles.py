"""Bundles in one captured graph, on a CUDA of our own, whose networks run in ONNX Runtime."""

from typing import Any

import numpy as np
import pytest

from support.bundles import (
    HELD,
    assert_held_networks_run_once,
    denoiser,
    prompted,
    sums,
    two_sums,
    write_bundle,
)
from support.host_context import HostContext, onnx_context
from trt_ros.runtime.bundle import open_members
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.fitting import resolve
from trt_ros.runtime.gpu.bundle import TensorRTBundle
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.pipeline import Pipeline

ONE = np.ones(1, np.float32)


@pytest.fixture
def open_gpu(make_engine, network_of, opened):
    """Open a bundle on the fake GPU."""
    contexts: list[HostContext] = []

    def open_member(options, file):
        network = OnnxRuntimeRunner.open(file.path, threads=1)
        engine = make_engine()
        engine.inputs, engine.outputs = network.inputs, network.outputs
        engine.device_memory_size_v2 = 1000 * (1 + len(opened) + len(file.inputs))

        def new(strategy):
            contexts.append(onnx_context(engine, network))
            return contexts[-1]

        engine.create_execution_context = new
        return network_of(engine, frames_in_flight=1, gpu_timeout=0)

    def open_gpu(path, **given: Any) -> GpuPipeline:
        options = PipelineOptions(model_path=str(path), **given)
        network = open_members(options, TensorRTBundle, open_member)
        opened.append(GpuPipeline(network, resolve(network, options)))
        opened[-1].warm_up()
        opened[-1].contexts = contexts
        return opened[-1]

    return open_gpu


def test_states_and_flow_are_one_launch(tmp_path, open_gpu, cuda):
    pipeline = open_gpu(two_sums(tmp_path))
    launches = cuda.calls['cudaGraphLaunch']
    for _ in range(2):
        runs = [pipeline({'ai1': ONE})['bo1'].item() for _ in range(5)]
        assert runs == [1, 4, 12, 33, 88]
        pipeline.reset_state()
    assert cuda.calls['cudaGraphLaunch'] - launches == 10
    assert pipeline.diagnostics()['CUDA graph fallbacks'] == ''


def test_networks_share_tensors_and_activations(tmp_path, open_gpu):
    pipeline = open_gpu(two_sums(tmp_path))
    first, second = pipeline.contexts
    assert first.addresses['ao1'] == second.addresses['bi1']
    assert first.activations == second.activations
    assert first.activations[1] >= max(c.engine.device_memory_size_v2 for c in pipeline.contexts)


@pytest.mark.slow
@pytest.mark.parametrize('steps', [1, 2, 3, 10])
def test_a_loop_equals_that_on_the_cpu(tmp_path, open_gpu, steps):
    path = denoiser(tmp_path, steps)
    options: dict[str, Any] = {'inputs': ('x=tensor:x',), 'outputs': ('x_next', 'context')}
    ours = open_gpu(path, **options)
    rng = np.random.default_rng(steps)
    with Pipeline.open(str(path), backend='onnxruntime', **options) as reference:
        for _ in range(3):
            inputs = {
                name: rng.normal(0, 1, shape).astype(np.float32)
                for name, shape in (('seen', (1, 3, 16, 16)), ('x', (1, 4)))
            }
            found, wanted = ours(inputs), reference(inputs)
            for name in options['outputs']:
                np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.slow
def test_a_loop_of_two_networks(tmp_path, open_gpu):
    path = write_bundle(
        tmp_path,
        {'A': sums('a x', 'b'), 'B': sums('b c', 'y'), 'C': sums('y z', 'last')},
        inputs={'A': ['a', 'x'], 'B': ['c'], 'C': ['z']},
        data_flow={'A/b': ['B/b'], 'B/y': ['C/y']},
        loops=[{'models': ['A', 'B'], 'steps': 4, 'carry': {'B/y': 'A/x'}}],
    )
    ours = open_gpu(path, outputs=('last', 'y', 'b'))
    inputs = {name: np.full(1, value, 'f4') for name, value in zip('axcz', (1, 10, 100, 1000))}
    with Pipeline.open(str(path), backend='onnxruntime', outputs=('last', 'y', 'b')) as cpu:
        wanted = {name: value.item() for name, value in cpu(inputs).items()}
    assert wanted == {'last': 1414, 'y': 414, 'b': 314}
    for _ in range(2):
        assert {name: value.item() for name, value in ours(inputs).items()} == wanted


def test_networks_of_held_inputs_run_when_these_change(tmp_path, open_gpu):
    pipeline = open_gpu(prompted(tmp_path), inputs=HELD, outputs=('y', 'token'))
    networks = [context.network for context in pipeline.contexts]
    assert_held_networks_run_once(pipeline, networks)
    pipeline.reset_state()
    assert pipeline({'prompt': 2 * ONE, 'x': ONE})['y'].item() == 103


def test_a_bundle_counts_the_memory_of_all_engines(tmp_path, open_gpu):
    assert open_gpu(two_sums(tmp_path)).memory()['device']['engine'] == 2000
