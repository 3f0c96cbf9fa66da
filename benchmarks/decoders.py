"""
Decoding times on the CPU per model family; source of the table in docs/benchmarks.md.

Networks for 640 × 640 images, from their outputs to results in pixels of the source image, whose
size matters for families with a result per pixel.
"""

import ctypes
from dataclasses import dataclass
import sys
import time

import numpy as np

from trt_ros.decode.choice import choose_decoder
from trt_ros.families.family import NetworkDescription
from trt_ros.families.registry import (
    CLASSIFIERS,
    DEPTHS,
    DETECTORS,
    EMBEDDINGS,
    ORIENTED,
    POSES,
    SEGMENTERS,
)
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

SIZE, CANDIDATES, ROUNDS = 640, 300, 30
IMAGES = ((1920, 1080), (640, 480))
IMAGE = TensorSpec('images', (1, 3, SIZE, SIZE), 'float32', 'input')
rng = np.random.default_rng(0)


def scores(*shape: int, passing: int = CANDIDATES) -> np.ndarray:
    """Return scores below 0.2, except `passing` ones of 0.3 to 0.9."""
    values = rng.uniform(0, 0.2, shape)
    values.flat[rng.choice(values.size, passing, replace=False)] = rng.uniform(0.3, 0.9, passing)
    return values


def centers(count: int, unit: float = SIZE) -> np.ndarray:
    return np.concatenate(
        [rng.uniform(0, unit, (1, count, 2)), rng.uniform(0.02, 0.2, (1, count, 2)) * unit],
        axis=-1,
    )


def corners(count: int, unit: float = SIZE) -> np.ndarray:
    middle, half = np.split(centers(count, unit) / [1, 1, 2, 2], 2, axis=-1)
    return np.concatenate([middle - half, middle + half], axis=-1)


def any_of(*shape: int) -> np.ndarray:
    return rng.uniform(0, 1, shape)


def rows(extras: np.ndarray, classes: int = 80) -> np.ndarray:
    """Return boxes of which CANDIDATES pass, followed by extras (1, 8400, E)."""
    return np.concatenate([centers(8400), scores(1, 8400, classes), extras], axis=-1).transpose(
        0, 2, 1
    )


def smooth(count: int, knots: int, size: int) -> np.ndarray:
    """Interpolate noise on knots × knots to (1, count, size, size): regions with edges."""
    at = np.clip((np.arange(size) + 0.5) * knots / size - 0.5, 0, knots - 1)
    weights = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(knots)))
    return (
        4
        * np.einsum(
            'Yh,chw,Xw->cYX',
            weights,
            rng.normal(size=(count, knots, knots)),
            weights,
            optimize=True,
        )[None]
    )


def objects(count: int, low: float, high: float, noise: bool = False) -> dict[str, np.ndarray]:
    """
    Return instances whose sides are `low` to `high` input pixels.

    Their masks are ellipses with ragged edges, or noise in the complete box.
    """
    head = rows(rng.normal(size=(1, 8400, 32)) / (2 if noise else 8))
    head[:, 4:84] = rng.uniform(0, 0.2, (1, 80, 8400))
    sides = rng.uniform(low, high, (2, count)) * SIZE
    middles = sides / 2 + rng.uniform(0, 1, sides.shape) * (SIZE - sides)
    head[0, :4, :count] = np.concatenate([middles, sides])
    head[0, 4 + np.arange(count) % 80, np.arange(count)] = rng.uniform(0.3, 0.9, count)
    prototypes = smooth(32, 20, 160) / 2
    if not noise:
        # 1 - ((x - middle) / half)², and for y: five of the prototypes are x, x², y, y² and 1.
        at = (np.arange(160) + 0.5) / 160 - 0.5
        prototypes[0, :4] = np.stack(np.broadcast_arrays(at, at**2, at[:, None], at[:, None] ** 2))
        prototypes[0, 4] = 1
        (x, y), (a, b) = middles / SIZE - 0.5, (2 * SIZE / sides) ** 2
        head[0, 84:89, :count] = 2 * a * x, -a, 2 * b * y, -b, 1 - a * x**2 - b * y**2
        head[0, 89:, :count] /= 8
        head[0, 84:, :count] *= sides.min(axis=0) / 16  # Edges equally soft for all sizes.
    return {'output0': head, 'output1': prototypes}


