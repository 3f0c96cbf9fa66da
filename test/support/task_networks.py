"""Networks of a few ONNX nodes, one of each task."""

from pathlib import Path

import numpy as np

from support.save_network import save_network, save_texts

SIZE = 32
IMAGE = {'images': (1, 3, SIZE, SIZE)}
TEXTS = {
    'classifier': '(float[1, 3, 32, 32] images) => (float[1, 3] scores) '
    '{ pooled = GlobalAveragePool(images) scores = Flatten(pooled) }',
    'semantic': '(float[1, 3, 32, 32] images) => (float[1, 3, 32, 32] scores) '
    '{ scores = Identity(images) }',
    'depth': '(float[1, 3, 32, 32] images) => (float[1, 1, 32, 32] depth) '
    '{ depth = ReduceMax <axes = [1]> (images) }',
    'sum': '(float[2, 3] a, float[2, 3] b) => (float[2, 3] sum) { sum = Add(a, b) }',
}


def always(name: str, values: np.ndarray) -> tuple[str, dict[str, np.ndarray]]:
    """Return nodes and constants of an output that is the same for every image."""
    return (
        f'{name}_mean = ReduceMean <keepdims = 0> (images) '
        f'{name}_nothing = Mul({name}_mean, {name}_zero) '
        f'{name} = Add({name}_values, {name}_nothing) ',
        {f'{name}_values': values, f'{name}_zero': np.zeros((), np.float32)},
    )


def save_task_networks(folder: Path) -> dict[str, str]:
    """Write a network of each task into a folder; return their paths."""
    boxes = np.zeros((1, 4 + 2 + 1, 21), np.float32)
    boxes[0, :, 0] = 8, 16, 16, 16, 0.9, 0, 1  # Columns 0 to 16, rows 8 to 24, of class 0.
    boxes[0, :, 1] = 24, 16, 16, 16, 0, 0.8, 1  # Columns 16 to 32, of class 1.
    prototypes = np.full((1, 1, 8, 8), 9, np.float32)
    prototypes[0, 0, :4] = -9  # Only the lower half of each box is masked.
    box_nodes, box_constants = always('output0', boxes)
    mask_nodes, mask_constants = always('output1', prototypes)
    pose = np.zeros((1, 4 + 1 + 6, 21), np.float32)
    pose[0, :, 0] = 16, 16, 16, 16, 0.9, 4, 8, 0.75, 12, 20, 0.25
    pose_nodes, pose_constants = always('output0', pose)
    return {
        **save_texts(folder, TEXTS),
        'instances': save_network(
            folder / 'instances.onnx',
            box_nodes + mask_nodes,
            IMAGE,
            {'output0': boxes.shape, 'output1': prototypes.shape},
            constants={**box_constants, **mask_constants},
            metadata={'task': 'segment', 'names': "{0: 'left', 1: 'right'}"},
        ),
        'pose': save_network(
            folder / 'pose.onnx',
            pose_nodes,
            IMAGE,
            {'output0': pose.shape},
            constants=pose_constants,
            metadata={'task': 'pose', 'kpt_shape': '[2, 3]', 'names': "{0: 'person'}"},
        ),
    }
