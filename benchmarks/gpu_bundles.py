"""
Time bundles on a GPU: one captured graph of all networks beside other ways to run the same.

First, an encoder of four convolutions on 96 x 96 pixels and ten steps of a denoiser of three
layers of 1024: the bundle as one graph; its networks as pipelines that are waited for, 11 per run;
the same without graphs; a graph of torch, where torch is installed, with and without
torch.compile; and ONNX Runtime on the CPU. All in turn, in one process.

Then each bundle by itself: this one, the two networks of Isaac ROS's test, a chain of the sizes of
EdgeTAM with a memory of seven frames, and the files given, such as policies of LEAPP; where torch
is installed, each of their networks compiled by it, too, all in one CUDA graph.

    python benchmarks/gpu_bundles.py [BUNDLE.yaml ..] [--rounds N]
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
import statistics
import sys
from tempfile import TemporaryDirectory
import time
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'test'))

from support.bundles import denoiser, two_sums, weights, write_bundle
from trt_ros import Pipeline
from trt_ros.model.leapp import read_bundle
from trt_ros.model.run_inputs import measured_inputs
from trt_ros.runtime.gpu.measure import Work, graph_times, stage_times
from trt_ros.runtime.gpu.open import open_tensor_runner

STEPS, ACTIONS = 10, 64
GPU = {'backend': 'tensorrt_rtx', 'gpu_wait': 'spin'}
#: Of EdgeTAM: tokens of a frame of 1024 x 1024, their width; tokens and width of its memory.
TOKENS, WIDTH, REMEMBERED, FRAMES = 64 * 64, 256, 512, 7
node = helper.make_node


def edge_tam(folder: Path) -> Path:
    """Write a chain of the sizes of EdgeTAM: an encoder, memory attention, masks, and a memory."""
    rng = np.random.default_rng(0)
    widths = (3, 48, 96, 192, WIDTH)
    nodes, last = [], 'image'
    constants: dict[str, np.ndarray] = {}
    for i, (before, after) in enumerate(pairwise(widths)):
        constants |= {f'c{i}': weights(rng, after, before, 3, 3)}
        constants |= {f'd{i}': weights(rng, after, after, 3, 3)}
        for kind, stride in (('c', 2), ('d', 1)):
            given, name = [last, f'{kind}{i}'], f'{kind}y{i}'
            last = f'{kind}z{i}'
            nodes.append(node('Conv', given, [name], strides=[stride] * 2, pads=[1] * 4))
            nodes.append(node('Relu', [name], [last]))
    rows = {'rows': np.array([1, WIDTH, TOKENS])}
    nodes += [
        node('Reshape', [last, 'rows'], ['planes']),
        node('Transpose', ['planes'], ['tokens'], perm=[0, 2, 1]),
    ]
    encoder = {
        'nodes': nodes,
        'inputs': {'image': (1, 3, 1024, 1024)},
        'outputs': {'tokens': (1, TOKENS, WIDTH)},
        'constants': {**constants, **rows},
    }
    square = {name: weights(rng, WIDTH, WIDTH) for name in ('q', 'k', 'v', 'up', 'down')}
    attend = [
        node('Reshape', ['ring', 'flat'], ['remembered']),
        node('MatMul', ['tokens', 'q'], ['queries']),
        node('MatMul', ['remembered', 'k'], ['keys']),
        node('MatMul', ['remembered', 'v'], ['values']),
        node('Transpose', ['keys'], ['turned'], perm=[0, 2, 1]),
        node('MatMul', ['queries', 'turned'], ['scores']),
        node('Softmax', ['scores'], ['odds'], axis=2),
        node('MatMul', ['odds', 'values'], ['seen']),
        node('Add', ['tokens', 'seen'], ['sum']),
        node('MatMul', ['sum', 'up'], ['hidden']),
        node('Relu', ['hidden'], ['active']),
        node('MatMul', ['active', 'down'], ['change']),
        node('Add', ['sum', 'change'], ['features']),
    ]
    ring = (1, FRAMES, REMEMBERED, WIDTH)
    memory = {
        'nodes': attend,
        'inputs': {'tokens': (1, TOKENS, WIDTH), 'ring': ring},
        'outputs': {'features': (1, TOKENS, WIDTH)},
        'constants': {**square, 'flat': np.array([1, FRAMES * REMEMBERED, WIDTH])},
    }
    mask = {
        'nodes': [node('MatMul', ['features', 'm'], ['logits'])],
        'inputs': {'features': (1, TOKENS, WIDTH)},
        'outputs': {'logits': (1, TOKENS, 16)},  # 256 x 256 in blocks.
        'constants': {'m': weights(rng, 16, WIDTH).T.copy()},
    }
    remember = {
        'nodes': [
            node('Transpose', ['features'], ['planes'], perm=[0, 2, 1]),
            node('MatMul', ['planes', 'r'], ['latents']),
            node('Transpose', ['latents'], ['rows'], perm=[0, 2, 1]),
            node('Unsqueeze', ['rows', 'one'], ['newest']),
            node('Slice', ['ring', 'one', 'end', 'one'], ['older']),
            node('Concat', ['older', 'newest'], ['ring_next'], axis=1),
        ],
        'inputs': {'features': (1, TOKENS, WIDTH), 'ring': ring},
        'outputs': {'ring_next': ring},
        'constants': {
            'r': weights(rng, REMEMBERED, TOKENS).T.copy(),
            'one': np.array([1]),
            'end': np.array([FRAMES]),
        },
    }
    return write_bundle(
        folder,
        {'encoder': encoder, 'memory': memory, 'mask': mask, 'remember': remember},
        inputs={'encoder': ['image']},
        outputs={'mask': ['logits']},
        data_flow={
            'encoder/tokens': ['memory/tokens'],
            'memory/features': ['mask/features', 'remember/features'],
        },
        feedback_flow={'remember/ring_next': ['memory/ring', 'remember/ring']},
    )


def torch_graph(folder: Path, *, is_compiled: bool) -> Callable[..., np.ndarray]:
    """Return the denoiser as a CUDA graph of torch, from arrays to an array."""
    import torch
    from torch.nn import functional

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    encoder, step = (
        {
            each.name: torch.from_numpy(numpy_helper.to_array(each).copy()).cuda()
            for each in onnx.load(folder / f'{name}.onnx').graph.initializer
        }
        for name in ('encoder', 'step')
    )
    seen, x = torch.zeros(1, 3, 96, 96).cuda(), torch.zeros(1, ACTIONS).cuda()
    host = [torch.zeros(each.shape).pin_memory() for each in (seen, x, x)]
    times = [torch.full((1, 1), float(i)).cuda() for i in range(STEPS)]

    def denoise(seen: Any, x: Any) -> Any:
        y = seen
        for i in range(4):
            y = functional.relu(functional.conv2d(y, encoder[f'c{i}'], stride=2, padding=1))
        context = y.mean((2, 3)) @ encoder['out']
        now = x
        for i, t in enumerate(times):
            hidden = functional.relu(torch.cat([now, context, t], 1) @ step['w0'])
            now = now + 0.5 / (1 + i) * (functional.relu(hidden @ step['w1']) @ step['w2'])
        return now

    work = torch.compile(denoise, dynamic=False, fullgraph=True) if is_compiled else denoise

    def run() -> None:
        seen.copy_(host[0], non_blocking=True)
        x.copy_(host[1], non_blocking=True)
        host[2].copy_(work(seen, x), non_blocking=True)

    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            run()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            run()

    def call(inputs: dict[str, np.ndarray]) -> np.ndarray:
        host[0].numpy()[:] = inputs['seen']
        host[1].numpy()[:] = inputs['x']
        with torch.cuda.stream(stream):
            graph.replay()
        stream.synchronize()
        return host[2].numpy()

    return call


def torch_networks(path: Path) -> Callable[[], dict[str, np.ndarray]]:
    """Return a run of a bundle in one CUDA graph of torch, its networks compiled; inputs are 0."""
    import torch
    from torch_network import DEVICE, Graph, compiled_network

    bundle = read_bundle(path)
    networks = {
        name: compiled_network(each.path, 'fp32') for name, each in bundle.networks.items()
    }
    free, states = {}, {}
    for key, port in bundle.ports('input').items():
        if key not in bundle.flow and not any(key in each.values for each in bundle.groups):
            kept = states if key in bundle.feedback else free
            kept[key] = torch.zeros(port.spec.shape, device=DEVICE)
    constants = {
        key: [torch.from_numpy(np.array(each)).to(DEVICE) for each in steps]
        for group in bundle.groups
        for key, steps in group.values.items()
    }

    def work(*given: torch.Tensor) -> dict[str, torch.Tensor]:
        values = {**states, **dict(zip(free, given))}
        for group in bundle.groups:
            for step in range(group.steps):
                carried = {key: values[each] for key, each in group.carry.items() if step}
                carried |= {
                    key: each[step] for key, each in constants.items() if key in group.values
                }
                for name in group.networks:
                    inputs = {
                        port: carried.get(key, values.get(bundle.flow.get(key, key)))
                        for port in bundle.networks[name].inputs
                        for key in (f'{name}/{port}',)
                    }
                    found = networks[name](**inputs)
                    values |= {f'{name}/{port}': each for port, each in found.items()}
        for key, output in bundle.feedback.items():
            states[key].copy_(values[output])
        return {name: values[name] for name in bundle.chosen}

    graph, zeros = (
        Graph(work, *free.values()),
        [np.zeros(each.shape, 'f4') for each in free.values()],
    )

    def run() -> dict[str, np.ndarray]:
        for target, each in zip(graph.inputs, zeros):
            target[:] = each
        return {name: each.copy() for name, each in graph.run().items()}

    return run


def in_turn(
    ways: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]],
    inputs: dict[str, np.ndarray],
    rounds: int,
) -> dict[str, list[float]]:
    """Return the times in us of each way, which compute the same."""
    wanted = ways['bundle in ONNX Runtime'](inputs)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for name, run in ways.items():
        error = float(np.abs(run(inputs) - wanted).max())
        print(f'{name}: largest difference to ONNX Runtime {error:.2g}')
    for number in range(rounds + 50):
        for name, run in ways.items():
            begin = time.perf_counter()
            run(inputs)
            if number >= 50:
                times[name].append(1e6 * (time.perf_counter() - begin))
    return times


def compare(path: Path, rounds: int) -> None:
    """Print a table of the denoiser in several ways."""
    rng = np.random.default_rng(0)
    inputs = {
        'seen': rng.normal(0, 1, (1, 3, 96, 96)).astype(np.float32),
        'x': rng.normal(0, 1, (1, ACTIONS)).astype(np.float32),
    }
    with ExitStack() as stack:
        given = {'inputs': ['x=tensor:x']}
        bundle = stack.enter_context(Pipeline.open(str(path), **given, **GPU))
        files = {name: str(path.parent / f'{name}.onnx') for name in ('encoder', 'step')}
        alone = {'inputs': ['*=tensor:tensors'], 'decoder': 'tensor'}
        parts = {
            name: stack.enter_context(Pipeline.open(file, **alone, **GPU))
            for name, file in files.items()
        }
        raw = {name: open_tensor_runner(file, gpu_wait='spin') for name, file in files.items()}
        for each in raw.values():
            stack.callback(each.close)
        cpu = stack.enter_context(Pipeline.open(str(path), backend='onnxruntime', **given))

        def waited(inputs: dict[str, np.ndarray], run: Callable = lambda n, i: parts[n](i)):
            context = np.array(run('encoder', {'seen': inputs['seen']})['context'])
            x = inputs['x']
            for i in range(STEPS):
                now = {'t': np.full((1, 1), i, 'f4'), 'dt': np.full((1, 1), 0.5 / (1 + i), 'f4')}
                x = np.array(run('step', {'x': x, 'context': context, **now})['x_next'])
            return x

        ways: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]] = {
            'bundle, one graph': lambda inputs: bundle(inputs)['x_next'],
            '11 pipelines, each waited for': waited,
            '11 runs without graphs': lambda inputs: waited(inputs, lambda n, i: raw[n].infer(i)),
            'bundle in ONNX Runtime': lambda inputs: cpu(inputs)['x_next'],
        }
        if find_spec('torch'):
            ways["torch's graph"] = torch_graph(path.parent, is_compiled=False)
            ways['torch.compile in that graph'] = torch_graph(path.parent, is_compiled=True)
        times = in_turn(ways, inputs, rounds)
        print('\n'.join(bundle.log_lines))
        for name, each in stage_times(bundle, Work.of(bundle, None), 200).items():
            print(f'{name}: {1e3 * statistics.median(each):.1f} us on the GPU')
    print('| run | p50 us | p99 us |\n|---|---|---|')
    for name, each in times.items():
        print(f'| {name} | {np.percentile(each, 50):.0f} | {np.percentile(each, 99):.0f} |')


def call_us(run: Callable[[], object], rounds: int) -> float:
    """Return the median time of a call in us."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - begin))
    return statistics.median(times)