def divided(classes: int, seen: int = 15, count: int = 100) -> dict[str, np.ndarray]:
    """Return queries: the masks of some divide the image, the others are of no object."""
    logits = rng.normal(size=(1, count, classes + 1))
    logits[0, np.arange(seen), rng.integers(classes, size=seen)] = 7 + np.log(classes)
    logits[0, seen:, -1] = 6 + np.log(classes)
    field = smooth(seen, 8, 160)[0]
    second, first = np.sort(field, axis=0)[-2:]
    masks = np.concatenate(
        [
            6 * (field - np.where(field == first, second, first))[None],
            2 * smooth(count - seen, 8, 160) - 6,
        ],
        axis=1,
    )
    return {'class_queries_logits': logits, 'masks_queries_logits': np.clip(masks, -12, 12)}


@dataclass(frozen=True)
class Case:
    families: tuple
    name: str
    what: str
    outputs: dict[str, np.ndarray]
    metadata: dict[str, str] | None = None


DECODERS = {
    'yolov8': {'output0': rows(np.zeros((1, 8400, 0)))},
    'yolox': {
        'output': np.concatenate(
            [any_of(1, 8400, 4), scores(1, 8400, 1), any_of(1, 8400, 80)], axis=-1
        )
    },
    'yolov5': {
        'output': np.concatenate(
            [centers(25200), scores(1, 25200, 1), any_of(1, 25200, 80)], axis=-1
        )
    },
    'yolov10': {
        'output0': np.concatenate(
            [corners(300), scores(1, 300, 1), rng.integers(0, 80, (1, 300, 1))], axis=-1
        )
    },
    'rtdetr': {'logits': np.log(scores(1, 300, 80) + 1e-3), 'pred_boxes': centers(300, 1)},
    'detr': {'logits': rng.normal(0, 3, (1, 300, 92)), 'pred_boxes': centers(300, 1)},
    'ssd': {'boxes': corners(8732, 1), 'scores': scores(1, 8732, 81)},
    'boxes': {'boxes': corners(8400), 'scores': scores(1, 8400, 80)},
    'detectnet_v2': {'cov': scores(1, 3, 40, 40), 'bbox': 2 * any_of(1, 12, 40, 40)},
    'efficient_nms': {
        'num_dets': np.array([[300]]),
        'boxes': corners(300),
        'scores': scores(1, 300),
        'classes': rng.integers(0, 80, (1, 300)),
    },
    'onnx_nms': {
        'chosen': rng.integers(0, [1, 80, 8400], (CANDIDATES, 3)),
        'boxes': corners(8400),
        'scores': 0.3 + any_of(1, 80, 8400) / 2,
    },
}


