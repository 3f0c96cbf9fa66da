"""Bundles of a few small networks, written to files."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
from onnx import TensorProto
import yaml

from support.save_network import save_network
from trt_ros.demo import MODEL
from trt_ros.exporting.lerobot import add_meanings
from trt_ros.exporting.lerobot_networks import coefficients


def write_bundle(folder: Path, networks: Mapping[str, Mapping[str, Any]], **pipeline: Any) -> Path:
    """
    Write a bundle and its networks.

    :param networks: arguments of `save_network` by name, and `ports`, keys of an input or output.
    :param pipeline: the section of that name.
    """
    models = {}
    for name, arguments in networks.items():
        arguments = dict(arguments)
        ports = arguments.pop('ports', {})
        save_network(folder / f'{name}.onnx', **arguments)
        models[name] = {
            'parameters': {'model_path': f'{name}.onnx', 'backend': 'onnx'},
            **{
                mode: [
                    {'name': port, 'dtype': 'float32', 'shape': list(shape), **ports.get(port, {})}
                    for port, shape in arguments[mode].items()
                ]
                for mode in ('inputs', 'outputs')
            },
        }
    path = folder / 'bundle.yaml'
    path.write_text(yaml.safe_dump({'models': models, 'pipeline': pipeline}, sort_keys=False))
    return path


def sums(inputs: str, outputs: str) -> dict[str, Any]:
    """Return a network whose outputs are each the sum of its inputs."""
    names = inputs.split()
    return {
        'nodes': ' '.join(f'{each} = Sum({", ".join(names)})' for each in outputs.split()),
        'inputs': dict.fromkeys(names, (1,)),
        'outputs': dict.fromkeys(outputs.split(), (1,)),
    }


def two_sums(folder: Path) -> Path:
    """Write two networks with flow and feedback; runs on 1.0 give 1, 4, 12, 33, 88."""
    return write_bundle(
        folder,
        {'A': sums('ai1 ai2 ai3', 'ao1 ao2'), 'B': sums('bi1 bi2', 'bo1 bo2 bo3')},
        inputs={'A': ['ai1']},
        outputs={'B': ['bo1']},
        data_flow={'A/ao1': ['B/bi1']},
        feedback_flow={'A/ao2': ['A/ai2'], 'B/bo3': ['A/ai3'], 'B/bo2': ['B/bi2']},
    )


def prompted(folder: Path) -> Path:
    """Write a text encoder, a network of its output, and one of an image or the like."""
    return write_bundle(
        folder,
        {
            'text': sums('prompt k', 'token'),
            'more': sums('token', 'context'),
            'act': sums('context x', 'y'),
        },
        inputs={'text': ['prompt', 'k'], 'act': ['x']},
        outputs={'act': ['y']},
        data_flow={'text/token': ['more/token'], 'more/context': ['act/context']},
    )


#: Bindings of `prompted`.
HELD = ('prompt=tensor:prompt?held=true', 'k=constant:100')


def assert_held_networks_run_once(pipeline: Any, networks: Iterable[Any]) -> None:
    """Check that the networks of the prompt of `prompted` run again when it may have changed."""
    runs = []
    for each in networks:
        infer = each.infer
        each.infer = lambda inputs, infer=infer: (runs.append(set(inputs)), infer(inputs))[1]
    one, two, changeable = (np.full(1, value, np.float32) for value in (1, 2, 1))
    one.flags.writeable = two.flags.writeable = False
    x = np.ones(1, np.float32)
    for prompt, expected, count in (
        (one, 102, 3),
        (one, 102, 1),
        (two, 103, 3),
        (two, 103, 1),
        (changeable, 102, 3),
        (changeable, 102, 1),
        (changeable, 103, 3),
    ):
        changeable[:] = expected - 101
        runs.clear()
        found = pipeline({'prompt': prompt, 'x': x})
        assert (found['y'].item(), found['token'].item()) == (expected, expected - 1)
        assert len(runs) == count


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return random weights that keep the size of values; sums go over all but the first axis."""
    return (rng.normal(0, 1, shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def denoiser(
    folder: Path, steps: int = 5, *, side: int = 16, width: int = 32, actions: int = 4
) -> Path:
    """
    Write an encoder of pixels and a network that runs `steps` times on its own output.

    :param side: of the image in pixels; `width`: of the layers of the repeated network.
    """
    rng, nodes = np.random.default_rng(0), ''
    for i, last in enumerate(('seen', 'z0', 'z1', 'z2')):
        nodes += f'y{i} = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> ({last}, c{i}) '
        nodes += f'z{i} = Relu(y{i}) '
    encoder = {
        'nodes': nodes
        + 'pooled = GlobalAveragePool(z3) flat = Flatten(pooled) context = MatMul(flat, out)',
        'inputs': {'seen': (1, 3, side, side)},
        'outputs': {'context': (1, 256)},
        'constants': {
            **{f'c{i}': weights(rng, 32, 32 if i else 3, 3, 3) for i in range(4)},
            'out': weights(rng, 256, 32).T.copy(),
        },
    }
    step = {
        'nodes': """all = Concat <axis = 1> (x, context, t)
            a = MatMul(all, w0) b = Relu(a) c = MatMul(b, w1) d = Relu(c)
            slope = MatMul(d, w2) change = Mul(slope, dt) x_next = Add(x, change)""",
        'inputs': {'x': (1, actions), 'context': (1, 256), 't': (1, 1), 'dt': (1, 1)},
        'outputs': {'x_next': (1, actions)},
        'constants': {
            'w0': weights(rng, width, actions + 256 + 1).T.copy(),
            'w1': weights(rng, width, width).T.copy(),
            'w2': weights(rng, actions, width).T.copy(),
        },
        'ports': {'x': {'initial_noise': True}},
    }
    return write_bundle(
        folder,
        {'encoder': encoder, 'step': step},
        inputs={'encoder': ['seen'], 'step': ['x']},
        outputs={'step': ['x_next']},
        data_flow={'encoder/context': ['step/context']},
        loops=[
            {
                'models': ['step'],
                'steps': steps,
                'carry': {'step/x_next': 'step/x'},
                'values': {'step/t': 'counter', 'step/dt': [0.5 / (1 + i) for i in range(steps)]},
            }
        ],
    )


def write_enhanced(folder: Path, size: int = 320) -> Path:
    """Write a network that brightens images of `size`, and the demo's detector, as a bundle."""
    copyfile(MODEL, folder / 'detector.onnx')
    enlarged = (1, 3, 320, 320)
    path = write_bundle(
        folder,
        {
            'brighten': {
                'nodes': 'small = Mul(dark, gain) bright = Resize(small, , scales)',
                'inputs': {'dark': (1, 3, size, size)},
                'outputs': {'bright': enlarged},
                'constants': {
                    'gain': np.array(4, np.float32),
                    'scales': np.array([1, 1, 320 / size, 320 / size], np.float32),
                },
            }
        },
        inputs={'brighten': ['dark']},
        outputs={'detector': ['output0']},
        data_flow={'brighten/bright': ['detector/images']},
    )
    document = yaml.safe_load(path.read_text())
    document['models']['detector'] = {
        'inputs': [{'name': 'images', 'shape': list(enlarged)}],
        'outputs': [{'name': 'output0', 'shape': [1, 10, 2100]}],
        'parameters': {'model_path': 'detector.onnx'},
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def write_cascade(
    folder: Path,
    detector: Path = MODEL,
    *,
    batch: int | str = 'n',
    finds: str = 'classes',
    **options: Any,
) -> Path:
    """
    Write a detector, and a network that tells the color of its objects, as a bundle.

    :param batch: of the second network, for images of 24x32 pixels.
    :param finds: 'classes'; 'text', a line of one character; or 'landmarks', two corners.
    :param options: of the second network.
    """
    copyfile(detector, folder / 'detector.onnx')
    weights, shape, tail = {
        'classes': (8 * np.eye(3), (3,), 'classes = Softmax <axis = 1> (logits)'),
        'text': (
            8 * np.eye(3, 5, 1),
            (1, 5),
            'one = Softmax <axis = 1> (logits) text = Unsqueeze(one, axis)',
        ),
        'landmarks': (np.zeros((3, 4)), (4,), 'landmarks = Add(logits, corners)'),
    }[finds]
    constants = {
        'w': weights.astype(np.float32),
        'axis': np.array([1]),
        'corners': np.array([[0, 0, 1, 1]], np.float32),
    }
    nodes = 'pooled = GlobalAveragePool(images) flat = Flatten(pooled) logits = MatMul(flat, w) '
    nodes += tail
    save_network(
        folder / 'color.onnx',
        nodes,
        {'images': (batch, 3, 32, 24)},
        {finds: (batch, *shape)},
        constants={name: each for name, each in constants.items() if f', {name})' in nodes},
        metadata={'character': 'r\ng\nb'} if finds == 'text' else {},
    )
    options = {
        **({'labels': ['red', 'green', 'blue']} if finds == 'classes' else {}),
        'mean': [0.0, 0.0, 0.0],
        'std': [1.0, 1.0, 1.0],
        **options,
    }
    models = {
        'detector': {'parameters': {'model_path': 'detector.onnx'}},
        'color': {'parameters': {'model_path': 'color.onnx'}, 'options': options},
    }
    path = folder / 'cascade.yaml'
    document = {'models': models, 'pipeline': {'regions': {'detector': 'color'}}}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def diffusion_policy(folder: Path, scheduler: str = 'DDPM', steps: int = 6) -> Path:
    """Write a small diffusion policy as the exporter for LeRobot writes it: 3 actions per run."""
    rng = np.random.default_rng(0)
    timesteps = list(range(0, 10 * steps, 10))[::-1]
    alphas = np.linspace(0.99, 0.02, 10 * steps)
    numbers = coefficients(alphas, timesteps, 10, scheduler, 'epsilon')
    np.save(folder / 'numbers.npy', numbers)
    np.save(folder / 'steps.npy', rng.normal(0, 1, (steps, 1, 4)).astype(np.float32))
    is_random, draws = scheduler == 'DDPM', steps if scheduler == 'DDPM' else 1
    noises = {'noises': (draws - 1, 4, 3)} if is_random else {}
    encoder = {
        'nodes': """light = ReduceMean <axes = [3, 4], keepdims = 0> (camera)
            scaled = Mul(light, scale) seen = Concat <axis = 2> (scaled, state)
            row = Reshape(seen, flat) y = MatMul(row, w) condition = Tanh(y)
            start = Slice(noise, zero, one, zero)"""
        + ' noises = Slice(noise, one, end, zero)' * is_random,
        'inputs': {'camera': (1, 2, 3, 8, 10), 'state': (1, 2, 3), 'noise': (draws, 4, 3)},
        'outputs': {'condition': (1, 8), 'start': (1, 4, 3), **noises},
        'constants': {
            'scale': np.float32(1 / 255),
            'w': rng.normal(0, 1, (12, 8)).astype(np.float32),
            **{name: np.array([i]) for name, i in (('zero', 0), ('one', 1), ('end', draws))},
            'flat': np.array([1, 12]),
        },
        'ports': {'noise': {'initial_noise': True}},
    }
    denoiser = {
        'nodes': f"""row = Reshape(x, flat) all = Concat <axis = 1> (row, condition, step)
            product = MatMul(all, w) y = Reshape(product, square)
            a, b, c, d, e, f = Split <axis = 0> (numbers)
            ax = Mul(a, x) by = Mul(b, y) clean = Add(ax, by) x0 = Clip(clean, low, high)
            cx0 = Mul(c, x0) dx = Mul(d, x) ey = Mul(e, y)
            {'mean' if is_random else 'x_next'} = Sum(cx0, dx, ey)"""
        + ' z = Gather(noises, index) fz = Mul(f, z) x_next = Add(mean, fz)' * is_random,
        'inputs': {
            'x': (1, 4, 3),
            'condition': (1, 8),
            'step': (1, 4),
            'numbers': (6,),
            **noises,
            **({'index': [TensorProto.INT64, (1,)]} if is_random else {}),
        },
        'outputs': {'x_next': (1, 4, 3)},
        'constants': {
            'w': rng.normal(0, 0.3, (24, 12)).astype(np.float32),
            'low': np.float32(-1),
            'high': np.float32(1),
            'flat': np.array([1, 12]),
            'square': np.array([1, 4, 3]),
        },
        'ports': {'index': {'dtype': 'int64', 'shape': [1]}},
    }
    head = {
        'nodes': 'actions = Slice(x, one, end, one)',
        'inputs': {'x': (1, 4, 3)},
        'outputs': {'actions': (1, 3, 3)},
        'constants': {'one': np.array([1]), 'end': np.array([4])},
    }
    values = {'denoiser/step': 'steps.npy', 'denoiser/numbers': 'numbers.npy'}
    flow = {'encoder/condition': ['denoiser/condition'], 'encoder/start': ['denoiser/x']}
    if is_random:
        flow['encoder/noises'] = ['denoiser/noises']
        values['denoiser/index'] = [*range(steps - 1), 0]
    path = write_bundle(
        folder,
        {'encoder': encoder, 'denoiser': denoiser, 'head': head},
        inputs={'encoder': ['camera', 'state', 'noise']},
        outputs={'head': ['actions']},
        data_flow={**flow, 'denoiser/x_next': ['head/x']},
        loops=[
            {
                'models': ['denoiser'],
                'steps': steps,
                'carry': {'denoiser/x_next': 'denoiser/x'},
                'values': values,
            }
        ],
    )
    content = yaml.safe_load(path.read_text())
    add_meanings(content['models'], ['camera'], *[['hip', 'knee', 'ankle']] * 2, 2)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