def times_of(path: Path, rounds: int) -> Iterator[float]:
    """Yield medians in us: the graph, wall over that, a call, with torch, and on the CPU."""
    calls = []
    for options in (GPU, {'backend': 'onnxruntime'}):
        with Pipeline.open(str(path), **options) as pipeline:
            if options is GPU:
                found = graph_times(pipeline, Work.of(pipeline, None), rounds)
                yield 1e3 * statistics.median(found['gpu'])
                yield 1e3 * statistics.median(np.subtract(found['wall'], found['gpu']))
            given = measured_inputs(pipeline.feeds, None)
            run = partial(pipeline, given)
            calls.append(call_us(run, 20 if path.parent.name == 'EdgeTAM' else rounds))
    yield calls[0]
    if find_spec('torch'):
        yield call_us(torch_networks(path), rounds)
    yield calls[1]


def main() -> None:
    """Measure and print tables in Markdown."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('bundles', nargs='*', type=Path, metavar='BUNDLE.yaml')
    parser.add_argument('--rounds', type=int, default=1000)
    args = parser.parse_args()
    with TemporaryDirectory() as name:
        folders = {each: Path(name) / each for each in ('denoiser', 'Isaac', 'EdgeTAM')}
        for folder in folders.values():
            folder.mkdir()
        path = denoiser(folders['denoiser'], STEPS, side=96, width=1024, actions=ACTIONS)
        compare(path, args.rounds)
        theirs = ['torch.compile us'] if find_spec('torch') else []
        columns = ['bundle', 'GPU us', 'wall - GPU us', 'call us', *theirs, 'ONNX Runtime us']
        print(f'\n| {" | ".join(columns)} |', '|---' * len(columns) + '|', sep='\n')
        paths = [path, two_sums(folders['Isaac']), edge_tam(folders['EdgeTAM']), *args.bundles]
        for each in paths:
            cells = ' | '.join(f'{value:.0f}' for value in times_of(each, args.rounds))
            print(f'| {each.parent.name} | {cells} |', flush=True)


if __name__ == '__main__':
    main()