def cases() -> list[Case]:
    person = {'task': 'pose', 'kpt_shape': '[17, 3]', 'names': "{0: 'person'}"}
    return [
        *(
            Case(DETECTORS, name, f'{CANDIDATES} candidates', outputs)
            for name, outputs in DECODERS.items()
        ),
        Case(
            POSES,
            'yolov8_pose',
            f'{CANDIDATES} candidates, 17 keypoints',
            {'output0': rows(any_of(1, 8400, 51) * ([SIZE, SIZE, 1] * 17), 1)},
            person,
        ),
        Case(
            ORIENTED,
            'yolov8_obb',
            f'{CANDIDATES} candidates, 15 classes',
            {'output0': rows(any_of(1, 8400, 1), 15)},
        ),
        *(
            Case(
                SEGMENTERS,
                'yolov8_seg',
                f'{count} objects of {low} to {high} pixels{what}',
                objects(count, low / SIZE, high / SIZE, bool(what)),
            )
            for what in ('', ', masks of noise')
            for count, low, high in (
                (10, 64, 256),
                (100, 64, 256),
                (300, 13, 128),
                (100, 192, 384),
            )
        ),
        Case(SEGMENTERS, 'semantic', '19 classes, 160 × 160', {'out': smooth(19, 8, 160)}),
        Case(SEGMENTERS, 'semantic', '150 classes, 160 × 160', {'out': smooth(150, 6, 160)}),
        Case(
            SEGMENTERS,
            'semantic',
            '150 classes, 15 of them seen, in many small regions',
            {'out': smooth(150, 16, 160) - 10 * (np.arange(150) > 14)[:, None, None]},
        ),
        Case(
            SEGMENTERS,
            'semantic',
            '150 classes, all seen, in many small regions',
            {'out': smooth(150, 16, 160)},
        ),
        Case(SEGMENTERS, 'semantic', '21 classes, 640 × 640', {'out': smooth(21, 8, 640)}),
        Case(
            SEGMENTERS,
            'semantic',
            '21 classes, 640 × 640, channels last',
            {'out': smooth(21, 8, 640).transpose(0, 2, 3, 1)},
        ),
        Case(
            SEGMENTERS,
            'semantic',
            'sigmoid of one class, 640 × 640',
            {'out': np.clip(smooth(1, 8, 640) / 8 + 0.5, 0, 1)},
        ),
        Case(
            SEGMENTERS,
            'semantic',
            'classes themselves, 640 × 640',
            {'out': rng.integers(0, 19, (1, 640, 640))},
        ),
        *(
            Case(SEGMENTERS, name, f'100 queries, {classes} classes, 160 × 160', divided(classes))
            for name in ('maskformer', 'maskformer_panoptic')
            for classes in (19, 150)
        ),
        Case(DEPTHS, 'depth', '640 × 640', {'depth': smooth(1, 8, 640)}),
        Case(CLASSIFIERS, 'classifier', '1000 classes', {'out': rng.normal(size=(1, 1000))}),
        Case(EMBEDDINGS, 'embedding', '512 values', {'out': rng.normal(size=(1, 512))}),
    ]


def median_ms(case: Case, outputs: dict[str, np.ndarray], image_wh: tuple[int, int]) -> float:
    """Return the median CPU time of the thread, which barely depends on the machine's load."""
    specs = tuple(
        TensorSpec(name, array.shape, array.dtype.name, 'output')
        for name, array in outputs.items()
    )
    decoder = choose_decoder(
        case.name,
        NetworkDescription((IMAGE,), specs, case.metadata or {}, (SIZE, SIZE)),
        case.families,
    )
    letterbox = Letterbox.fit(image_wh, (SIZE, SIZE), decoder.preprocess['resize'])
    seconds = []
    for _ in range(ROUNDS + 1):  # The first round is a warm-up.
        begin = time.thread_time()
        decoder(outputs, letterbox, Thresholds(score=0.25, iou=0.45, max_detections=300))
        seconds.append(time.thread_time() - begin)
    return 1000 * sorted(seconds[1:])[ROUNDS // 2]


def keep_memory() -> None:
    """Keep freed memory, as the nodes do: pages returned to the kernel are cleared again."""
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
    if mallopt is not None:
        mallopt(-3, 1 << 30)
        mallopt(-1, 2**31 - 1)


if __name__ == '__main__':
    keep_memory()
    print(
        '| decoder | outputs | '
        + ' | '.join(f'{width}×{height}' for width, height in IMAGES)
        + ' |'
    )
    print('|---|---|---|---|')
    for case in cases():
        if sys.argv[1:] and case.name not in sys.argv[1:]:
            continue
        cells = [[], []]
        for dtype in ('float32', 'float16'):
            outputs = {
                name: np.ascontiguousarray(
                    array, dtype if array.dtype.kind == 'f' else array.dtype
                )
                for name, array in case.outputs.items()
            }
            for cell, image_wh in zip(cells, IMAGES):
                cell.append(f'{median_ms(case, outputs, image_wh):.1f}')
        print(
            f'| `{case.name}` | {case.what} | {" / ".join(cells[0])} | {" / ".join(cells[1])} |',
            flush=True,
        )
