"""
Time bundles on a GPU: one captured graph of all networks beside other ways to run the same.

An encoder of four convolutions on 96 x 96 pixels and ten steps of a denoiser of three layers of
1024: the bundle as one graph; its networks as pipelines that are waited for, 11 per run; the same
without graphs; a graph of torch; and ONNX Runtime on the CPU. All in turn, in one process.

    python benchmarks/gpu_bundles.py [--rounds N]
"""

from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
import statistics
import sys
from tempfile import TemporaryDirectory
import time

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'test'))

from onnx import helper

from support.bundles import write_bundle
from trt_ros import Pipeline
from trt_ros.runtime.gpu.open import open_tensor_runner

STEPS, WIDTH, ACTIONS = 10, 1024, 64
node = helper.make_node
rng = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    """Return random weights that keep the size of values."""
    return (rng.normal(0, 1, shape) / np.sqrt(np.prod(shape[1:] or shape))).astype(np.float32)


def write(folder: Path) -> tuple[Path, dict[str, dict[str, np.ndarray]]]:
    """Write the bundle; return its path and the weights of its networks."""
    convolutions = {f'c{i}': weights(32, 32 if i else 3, 3, 3) for i in range(4)}
    nodes, last = [], 'seen'
    for i in range(4):
        nodes += [
            node('Conv', [last, f'c{i}'], [f'y{i}'], strides=[2, 2], pads=[1, 1, 1, 1]),
            node('Relu', [f'y{i}'], [f'z{i}']),
        ]
        last = f'z{i}'
    nodes += [node('GlobalAveragePool', [last], ['pooled']), node('Flatten', ['pooled'], ['flat'])]
    nodes += [node('MatMul', ['flat', 'out'], ['context'])]
    encoder = {
        'nodes': nodes,
        'inputs': {'seen': (1, 3, 96, 96)},
        'outputs': {'context': (1, 256)},
        'constants': {**convolutions, 'out': weights(256, 32).T.copy()},
    }
    layers = {
        'w0': weights(WIDTH, ACTIONS + 256 + 1).T.copy(),
        'w1': weights(WIDTH, WIDTH).T.copy(),
        'w2': weights(ACTIONS, WIDTH).T.copy(),
        'scale': np.array(0.1, np.float32),
    }
    step = {
        'nodes': [
            node('Concat', ['x', 'context', 't'], ['all'], axis=1),
            node('MatMul', ['all', 'w0'], ['a']),
            node('Relu', ['a'], ['b']),
            node('MatMul', ['b', 'w1'], ['c']),
            node('Relu', ['c'], ['d']),
            node('MatMul', ['d', 'w2'], ['slope']),
            node('Mul', ['slope', 'scale'], ['change']),
            node('Add', ['x', 'change'], ['x_next']),
        ],
        'inputs': {'x': (1, ACTIONS), 'context': (1, 256), 't': (1, 1)},
        'outputs': {'x_next': (1, ACTIONS)},
        'constants': layers,
    }
    path = write_bundle(
        folder,
        {'encoder': encoder, 'step': step},
        inputs={'encoder': ['seen'], 'step': ['x']},
        outputs={'step': ['x_next']},
        data_flow={'encoder/context': ['step/context']},
        loops=[
            {
                'models': ['step'],
                'steps': STEPS,
                'carry': {'step/x_next': 'step/x'},
                'values': {'step/t': 'counter'},
            }
        ],
    )
    return path, {'encoder': encoder['constants'], 'step': layers}


def torch_graph(arrays: dict[str, dict[str, np.ndarray]]) -> Callable[..., np.ndarray]:
    """Return the same computation as a CUDA graph of torch, from arrays to an array."""
    import torch
    from torch.nn import functional

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    on_gpu = {
        name: {key: torch.from_numpy(value).cuda() for key, value in each.items()}
        for name, each in arrays.items()
    }
    encoder, step = on_gpu['encoder'], on_gpu['step']
    seen, x = torch.zeros(1, 3, 96, 96).cuda(), torch.zeros(1, ACTIONS).cuda()
    host = [torch.zeros(each.shape).pin_memory() for each in (seen, x, x)]
    times = [torch.full((1, 1), float(i)).cuda() for i in range(STEPS)]

    def run() -> None:
        seen.copy_(host[0], non_blocking=True)
        x.copy_(host[1], non_blocking=True)
        y = seen
        for i in range(4):
            y = functional.relu(functional.conv2d(y, encoder[f'c{i}'], stride=2, padding=1))
        context = y.mean((2, 3)) @ encoder['out']
        now = x
        for t in times:
            hidden = functional.relu(torch.cat([now, context, t], 1) @ step['w0'])
            now = now + 0.1 * (functional.relu(hidden @ step['w1']) @ step['w2'])
        host[2].copy_(now, non_blocking=True)

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


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('--rounds', type=int, default=1000)
    rounds = parser.parse_args().rounds
    inputs = {
        'seen': rng.normal(0, 1, (1, 3, 96, 96)).astype(np.float32),
        'x': rng.normal(0, 1, (1, ACTIONS)).astype(np.float32),
    }
    with TemporaryDirectory() as folder, ExitStack() as stack:
        path, arrays = write(Path(folder))
        options = {'backend': 'tensorrt_rtx', 'gpu_wait': 'spin'}
        bundle = stack.enter_context(Pipeline.open(str(path), **options))
        parts = {
            name: stack.enter_context(
                Pipeline.open(
                    str(path.parent / f'{name}.onnx'),
                    inputs=['*=tensor:tensors'],
                    decoder='tensor',
                    **options,
                )
            )
            for name in ('encoder', 'step')
        }
        raw = {}
        for name in parts:
            raw[name] = open_tensor_runner(str(path.parent / f'{name}.onnx'), gpu_wait='spin')
            stack.callback(raw[name].close)
        cpu = stack.enter_context(Pipeline.open(str(path), backend='onnxruntime'))

        def waited(inputs: dict[str, np.ndarray], run: Callable = lambda n, i: parts[n](i)):
            context = np.array(run('encoder', {'seen': inputs['seen']})['context'])
            x = inputs['x']
            for i in range(STEPS):
                t = np.full((1, 1), i, np.float32)
                x = np.array(run('step', {'x': x, 'context': context, 't': t})['x_next'])
            return x

        ways: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]] = {
            'bundle, one graph': lambda inputs: bundle(inputs)['x_next'],
            '11 pipelines, each waited for': waited,
            '11 runs without graphs': lambda inputs: waited(inputs, lambda n, i: raw[n].infer(i)),
            "torch's graph": torch_graph(arrays),
            'bundle in ONNX Runtime': lambda inputs: cpu(inputs)['x_next'],
        }
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
        print('\n'.join(bundle.log_lines))
        from trt_ros.runtime.gpu.measure import Work, stage_times

        stages = stage_times(bundle, Work.of(bundle, None), 200)
        for name, each in stages.items():
            print(f'{name}: {1e3 * statistics.median(each):.1f} us on the GPU')
    print('| run | p50 us | p99 us |\n|---|---|---|')
    for name, each in times.items():
        each.sort()
        print(f'| {name} | {each[len(each) // 2]:.0f} | {each[len(each) * 99 // 100]:.0f} |')


if __name__ == '__main__':
    main()
