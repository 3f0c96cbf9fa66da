"""Rendered scenes of moving boxes with known identities, as a detector would report them."""

from dataclasses import dataclass

import numpy as np

from trt_ros.results.boxes import Detections
from trt_ros.vision.nms import iou

SIZE_WH = np.array([1280.0, 720.0])


@dataclass(frozen=True)
class Step:
    """
    One image: its time, what is there, and what a detector finds.

    :param objects: (N,) identities of the visible objects; `xyxy`: (N, 4) their boxes.
    """

    stamp_ns: int
    objects: np.ndarray
    xyxy: np.ndarray
    found: Detections


def straight(times: np.ndarray, begin_xy: np.ndarray, velocity_xy: np.ndarray) -> np.ndarray:
    """Return centers (T, N, 2) of objects with constant velocity in pixels per second."""
    return begin_xy + times[:, None, None] * velocity_xy


def swaying(times: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return centers (T, N, 2) of objects that drift, turn and stop, as dancers do."""
    begin = rng.uniform(0.2, 0.8, (count, 2)) * SIZE_WH
    amplitude = rng.uniform(40, 160, (count, 2))
    pulse, phase = rng.uniform(1.0, 3.0, (count, 2)), rng.uniform(0, 2 * np.pi, (count, 2))
    angles = times[:, None, None] * pulse + phase
    return (
        begin + amplitude * np.sin(angles) + times[:, None, None] * rng.normal(0, 15, (count, 2))
    )


def walking(times: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return centers (T, N, 2) of objects that cross the image on straight lines."""
    is_right = rng.random(count) < 0.5
    speed = rng.uniform(80, 320, count) * np.where(is_right, 1, -1)
    begin = np.stack(
        [
            np.where(is_right, 100, 1180) - speed * rng.uniform(0, 2, count),
            rng.uniform(150, 600, count),
        ],
        axis=1,
    )
    return straight(times, begin, np.stack([speed, rng.normal(0, 12, count)], axis=1))


def shaking(times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return displacements (T, 1, 2) of the image of a camera that shakes, in pixels."""
    phase = rng.uniform(0, 2 * np.pi, (2, 2))
    seconds = 2 * np.pi * times[:, None]
    fast, slow = np.sin(2.1 * seconds + phase[0]), np.sin(1.7 * seconds + phase[1])
    return (25 * fast + 18 * slow)[:, None]


def panning(times: np.ndarray) -> np.ndarray:
    """Return displacements (T, 1, 2) of the image of a camera that turns to and fro, in pixels."""
    x = 300 * np.sin(0.5 * np.pi * times)
    return np.stack([x, 0 * x], axis=-1)[:, None]


def image_times(
    rate_hz: float, seconds: float, rng: np.random.Generator, *, dropped: float, jitter: float
) -> np.ndarray:
    """
    Return the times of the images in seconds, ascending.

    :param dropped: fraction of images that never arrive, in runs of up to three.
    :param jitter: standard deviation of a stamp, as a fraction of the period.
    """
    period = 1 / rate_hz
    number = np.arange(round(seconds * rate_hz))
    is_kept = np.ones(len(number), bool)
    for first in np.flatnonzero(rng.random(len(number)) < dropped / 2):
        is_kept[first : first + rng.integers(1, 4)] = False
    is_kept[0] = True
    times = number[is_kept] * period
    return np.sort(times + np.clip(rng.normal(0, jitter * period, len(times)), 0, None))


def observe(
    times: np.ndarray,
    centers: np.ndarray,
    sizes: np.ndarray,
    rng: np.random.Generator,
    *,
    labels: np.ndarray | None = None,
    missed: float = 0.05,
    false: float = 0.5,
    noise: float = 0.02,
) -> list[Step]:
    """
    Return what a detector reports of objects, of which the later ones stand in front.

    Below half visible, an object has a low score; below a fifth, it is not there at all.

    :param centers: (T, N, 2); `sizes`: (N, 2) width and height.
    :param missed: fraction of visible objects without a detection; as many have a low score.
    :param false: mean number of false detections per image.
    :param noise: standard deviation of the edges, as a fraction of the size.
    """
    count = len(sizes)
    labels = np.zeros(count, np.int32) if labels is None else labels
    steps = []
    for time, center in zip(times, centers):
        boxes = np.hstack([center - sizes / 2, center + sizes / 2])
        inside = ((boxes[:, 2:] > 20) & (boxes[:, :2] < SIZE_WH - 20)).all(axis=1)
        visible = inside * visibility(boxes, inside)
        there = np.flatnonzero(visible >= 0.2)
        scores = np.clip(
            0.35 + 0.55 * visible[there] + rng.normal(0, 0.06, len(there)), 0.05, 0.99
        )
        scores[visible[there] < 0.5] = 0.18
        chance = rng.random(len(there))
        scores[chance < 2 * missed] = 0.15
        seen = chance >= missed
        edges = boxes[there] + rng.normal(0, noise, (len(there), 4)) * np.tile(sizes[there], 2)
        extra = rng.poisson(false)
        corner = rng.uniform(0, 0.8, (extra, 2)) * SIZE_WH
        others = np.hstack([corner, corner + rng.uniform(30, 150, (extra, 2))])
        xyxy = np.vstack([edges[seen], others]).astype(np.float32)
        xyxy = np.clip(xyxy, 0, np.tile(SIZE_WH, 2)).astype(np.float32)
        all_scores = np.concatenate([scores[seen], rng.uniform(0.1, 0.5, extra)])
        all_labels = np.concatenate([labels[there][seen], np.zeros(extra)])
        order = np.argsort(-all_scores, kind='stable')
        found = Detections(
            xyxy[order], all_scores[order].astype(np.float32), all_labels[order].astype(np.int32)
        )
        clipped = np.clip(boxes[there], 0, np.tile(SIZE_WH, 2))
        steps.append(Step(round(time * 1e9), there, clipped, found))
    return steps


def visibility(boxes: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return the fraction of each box that the largest single box in front leaves visible."""
    visible = np.ones(len(boxes))
    for index in range(len(boxes) - 1):
        front = boxes[index + 1 :][inside[index + 1 :]]
        low = np.maximum(boxes[index, :2], front[:, :2])
        high = np.minimum(boxes[index, 2:], front[:, 2:])
        hidden = np.maximum(high - low, 0).prod(axis=1)
        area = (boxes[index, 2:] - boxes[index, :2]).prod()
        visible[index] = 1 - hidden.max(initial=0) / area
    return visible


def identities(step: Step, xyxy: np.ndarray, ids: np.ndarray) -> dict[int, int]:
    """Return the track id of each object: that of the box with the best IoU, if at least 0.5."""
    if not len(ids) or not len(step.objects):
        return {}
    overlaps = iou(step.xyxy[:, None], xyxy)
    return {
        int(thing): int(ids[row.argmax()])
        for thing, row in zip(step.objects, overlaps)
        if row.max() >= 0.5
    }


def seen_ids(tracker, steps):
    """Track all images; return the ids that each object ever had."""
    seen = {}
    for step in steps:
        tracks = tracker.update(step.found, step.stamp_ns)
        for thing, number in identities(step, step.found.xyxy[tracks.indices], tracks.ids).items():
            seen.setdefault(thing, set()).add(number)
    return seen
