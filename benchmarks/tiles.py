"""
Time tiles of a 4K image on a GPU: beside a plain batch of as many images, and beside SAHI.

The demo's detector with a dynamic batch size, or --model. SAHI slices the same image with the same
sizes, runs the same pipeline on slice after slice, and merges with NMS; without the wheel
(pip install --no-deps sahi shapely pillow), its row is missing. Where ultralytics is installed
(with torch), its model class of SAHI runs the same ONNX file, too: by ONNX Runtime, on the GPU if
that is onnxruntime-gpu. Where torch is installed, a CUDA graph of torch.compile cuts the tiles,
runs them as one batch and selects the boxes.

    python benchmarks/tiles.py [--model FILE] [--tiles 4x2] [--rounds N]
"""

from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
import sys
from tempfile import TemporaryDirectory
import time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'test'))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'tools'))

from support.sahi_model import sliced, sliced_by
from support.tiled import mosaic, with_batch
from trt_ros import Pipeline, Thresholds
from trt_ros.demo import MODEL

ASKED = Thresholds(0.3, 0.5, max_detections=300)


def own_model(path: Path) -> Any:
    """Return SAHI's model of ultralytics for an ONNX file."""
    from sahi import AutoDetectionModel
    import torch

    return AutoDetectionModel.from_pretrained(
        'ultralytics',
        model_path=str(path),
        confidence_threshold=ASKED.score,
        device='cuda:0' if torch.cuda.is_available() else 'cpu',
    )


def provider(model: Any) -> str:
    """Return what runs the network of SAHI's model."""
    model.perform_inference(np.zeros((320, 320, 3), np.uint8))
    name: str = model.model.predictor.model.session.get_providers()[0]
    return name


def torch_graph(path: Path, tiles: Any, image: np.ndarray) -> Callable[[], dict[str, np.ndarray]]:
    """Return the tiles of an image as a CUDA graph of torch.compile, for a YOLOv8."""
    import torch
    from torch_network import (
        DEVICE,
        Graph,
        best_boxes,
        boxes_of,
        compiled,
        compiled_network,
        prepared,
    )

    box, origins = tiles.places(image.shape[1::-1])
    (width, height), prepare = box.image_wh, prepared(tiles.preprocess, box)
    places = origins.tolist()
    shifts = torch.from_numpy(np.tile(origins, 2)).to(DEVICE, torch.float32)[:, None]

    def cut(image: torch.Tensor) -> torch.Tensor:
        parts = [image[y : y + height, x : x + width] for x, y in places]
        return prepare(torch.stack(parts))

    def select(head: torch.Tensor) -> dict[str, torch.Tensor]:
        corners, scores, labels = boxes_of(head, box)
        found = (each.flatten(0, 1) for each in (corners + shifts, scores, labels))
        return best_boxes(*found, ASKED, candidates=2048, count=ASKED.max_detections)

    cut, select, network = compiled(cut), compiled(select), compiled_network(path, 'fp32')

    def work(image: torch.Tensor) -> dict[str, torch.Tensor]:
        (head,) = network(cut(image)).values()
        return select(head)

    graph = Graph(work, torch.zeros(image.shape, dtype=torch.uint8, device=DEVICE))

    def run() -> dict[str, np.ndarray]:
        graph.inputs[0][:] = image
        return graph.run()

    return run


def main() -> None:
    """Measure in turn, in one process, and print a table in Markdown."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('--model', type=Path)
    parser.add_argument('--tiles', default='4x2')
    parser.add_argument('--backend', default='auto')
    parser.add_argument('--rounds', type=int, default=300)
    args = parser.parse_args()
    image = mosaic(1)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        path = args.model or with_batch(Path(folder) / 'shapes.onnx', 'n')
        options = {'backend': args.backend, 'gpu_wait': 'spin'}
        tiled = stack.enter_context(Pipeline.open(path, tiles=args.tiles, **options))
        (feed,) = tiled.feeds.values()
        (placement, _), count = feed.tiles.places(image.shape[1::-1]), feed.tiles.count
        width, height = placement.image_wh
        batch = stack.enter_context(Pipeline.open(path, batch=count, **options))
        one = stack.enter_context(Pipeline.open(path, **options))
        images = [np.ascontiguousarray(image[:height, :width])] * count
        ways: dict[str, Callable[[], Any]] = {
            f'{args.tiles} tiles of {width} x {height}': lambda: tiled(image, ASKED),
            f'batch of {count} images of that size': lambda: batch.infer_all(images, ASKED),
            'whole image, without tiles': lambda: one(image, ASKED),
        }
        if find_spec('sahi'):
            ways['SAHI with the same network'] = lambda: sliced(
                one, image, (width, height), 0.2, ASKED
            )
        if find_spec('sahi') and find_spec('ultralytics'):
            model, rgb = own_model(args.model or MODEL), np.ascontiguousarray(image[..., ::-1])
            ways[f"SAHI's model of ultralytics, {provider(model)}"] = lambda: sliced_by(
                model, rgb, (width, height), 0.2, ASKED
            )
        if find_spec('torch'):
            fixed = args.model or with_batch(Path(folder) / 'fixed.onnx', count)
            graph = torch_graph(fixed, feed.tiles, image)
            ways['torch.compile, one CUDA graph'] = graph
            print(f"{int((graph()['scores'] > 0).sum())} objects with torch's graph")
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(args.rounds + 10):
            for name, run in ways.items():
                if 'SAHI' in name and number > 40:  # Slow.
                    continue
                begin = time.perf_counter()
                run()
                if number >= 10:
                    times[name].append(1e3 * (time.perf_counter() - begin))
        print('\n'.join(tiled.log_lines))
        print(f'{len(tiled(image, ASKED))} objects with tiles, {len(one(image, ASKED))} without')
    print('| run | p50 ms | p99 ms |\n|---|---|---|')
    for name, each in times.items():
        each.sort()
        print(f'| {name} | {each[len(each) // 2]:.3f} | {each[len(each) * 99 // 100]:.3f} |')


if __name__ == '__main__':
    main()
