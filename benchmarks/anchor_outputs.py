"""Heads for outputs, and outputs of boxes, keypoints and masks, for benchmarks of decoders."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from trt_ros.decode.choice import open_head
from trt_ros.families.family import NetworkDescription
from trt_ros.families.registry import ALL_FAMILIES
from trt_ros.tensors import TensorSpec


def read(
    family: str, outputs: dict[str, np.ndarray], class_count: int | None = None
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the head of a family for outputs of 640 × 640 images, and these."""
    specs = tuple(
        TensorSpec(name, value.shape, value.dtype.name, 'output')
        for name, value in outputs.items()
    )
    families = {each.name: each for each in ALL_FAMILIES}
    network = NetworkDescription((), specs, {}, (640, 640), class_count)
    return open_head(families[family], network), outputs


def anchored() -> Iterator[tuple[str, Any, dict[str, np.ndarray]]]:
    """Yield outputs whose boxes are relative to anchors, about 300 candidates each."""
    rng, cells = (
        np.random.default_rng(0),
        {stride: (640 // stride) ** 2 for stride in (8, 16, 32, 64)},
    )

    def scores(*shape: int) -> np.ndarray:
        values = rng.uniform(0, 0.2, shape)
        values.flat[rng.choice(values.size, 300, replace=False)] = rng.uniform(0.3, 1, 300)
        return values.astype(np.float32)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 1, shape).astype(np.float32)

    parts = [normal(1, 8400, 4), np.ones((1, 8400, 1), np.float32), scores(1, 8400, 80)]
    yield 'YOLOX, 8400×85', *read('yolox', {'head': np.concatenate(parts, axis=2)})
    raw = {str(stride): normal(1, 3, 640 // stride, 640 // stride, 85) for stride in (8, 16, 32)}
    for values in raw.values():
        values[..., 4] = rng.normal(-5, 2, values.shape[:4])
    yield 'raw YOLOv5, 25200×85', *read('yolov5_raw', raw)
    head = np.concatenate(
        [scores(1, sum(cells.values()), 80), normal(1, sum(cells.values()), 32)], 2
    )
    yield 'NanoDet-Plus, 8500×112', *read('nanodet_plus', {'head': head})
    faces = {
        f'{kind}_{stride}': values(1, 2 * cells[stride], size)
        for kind, size, values in (
            ('scores', 1, scores),
            ('boxes', 4, normal),
            ('points', 10, normal),
        )
        for stride in (8, 16, 32)
    }
    yield 'SCRFD, 16800 anchors', *read('scrfd', faces)
    grids = {'hm': scores(1, 80, 160, 160), 'wh': 9 + normal(1, 2, 160, 160)}
    yield 'CenterNet, 80×160×160', *read('centernet', grids)
    grids = {'cov': scores(1, 3, 40, 40), 'bbox': 1 + normal(1, 12, 40, 40) / 9}
    yield 'DetectNet_v2, 3×40×40', *read('detectnet_v2', grids)


def further() -> Iterator[tuple[str, Any, dict[str, np.ndarray]]]:
    """Yield outputs of keypoints, lanes and masks of queries."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 1, shape).astype(np.float32)

    yield 'heatmaps, 17×160×160', *read('heatmap_pose', {'heatmaps': normal(1, 17, 160, 160)})
    yield 'SimCC, 17×1280', *read('simcc', {name: normal(1, 17, 1280) for name in 'xy'})
    yield 'UFLD, 201×18×4', *read('ufld', {'lanes': normal(1, 201, 18, 4)})
    lanes = {
        'loc_row': normal(1, 200, 72, 4),
        'loc_col': normal(1, 100, 81, 4),
        'exist_row': normal(1, 2, 72, 4) + np.array([0, 3], np.float32).reshape(1, 2, 1, 1),
        'exist_col': normal(1, 2, 81, 4) + np.array([0, 3], np.float32).reshape(1, 2, 1, 1),
    }
    yield 'UFLDv2, CULane', *read('ufld_v2_culane', lanes)
    blobs = rng.normal(-1, 3, (1, 200, 9, 9)).repeat(12, axis=2).repeat(12, axis=3)
    queries = {
        'labels': normal(1, 200, 91) - 4,
        'dets': rng.uniform(0.2, 0.6, (1, 200, 4)).astype(np.float32),
        'masks': (blobs + normal(1, 200, 108, 108) / 5).astype(np.float32),
    }
    queries['labels'][0, :20, 0] = 2
    yield 'RF-DETR, 20 masks of 108×108', *read('rfdetr_seg', queries)
    queries = {'logits': normal(1, 100, 151), 'masks': 3 * normal(1, 100, 128, 128) - 3}
    yield 'MaskFormer, 100 queries, 150×128×128', *read('maskformer', queries)
