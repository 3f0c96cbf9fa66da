"""How long each decoder takes on the CPU; the numbers in docs/models.md are from here."""

from __future__ import annotations

import time

import numpy as np

from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoder import choose_decoder
from trt_ros.vision.letterbox import Letterbox

SIZE, CANDIDATES, ROUNDS = 640, 300, 50
IMAGE = TensorSpec('images', (1, 3, SIZE, SIZE), 'float32', 'input')
rng = np.random.default_rng(0)


def scores(*shape: int, passing: int = CANDIDATES) -> np.ndarray:
    """Make scores below 0.2 but for `passing` of 0.3 to 0.9."""
    values = rng.uniform(0, 0.2, shape)
    values.flat[rng.choice(values.size, passing, replace=False)] = rng.uniform(0.3, 0.9, passing)
    return values


def centres(count: int, unit: float = SIZE) -> np.ndarray:
    return np.concatenate([rng.uniform(0, unit, (1, count, 2)),
                           rng.uniform(0.02, 0.2, (1, count, 2)) * unit], axis=-1)


def corners(count: int, unit: float = SIZE) -> np.ndarray:
    middle, half = np.split(centres(count, unit) / [1, 1, 2, 2], 2, axis=-1)
    return np.concatenate([middle - half, middle + half], axis=-1)


def any_of(*shape: int) -> np.ndarray:
    return rng.uniform(0, 1, shape)


CASES = {
    'yolov8': {'output0': np.concatenate(
        [centres(8400), scores(1, 8400, 80)], axis=-1).transpose(0, 2, 1)},
    'yolox': {'output': np.concatenate(
        [any_of(1, 8400, 4), scores(1, 8400, 1), any_of(1, 8400, 80)], axis=-1)},
    'yolov5': {'output': np.concatenate(
        [centres(25200), scores(1, 25200, 1), any_of(1, 25200, 80)], axis=-1)},
    'yolov10': {'output0': np.concatenate(
        [corners(300), scores(1, 300, 1), rng.integers(0, 80, (1, 300, 1))], axis=-1)},
    'rtdetr': {'logits': np.log(scores(1, 300, 80) + 1e-3), 'pred_boxes': centres(300, 1)},
    'detr': {'logits': rng.normal(0, 3, (1, 300, 92)), 'pred_boxes': centres(300, 1)},
    'ssd': {'boxes': corners(8732, 1), 'scores': scores(1, 8732, 81)},
    'boxes': {'boxes': corners(8400), 'scores': scores(1, 8400, 80)},
    'detectnet_v2': {'cov': scores(1, 3, 40, 40), 'bbox': 2 * any_of(1, 12, 40, 40)},
    'efficient_nms': {
        'num_dets': np.array([[300]]), 'boxes': corners(300), 'scores': scores(1, 300),
        'classes': rng.integers(0, 80, (1, 300))},
    'onnx_nms': {
        'chosen': rng.integers(0, [1, 80, 8400], (CANDIDATES, 3)), 'boxes': corners(8400),
        'scores': 0.3 + any_of(1, 80, 8400) / 2},
}


def median_ms(family: str, outputs: dict[str, np.ndarray]) -> tuple[int, float]:
    """:returns: how many boxes were found, and the median in milliseconds."""
    specs = tuple(TensorSpec(name, array.shape, array.dtype.name, 'output')
                  for name, array in outputs.items())
    decoder = choose_decoder(family, (IMAGE,), specs, {}, (SIZE, SIZE))
    letterbox = Letterbox.fit((1920, 1080), (SIZE, SIZE), decoder.preprocess['resize'])
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        found = decoder(outputs, letterbox, score_threshold=0.25, iou_threshold=0.45,
                        max_detections=300)
        seconds.append(time.perf_counter() - begin)
    return len(found), 1000 * sorted(seconds)[ROUNDS // 2]


if __name__ == '__main__':
    for family, arrays in CASES.items():
        for dtype in ('float32', 'float16'):
            outputs = {name: np.ascontiguousarray(
                array, dtype if array.dtype.kind == 'f' else array.dtype)
                for name, array in arrays.items()}
            found, milliseconds = median_ms(family, outputs)
            print(f'{family:14} {dtype:8} {found:4} boxes  {milliseconds:6.2f} ms')
