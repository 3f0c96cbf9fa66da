"""
Average precision after training on images that `--select` chooses, and on random ones.

A first network is trained on a few pictures. Of a pool of others, it chooses some, and as many are
drawn at random; a network is trained on the first pictures with either. It needs torch:

    python tools/mine_demo.py --pool 1000 --budget 100 --seeds 5
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import closing
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
from evaluate_demo import evaluate
import numpy as np
import torch
from train_demo import Picture, Scene, draw_input, export, fit

from trt_ros.demo.scene import CLASSES, HELD_OUT, TRAINING, draw_scene
from trt_ros.labelling.results import ImageHeader
from trt_ros.labelling.selection import Selection
from trt_ros.labelling.task import SelectionOptions
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

PICTURE_WH, INPUT_HW, CHANNELS, BATCH, PEAK_RATE = (320, 240), (128, 128), 0.25, 8, 3e-3


def draw(part: int, seed: int, count: int) -> list[Picture]:
    """Draw pictures of a part of the seeds, TRAINING or HELD_OUT."""
    return [
        draw_scene(np.random.default_rng([part, 7, seed, index]), PICTURE_WH)
        for index in range(count)
    ]


def trained(pictures: Sequence[Picture], steps: int, seed: int, path: Path) -> LabeledOptions:
    """Train a network, and return the options that open it."""
    scene = Scene('Shapes', CLASSES, INPUT_HW, CHANNELS, True, pictures.__getitem__)
    drawn = [draw_input(scene, index) for index in range(len(pictures))]
    tensors: Any = tuple(torch.from_numpy(np.stack(each)) for each in zip(*drawn))
    network = fit(scene, tensors, lambda step: step / steps, BATCH, PEAK_RATE, seed)
    export(scene, network, path)
    return LabeledOptions(model_path=str(path), backend='onnxruntime')


def mined(
    options: LabeledOptions, pool: Sequence[Picture], rule: str, budget: int, folder: Path
) -> list[int]:
    """Return the numbers of the pictures that --select chooses, as of images one second apart."""
    thresholds = Thresholds(score=0.1)
    pipeline: Pipeline[Any] = Pipeline.open(options)
    with closing(pipeline):
        selection = Selection(
            folder, pipeline, {}, SelectionOptions(rule, budget), options, thresholds
        )
        with closing(selection):
            for number, (image, _, _) in enumerate(pool):
                frame = Frame.from_pixels(image)
                header = ImageHeader((number, 0), '', (frame.width, frame.height))
                selection.write('pool', header, frame, pipeline.infer(frame, thresholds))
    entries = json.loads((folder / 'annotations.json').read_text())['images']
    return [int(Path(each['file_name']).stem.split('.')[0]) for each in entries]


def average_precision(options: LabeledOptions, pictures: Sequence[Picture]) -> float:
    """Return the mean AP50 of a network over pictures."""
    pipeline: Pipeline[Any] = Pipeline.open(options)
    with closing(pipeline):
        return float(np.nanmean(evaluate(pipeline, pictures, len(CLASSES))))


def compare(seed: int, args: Namespace, held_out: Sequence[Picture], folder: Path) -> list[float]:
    """Return the average precisions of the first network, with random and with mined pictures."""
    pool = draw(TRAINING, seed, args.first + args.pool)
    first, pool = pool[: args.first], pool[args.first :]
    network = trained(first, args.steps, seed, folder / 'first.onnx')
    found = [average_precision(network, held_out)]
    best = mined(network, pool, args.rule, args.budget, folder / 'selected')
    random = np.random.default_rng(seed).permutation(len(pool))[: len(best)].tolist()
    for chosen in (random, best):
        pictures = first + [pool[number] for number in chosen]
        objects = sum(len(labels) for *_, labels in pictures)
        print(f'{len(pictures)} pictures with {objects} objects', flush=True)
        network = trained(pictures, args.steps, seed, folder / 'next.onnx')
        found.append(average_precision(network, held_out))
    return found


def main() -> None:
    """Print the AP50 of each seed, and their means."""
    parser = ArgumentParser(
        description='Compare mined with random pictures.',
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument('--first', type=int, default=50, help='pictures of the first network')
    parser.add_argument('--pool', type=int, default=1000, help='pictures to choose from')
    parser.add_argument('--budget', type=int, default=100, help='pictures that are chosen')
    parser.add_argument('--rule', default='uncertain', help='as of --select')
    parser.add_argument('--steps', type=int, default=600, help='steps of a training')
    parser.add_argument('--seeds', type=int, default=3, help='number of repetitions')
    args = parser.parse_args()
    cv2.setNumThreads(1)
    held_out = draw(HELD_OUT, 0, 400)
    rows = []
    for seed in range(args.seeds):
        with TemporaryDirectory() as folder:
            rows.append(compare(seed, args, held_out, Path(folder)))
        print('seed {}: first {:.4f}  random {:.4f}  mined {:.4f}'.format(seed, *rows[-1]))
    means, deviations = np.mean(rows, 0), np.std(np.diff(rows)[:, 1])
    print('mean:   first {:.4f}  random {:.4f}  mined {:.4f}'.format(*means))
    print(f'mined - random: {means[2] - means[1]:+.4f}, deviation of the seeds {deviations:.4f}')


if __name__ == '__main__':
    main()
