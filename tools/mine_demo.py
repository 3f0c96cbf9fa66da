"""
Average precision after training on images that `--select` chooses, and on random ones.

A first network is trained on some pictures. Of a pool of others, it chooses some, and as many are
drawn at random; a network is trained on the first pictures with either. Except for a part of the
pool, no picture but those that are evaluated has a shape of the rare class. It needs torch, and
takes minutes on a GPU:

    python tools/mine_demo.py --seeds 3
    python tools/mine_demo.py --seeds 3 --rare ''       # pictures as they are drawn
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import closing
import json
import multiprocessing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
from demo.scene import CLASSES, HELD_OUT, TRAINING, draw_scene
from evaluate_demo import evaluate
import numpy as np
import torch
from train_demo import Picture, Scene, draw_input, export, fit

from trt_ros.labelling.results import ImageHeader
from trt_ros.labelling.selection import Selection
from trt_ros.labelling.task import SelectionOptions
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

PICTURE_WH, PEAK_RATE = (320, 240), 2e-3


def draw(part: int, seed: int, index: int, rare: str) -> Picture:
    """
    Draw a picture of a part of the seeds, TRAINING or HELD_OUT.

    :param rare: class that it may not have; '' for none.
    """
    rng = np.random.default_rng([part, 7, seed, index])
    while True:
        picture = draw_scene(rng, PICTURE_WH)
        if not rare or CLASSES.index(rare) not in picture[2]:
            return picture


def draw_all(part: int, seed: int, rares: Sequence[str]) -> list[Picture]:
    """Draw pictures on all cores; see draw()."""
    with multiprocessing.get_context('fork').Pool() as pool:
        numbered = [(part, seed, index, rare) for index, rare in enumerate(rares)]
        return pool.starmap(draw, numbered, chunksize=16)


def trained(pictures: Sequence[Picture], args: Namespace, seed: int, path: Path) -> LabeledOptions:
    """Train a network, and return the options that open it."""
    size = (args.input, args.input)
    scene = Scene('Shapes', CLASSES, size, args.channels, True, pictures.__getitem__)
    drawn = [draw_input(scene, index) for index in range(len(pictures))]
    tensors: Any = tuple(torch.from_numpy(np.stack(each)) for each in zip(*drawn))
    network = fit(scene, tensors, lambda step: step / args.steps, args.batch, PEAK_RATE, seed)
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
    if not (folder / 'annotations.json').exists():
        raise SystemExit('The first network finds nothing: train it with more --steps.')
    entries = json.loads((folder / 'annotations.json').read_text())['images']
    return [int(Path(each['file_name']).stem.split('.')[0]) for each in entries]


def average_precision(options: LabeledOptions, pictures: Sequence[Picture]) -> float:
    """Return the mean AP50 of a network over pictures."""
    pipeline: Pipeline[Any] = Pipeline.open(options)
    with closing(pipeline):
        return float(np.nanmean(evaluate(pipeline, pictures, len(CLASSES))))


def training_pictures(seed: int, args: Namespace) -> list[Picture]:
    """Draw the first pictures and the pool."""
    with_rare = np.random.default_rng(seed).random(args.pool) < args.share
    rares = [args.rare] * args.first + ['' if each else args.rare for each in with_rare]
    return draw_all(TRAINING, seed, rares)


def compare(
    pictures: list[Picture], held_out: Sequence[Picture], seed: int, args: Namespace, folder: Path
) -> list[float]:
    """Return the average precisions of the first network, with random and with mined pictures."""
    first, pool = pictures[: args.first], pictures[args.first :]
    network = trained(first, args, seed, folder / 'first.onnx')
    found = [average_precision(network, held_out)]
    best = mined(network, pool, args.rule, args.budget, folder / 'selected')
    random = np.random.default_rng(seed).permutation(len(pool))[: len(best)].tolist()
    for chosen in (random, best):
        given = first + [pool[number] for number in chosen]
        labels = np.concatenate([each[2] for each in given])
        counts = dict(zip(CLASSES, np.bincount(labels, minlength=len(CLASSES)).tolist()))
        print(f'{len(given)} pictures with {counts}', flush=True)
        network = trained(given, args, seed, folder / 'next.onnx')
        found.append(average_precision(network, held_out))
    return found


def main() -> None:
    """Print the AP50 of each seed, and their means."""
    parser = ArgumentParser(
        description='Compare mined with random pictures.',
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add('--first', type=int, default=500, help='pictures of the first network')
    add('--pool', type=int, default=10_000, help='pictures to choose from')
    add('--budget', type=int, default=500, help='pictures that are chosen')
    add('--rule', default='uncertain', help='as of --select')
    add('--rare', default='star', help='rare class; empty for none')
    add('--share', type=float, default=0.05, help='part of the pool that may have the rare class')
    add('--steps', type=int, default=3000, help='steps of a training')
    add('--batch', type=int, default=64, help='pictures per step')
    add('--input', type=int, default=320, help='size of the network input')
    add('--channels', type=float, default=1.0, help='of the network, relative to shapes.onnx')
    add('--held-out', type=int, default=500, help='pictures to evaluate')
    add('--seeds', type=int, default=3, help='number of repetitions')
    args = parser.parse_args()
    cv2.setNumThreads(1)
    held_out = draw_all(HELD_OUT, 0, [''] * args.held_out)
    # Before CUDA starts, which no fork survives.
    pools = [training_pictures(seed, args) for seed in range(args.seeds)]
    rows = []
    for seed, pictures in enumerate(pools):
        with TemporaryDirectory() as folder:
            rows.append(compare(pictures, held_out, seed, args, Path(folder)))
        values = 'first {:.4f}  random {:.4f}  mined {:.4f}'.format(*rows[-1])
        print(f'seed {seed}: {values}', flush=True)
    means, deviations = np.mean(rows, 0), np.std(np.diff(rows)[:, 1])
    print('mean:   first {:.4f}  random {:.4f}  mined {:.4f}'.format(*means))
    print(f'mined - random: {means[2] - means[1]:+.4f}, deviation of the seeds {deviations:.4f}')


if __name__ == '__main__':
    main()
