"""Bundles of a few small networks, written to files."""

from collections.abc import Mapping
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
from onnx import helper
import yaml

from support.save_network import save_network
from trt_ros.demo.scene import MODEL

node = helper.make_node


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
        'nodes': [node('Sum', names, [output]) for output in outputs.split()],
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


def denoiser(folder: Path, steps: int = 5) -> Path:
    """Write an encoder and a network that runs `steps` times on its own output."""
    rng = np.random.default_rng(0)
    encoder = {
        'nodes': [node('MatMul', ['seen', 'w'], ['context'])],
        'inputs': {'seen': (1, 8)},
        'outputs': {'context': (1, 4)},
        'constants': {'w': rng.normal(0, 0.5, (8, 4)).astype(np.float32)},
    }
    step = {
        'nodes': [
            node('Concat', ['x', 'context', 't'], ['all'], axis=1),
            node('MatMul', ['all', 'w'], ['y']),
            node('Tanh', ['y'], ['slope']),
            node('Mul', ['slope', 'dt'], ['change']),
            node('Add', ['x', 'change'], ['x_next']),
        ],
        'inputs': {'x': (1, 4), 'context': (1, 4), 't': (1, 1), 'dt': (1, 1)},
        'outputs': {'x_next': (1, 4)},
        'constants': {'w': rng.normal(0, 0.5, (9, 4)).astype(np.float32)},
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


def write_cascade(
    folder: Path, detector: Path = MODEL, *, batch: int | str = 'n', **options: Any
) -> Path:
    """
    Write a detector, and a network that tells the color of its objects, as a bundle.

    :param batch: of the second network, for images of 24x32 pixels.
    :param options: of the second network.
    """
    copyfile(detector, folder / 'detector.onnx')
    save_network(
        folder / 'color.onnx',
        [
            node('GlobalAveragePool', ['images'], ['pooled']),
            node('Flatten', ['pooled'], ['flat']),
            node('MatMul', ['flat', 'w'], ['logits']),
            node('Softmax', ['logits'], ['scores'], axis=1),
        ],
        {'images': (batch, 3, 32, 24)},
        {'scores': (batch, 3)},
        constants={'w': (8 * np.eye(3)).astype(np.float32)},
    )
    options = {
        'labels': ['red', 'green', 'blue'],
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
