"""
Runs of tensors, several images and states in the captured graph, beside runs without a graph.

    python benchmarks/gpu_inputs.py [--rounds 300] [--json FILE]

Without a graph, a run copies from and to pageable memory and enqueues the network, as
`TensorRTRunner.infer` does; for images, preprocessing is not included. Where torch is installed,
the last column is a whole run by torch.compile in a CUDA graph, with preprocessing.

The networks are of random weights: a GRU of 64 inputs and 256 states, a policy of two cameras
(640x480) and 14 joints, and the difference of two tensors of 4.9 MB. The last lines are runs of up
to 4096 points of 32 values, padded with a mask: the same number of points, and another one per
run, in turn; and runs of the GRU on the CPU, by a Pipeline and by the session of ONNX Runtime
alone, in turn.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
import json
from pathlib import Path
import tempfile
import time
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from trt_ros.engine.options import BuildOptions, ShapeRange
from trt_ros.families.registry import TENSORS
from trt_ros.model.feeds.base import Feed
from trt_ros.model.feeds.image import ImageFeed
from trt_ros.model.feeds.state import StateFeed
from trt_ros.model.run_inputs import measured_inputs
from trt_ros.runtime.cpu.checked_runner import CheckedRunner
from trt_ros.runtime.cpu.pipeline import CpuPipeline
from trt_ros.runtime.fitting import fit
from trt_ros.runtime.gpu.measure import Work, graph_times, percentiles
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame

FLOAT = TensorProto.FLOAT
node = helper.make_node
Shapes = Mapping[str, Sequence[int | str]]
CAPACITY = 4096


def write(
    path: Path, nodes: list[Any], inputs: Shapes, outputs: Shapes, **shapes: tuple[int, ...]
) -> None:
    """Write a network whose weights have these shapes."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.05, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    values = [
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in each.items()]
        for each in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, path.stem, *values, weights)
    opset = [helper.make_opsetid('', 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def gru(path: Path) -> tuple[str, ...]:
    nodes = [
        node('Concat', ['x', 'h'], ['xh'], axis=1),
        node('MatMul', ['xh', 'wz'], ['z_']),
        node('Sigmoid', ['z_'], ['z']),
        node('MatMul', ['xh', 'wn'], ['n_']),
        node('Tanh', ['n_'], ['n']),
        node('Sub', ['h', 'n'], ['d']),
        node('Mul', ['z', 'd'], ['zd']),
        node('Add', ['n', 'zd'], ['hn']),
        node('MatMul', ['hn', 'wy'], ['y']),
    ]
    sizes = dict(wz=(320, 256), wn=(320, 256), wy=(256, 14))
    write(path, nodes, {'x': [1, 64], 'h': [1, 256]}, {'y': [1, 14], 'hn': [1, 256]}, **sizes)
    return ('x=tensor:x', 'h=state:hn')


def policy(path: Path) -> tuple[str, ...]:
    nodes = []
    for camera in ('top', 'wrist'):
        nodes += [
            node('Conv', [camera, f'{camera}_1'], [f'{camera}_a'], strides=[4, 4]),
            node('Relu', [f'{camera}_a'], [f'{camera}_b']),
            node('Conv', [f'{camera}_b', f'{camera}_2'], [f'{camera}_c'], strides=[2, 2]),
            node('GlobalAveragePool', [f'{camera}_c'], [f'{camera}_d']),
            node('Flatten', [f'{camera}_d'], [f'{camera}_e']),
        ]
    nodes += [
        node('Concat', ['top_e', 'wrist_e', 'joints'], ['all'], axis=1),
        node('MatMul', ['all', 'w'], ['actions']),
    ]
    images = [1, 3, 224, 224]
    write(
        path,
        nodes,
        {'top': images, 'wrist': images, 'joints': [1, 14]},
        {'actions': [1, 140]},
        top_1=(64, 3, 4, 4),
        top_2=(128, 64, 3, 3),
        wrist_1=(64, 3, 4, 4),
        wrist_2=(128, 64, 3, 3),
        w=(270, 140),
    )
    return ('top=image:top', 'wrist=image:wrist', 'joints=tensor:joints')


def difference(path: Path) -> tuple[str, ...]:
    shape = [1, 3, 640, 640]
    write(path, [node('Sub', ['a', 'b'], ['y'])], {'a': shape, 'b': shape}, {'y': shape})
    return ('*=tensor:tensors',)


def pool(path: Path) -> tuple[str, ...]:
    nodes = [
        node('MatMul', ['points', 'w'], ['wide']),
        node('Relu', ['wide'], ['features']),
        node('Mul', ['features', 'valid'], ['masked']),
        node('ReduceMax', ['masked'], ['y'], axes=[1], keepdims=0),
    ]
    inputs = {'points': [1, 'n', 32], 'valid': [1, 'n', 1]}
    write(path, nodes, inputs, {'y': [1, 256]}, w=(32, 256))
    return (f'points=tensor:points?capacity={CAPACITY}', 'valid=mask:points')


def measure_counts(path: Path, rounds: int) -> dict[str, Any]:
    """Measure whole runs of the network of points, by how many points they have."""
    inputs = pool(path)
    shapes = {'points': (1, CAPACITY, 32), 'valid': (1, CAPACITY, 1)}
    profile = tuple(ShapeRange(name, (1, 1, each[2]), each, each) for name, each in shapes.items())
    runner = open_tensor_runner(
        path, BuildOptions(precision='fp32', profiles=(profile,)), backend='tensorrt_rtx'
    )
    pipeline = GpuPipeline(runner, fit(runner, PipelineOptions(inputs=inputs), TENSORS))
    rng = np.random.default_rng(0)
    points = rng.normal(size=shapes['points']).astype(np.float32)
    counts = {
        'same count': lambda: CAPACITY,
        'another count per run': lambda: rng.integers(1, CAPACITY),
    }
    times: dict[str, list[float]] = {name: [] for name in counts}
    try:
        pipeline.warm_up()
        for _ in range(rounds + 10):  # In turn: load of the machine affects both.
            for name, count in counts.items():
                some = {'points': points[:, : count()]}
                start = time.perf_counter()
                pipeline(some)
                times[name].append((time.perf_counter() - start) * 1e3)
    finally:
        pipeline.close()
    found = {name: percentiles(each[10:]) for name, each in times.items()}
    return {'name': 'points', **found}


def measure_cpu(path: Path, rounds: int) -> dict[str, Any]:
    """Measure whole runs of the GRU on the CPU, and those of the session alone."""
    times: dict[str, list[float]] = {'session': [], 'pipeline': []}
    with Pipeline.open(
        path, backend='onnxruntime', families=TENSORS, inputs=gru(path), cpu_threads=1
    ) as pipeline:
        assert isinstance(pipeline, CpuPipeline) and isinstance(pipeline.runner, CheckedRunner)
        runner = pipeline.runner._runner
        assert runner is not None
        session, x = runner._session, np.zeros((1, 64), np.float32)
        h = np.zeros((1, 256), np.float32)
        for _ in range(rounds + 10):
            start = time.perf_counter()
            _, h = session.run(['y', 'hn'], {'x': x, 'h': h})
            middle = time.perf_counter()
            pipeline({'x': x})
            times['pipeline'].append((time.perf_counter() - middle) * 1e3)
            times['session'].append((middle - start) * 1e3)
    return {'name': 'cpu', **{name: percentiles(each[10:]) for name, each in times.items()}}


def torch_run(path: Path, feeds: Mapping[str, Feed], frame: Frame) -> Callable[[], object]:
    """Return a whole run by torch.compile, from arrays to arrays, in one CUDA graph."""
    import torch
    from torch_network import DEVICE, Graph, compiled, compiled_network, prepared

    network, steps, sources, states = compiled_network(path, 'fp32'), {}, {}, {}
    pixels = frame.data[: frame.nbytes].reshape(1, frame.height, frame.width, 3)
    given: list[np.ndarray] = []
    for name, feed in feeds.items():
        if isinstance(feed, ImageFeed):
            steps[name] = compiled(prepared(feed.preprocess, feed.preprocess.letterbox(frame.wh)))
            given.append(pixels)
        else:
            zeros = np.zeros(feed.spec.shape, np.float32)
            if isinstance(feed, StateFeed):
                states[name] = torch.from_numpy(zeros).to(DEVICE)
                continue
            given.append(zeros)
        sources[name] = torch.from_numpy(given[-1]).to(DEVICE)

    def work(*tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        named = zip(sources, tensors)
        inputs = {name: steps[name](each) if name in steps else each for name, each in named}
        found = network(**inputs, **states)
        for name, each in states.items():
            each.copy_(found.pop(feeds[name].output))
        return found

    graph = Graph(work, *sources.values())

    def run() -> dict[str, np.ndarray]:
        for target, each in zip(graph.inputs, given):
            target[:] = each
        return {name: each.copy() for name, each in graph.run().items()}

    return run


def call_times(run: Callable[[], object], rounds: int) -> list[float]:
    """Return the times of calls in ms, after ten others."""
    times = []
    for _ in range(rounds + 10):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times[10:]


def measure(name: str, path: Path, inputs: tuple[str, ...], rounds: int) -> dict[str, Any]:
    runner = open_tensor_runner(path, BuildOptions(precision='fp32'), backend='tensorrt_rtx')
    zeros = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in runner.inputs}
    without_graph = call_times(lambda: runner.infer(zeros), rounds)
    fitted = fit(runner, PipelineOptions(inputs=inputs), TENSORS)
    pipeline = GpuPipeline(runner, fitted)
    try:
        frame = Frame.from_pixels(np.zeros((480, 640, 3), np.uint8))
        work = Work.of(pipeline, frame if pipeline.shared.images else None)
        pipeline.warm_up()
        graph = graph_times(pipeline, work, rounds)
        inputs_of_run = measured_inputs(pipeline.feeds, frame)
        whole = call_times(lambda: pipeline(inputs_of_run), rounds)
    finally:
        pipeline.close()
    over = [wall - gpu for wall, gpu in zip(graph['wall'], graph['gpu'])]
    times = {
        'without a graph': without_graph,
        'GPU': graph['gpu'],
        'wall - GPU': over,
        'whole run': whole,
    }
    if find_spec('torch'):
        run = torch_run(path, fitted.feeds, frame)
        times['torch.compile'] = call_times(run, rounds)
    return {'name': name, **{each: percentiles(ms) for each, ms in times.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('--rounds', type=int, default=300)
    parser.add_argument('--json', type=Path)
    args = parser.parse_args()
    results = []
    columns = ['without a graph', 'GPU', 'wall - GPU', 'whole run']
    columns += ['torch.compile'] if find_spec('torch') else []
    print(f'{"us, p50 (p99)":14}' + ''.join(f'{column:>20}' for column in columns))
    with tempfile.TemporaryDirectory() as folder:
        for network in (gru, policy, difference):
            path = Path(folder) / f'{network.__name__}.onnx'
            inputs = network(path)
            found = measure(network.__name__, path, inputs, args.rounds)
            results.append(found)
            cells = [
                f'{found[key]["p50"] * 1e3:.1f} ({found[key]["p99"] * 1e3:.1f})' for key in columns
            ]
            print(f'{found["name"]:14}' + ''.join(f'{cell:>20}' for cell in cells), flush=True)
        found = measure_counts(Path(folder) / 'pool.onnx', args.rounds)
        on_cpu = measure_cpu(Path(folder) / 'gru.onnx', args.rounds)
    results += [found, on_cpu]
    for name in ('same count', 'another count per run'):
        p50, p99 = (found[name][key] * 1e3 for key in ('p50', 'p99'))
        print(f'points, {name}: {p50:.1f} ({p99:.1f}), p99 / p50 = {p99 / p50:.2f}', flush=True)
    alone, ours = (on_cpu[key]['p50'] * 1e3 for key in ('session', 'pipeline'))
    print(f'gru on the CPU: {ours:.1f}, session {alone:.1f}: {ours - alone:.1f} more')
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == '__main__':
    main()
