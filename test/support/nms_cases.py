"""Candidates for non-maximum suppression, with the NumPy head that decides it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

BOX = Letterbox.fit((1280, 1280), (640, 640), 'stretch')
HEAD = open_as('yolov8', 'head (1, ?, ?)')


class Case(NamedTuple):
    """Outputs, the thresholds asked for, and the least and largest number of boxes left."""

    outputs: dict[str, np.ndarray]
    asked: Thresholds
    boxes: tuple[int, int]
    candidates: int | None = None
    head: Any = HEAD


def columns(centers, sizes, scores) -> dict[str, np.ndarray]:
    """YOLOv8's output (1, 4 + C, N) of N centers and sizes (N, 2), and scores (N, C)."""
    return {'head': np.hstack([centers, sizes, scores]).T.astype(np.float32, order='C')[None]}


def piled(
    count, objects, *, classes=1, seed=0, scores=None, in_bands=False
) -> dict[str, np.ndarray]:
    """Candidates that all lie on a few objects; in bands, each object's scores are consecutive."""
    rng = np.random.default_rng(seed)
    across = int(np.ceil(np.sqrt(objects)))
    places = np.stack(np.divmod(np.arange(objects), across), axis=1) * (600 / across) + 20
    owner = rng.integers(0, objects, count)
    scores = rng.uniform(0.3, 1, count) if scores is None else scores
    if in_bands:
        owner, scores = np.sort(owner), np.sort(scores)[::-1]
    all_scores = np.zeros((count, classes))
    all_scores[np.arange(count), rng.integers(0, classes, count)] = scores
    size = 400 / across
    return columns(
        places[owner] + rng.normal(0, 0.02 * size, (count, 2)),
        size * rng.uniform(0.9, 1.1, (count, 2)),
        all_scores,
    )


def several(count: int) -> Case:
    outputs = piled(max(count, 1), 9, classes=2, seed=count)
    outputs['head'][0, 4:, count:] = 0
    return Case(outputs, Thresholds(0.25, 0.45, 300), (min(count, 1), count), count)


def on_objects(count: int, objects: int, in_bands: bool, limit: int = 300) -> Case:
    outputs, most = piled(count, objects, in_bands=in_bands), max(int(1.1 * objects), 1)
    return Case(outputs, Thresholds(0.25, 0.45, limit), (min(objects, limit), most), count)


def limited(count: int, limit: int, sizes: tuple[float, float]) -> Case:
    """As many boxes as requested, or all of those that overlap a little."""
    rng = np.random.default_rng(1)
    places, sides = rng.uniform(0, 640, (count, 2)), rng.uniform(*sizes, (count, 2))
    outputs = columns(places, sides, rng.random((count, 1)))
    boxes = (limit, limit) if limit < 0.7 * count else (count // 5, count - 1)
    return Case(outputs, Thresholds(0.0, 0.3, limit), boxes)


def chain() -> Case:
    """Boxes that each overlap only the next: each decision depends on the one before."""
    centers = np.stack([20 + np.arange(600), np.full(600, 320.0)], axis=1)
    outputs = columns(centers, np.full((600, 2), 2.5), np.linspace(0.9, 0.5, 600)[:, None])
    return Case(outputs, Thresholds(0.25, 0.3, 1000), (300, 300))


def rounding(iou: float) -> Case:
    outputs = piled(700, 30, classes=3)
    outputs['head'][0, :4, 100:130] = outputs['head'][0, :4, :30]
    outputs['head'][0, 2:4, 200:230] = 1e-18  # The areas underflow.
    return Case(outputs, Thresholds(0.25, iou, 300), (1, 300))


def exact(iou: float, boxes: int) -> Case:
    """IoU of 1/3 and, of the last pair, 1/2, exactly: what is equal to the threshold is kept."""
    centers = np.array([[100, 100], [110, 100], [300, 300], [300, 310]])
    sizes = np.array([[20, 20], [20, 20], [20, 40], [20, 20]])
    outputs = columns(centers, sizes, np.array([[0.9], [0.8], [0.7], [0.6]]))
    return Case(outputs, Thresholds(0.5, float(iou), 10), (boxes, boxes))


THIRD = np.float32(1) / np.float32(3)


def nonfinite(count: int) -> Case:
    """Values that are not finite, and areas: such boxes neither suppress nor appear."""
    outputs = piled(count, 20, classes=2)
    bad = outputs['head'][0]
    bad[0, 3::7], bad[2, 5::7], bad[1, 6::7], bad[4, 1::7] = np.nan, np.inf, -np.inf, np.nan
    bad[2:4, 8::70] = 3e38  # Finite, but the area is not.
    return Case(outputs, Thresholds(0.25, 0.45, 300), (20, 300))


def equal_scores(count: int, levels: int) -> Case:
    """Of few scores: the place decides."""
    scores = 0.4 + np.arange(count) % levels * 0.1
    return Case(piled(count, 60, scores=scores), Thresholds(0.25, 0.45, 1000), (60, 70), count)


def equal_boxes(count: int) -> Case:
    outputs = columns(*(np.full((count, 2), value) for value in (320.0, 50.0, 0.5)))
    return Case(outputs, Thresholds(0.5, 0.5, 10), (1, 1), count)


def odd_sample(*, is_high: bool) -> Case:
    """The sample of the scores leaves one block, which ranks nearly all candidates in turns."""
    count = 2400
    samples = 2 * -(-count // 64)
    scores = np.linspace(0.5, 0.6, count)
    scores[np.arange(samples) * count // samples] = np.linspace(0.8, 0.81, samples)
    outputs = piled(count, 60, scores=scores if is_high else 1.1 - scores)
    return Case(outputs, Thresholds(0.25, 0.45, 300), (60, 70))


def of_classes(scores: Callable[..., np.ndarray], limit: int, *, is_one: bool = False) -> Case:
    """2000 boxes with scores of 91 classes; or one box, which each class keeps once."""
    rng, shape = np.random.default_rng(4), (2000, 91)
    corner = rng.uniform(0, 560, (2000, 2))
    boxes = np.hstack([corner, corner + rng.uniform(10, 90, (2000, 2))])[None]
    outputs = {'boxes': boxes, 'scores': scores(rng, shape)[None]}
    outputs = {name: value.astype(np.float32, order='C') for name, value in outputs.items()}
    if is_one:
        outputs['boxes'][:] = [100, 100, 200, 200]
    left, candidates = ((91, 91), 182000) if is_one else ((1, limit), None)
    asked, head = Thresholds(0.05, 0.5, limit), open_as('boxes', outputs)
    return Case(outputs, asked, left, candidates, head)


#: By name, small enough for threads that are simulated.
SMALL: dict[str, Callable[[], Case]] = {
    **{f'{n} candidates': partial(several, n) for n in (0, 1, 33, 512, 513, 1024, 1025)},
    'on 90 objects': partial(on_objects, 2300, 90, False),
    'on 90 objects in bands': partial(on_objects, 2300, 90, True),
    **{f'limit of {n}': partial(limited, 1500, n, (9, 30)) for n in (1, 40, 5000)},
    'chain': chain,
    **{f'IoU of {iou}': partial(rounding, iou) for iou in (0.0, 1e-7, 1e-5, 0.5, 1.0)},
    'IoU equal to the threshold': partial(exact, THIRD, 3),
    'IoU above the threshold': partial(exact, np.nextafter(THIRD, np.float32(0)), 2),
    'IoU of a half': partial(exact, 0.5, 4),
    'not finite': partial(nonfinite, 600),
    'equal scores': partial(equal_scores, 2100, 1),
    'three scores': partial(equal_scores, 2100, 3),
    'odd sample above': partial(odd_sample, is_high=True),
    'odd sample below': partial(odd_sample, is_high=False),
    'equal boxes': partial(equal_boxes, 300),
}

#: With those of more candidates than are compared, or sorted, at once.
CASES = SMALL | {
    '11000 in bands': partial(on_objects, 11000, 40, True, 50),
    **{f'{n} candidates': partial(several, n) for n in (31, 32, 63, 64, 65, 255, 256, 257, 511)},
    **{
        f'{count} on {n} objects{" in bands" * in_bands}': partial(on_objects, count, n, in_bands)
        for count in (2048, 8400)
        for n in (1, 10, 270)
        for in_bands in (False, True)
    },
    **{f'6000, limit of {n}': partial(limited, 6000, n, (2, 6)) for n in (0, 300, 4096, 20000)},
    'not finite of 2000': partial(nonfinite, 2000),
    '9000 equal scores': partial(equal_scores, 9000, 1),
    **{f'{n} equal boxes': partial(equal_boxes, n) for n in (3000, 12000)},
    **{f'25200, limit of {n}': partial(limited, 25200, n, (12, 12.1)) for n in (300, 1000, 20000)},
    '25200 in bands': partial(on_objects, 25200, 200, True, 1000),
    **{
        f'{name}, limit of {limit}': partial(of_classes, scores, limit)
        for limit in (100, 1500)
        for name, scores in {
            'saturated': lambda rng, shape: np.ones(shape),
            'random': lambda rng, shape: rng.uniform(0, 1, shape),
            'of three values': lambda rng, shape: rng.integers(1, 4, shape) / 4,
            'sparse': lambda rng, shape: np.where(rng.random(shape) < 0.001, 0.9, 0.01),
        }.items()
    },
    'one object': partial(of_classes, lambda rng, shape: np.ones(shape), 1000, is_one=True),
}


def check(decode: Callable[..., Any], name: str) -> None:
    """Compare what a decoder with kernels finds with what the NumPy head finds."""
    outputs, asked, (least, most), candidates, head = CASES[name]()
    got, counts = decode(head, outputs, BOX, asked)
    want = head(outputs, BOX, asked)
    assert counts[0] == len(got) == len(want)
    assert got.scores.tolist() == want.scores.tolist()
    assert got.labels.tolist() == want.labels.tolist()
    np.testing.assert_allclose(got.xyxy, want.xyxy, atol=1e-3)
    assert least <= len(got) <= most
    assert candidates in (None, counts[1])
    assert counts[2] == sum(np.count_nonzero(~np.isfinite(value)) for value in outputs.values())
