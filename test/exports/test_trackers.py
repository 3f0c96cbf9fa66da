"""
Trackers compared with those of `trackers` (roboflow), by the metrics of TrackEval.

To run these tests in an environment of their own: pip install trackers trackeval scipy pytest. To
print the figures of docs/benchmarks.md: python test/exports/test_trackers.py
"""

import contextlib
import io
from pathlib import Path
import sys

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.tracking_scenes import Step, image_times, observe, panning, shaking, swaying, walking  # noqa: E402
from trt_ros.tracking.bytetrack import ByteTracker  # noqa: E402
from trt_ros.tracking.options import TrackOptions  # noqa: E402
from trt_ros.tracking.tracker import OcSortTracker  # noqa: E402
from trt_ros.vision.nms import iou  # noqa: E402

HIGH_SCORE, LOW_SCORE = 0.4, 0.1
KINDS, RATES, SEEDS = ('walking', 'swaying'), ((10, 0.0), (30, 0.2), (60, 0.0)), (5, 6)
#: Of moving cameras.
CAMERAS = ('shaking', 'panning')
Tracked = list[tuple[np.ndarray, np.ndarray]]  # Per image: ids and boxes.


def scene(kind: str, rate_hz: float, dropped: float, seed: int) -> list[Step]:
    rng = np.random.default_rng(seed)
    times = image_times(rate_hz, 12, rng, dropped=dropped, jitter=0.05 if dropped else 0.0)
    count, is_walk = 14, kind == 'walking'
    centers = (walking if is_walk else swaying)(times, count, rng)
    widths, heights = ((40, 90), (90, 200)) if is_walk else ((60, 110), (120, 220))
    sizes = np.stack([rng.uniform(*widths, count), rng.uniform(*heights, count)], axis=1)
    return observe(times, centers, sizes, rng)


def moving_camera(kind: str, seed: int) -> list[Step]:
    rng = np.random.default_rng(seed)
    times = image_times(30, 12, rng, dropped=0.0, jitter=0.0)
    centers = walking(times, 24, rng)
    centers = centers + (shaking(times, rng) if kind == 'shaking' else panning(times))
    sizes = np.stack([rng.uniform(30, 60, 24), rng.uniform(60, 120, 24)], axis=1)
    return observe(times, centers, sizes, rng)


def run_own(cls: type[ByteTracker], steps: list[Step]) -> Tracked:
    tracker, options = cls(), TrackOptions(high_score=HIGH_SCORE, low_score=LOW_SCORE)
    results = ((step, tracker.update(step.found, step.stamp_ns, options)) for step in steps)
    return [(tracks.ids, step.found.xyxy[tracks.indices]) for step, tracks in results]


def run_theirs(cls, steps: list[Step], **options: float) -> Tracked:
    import supervision

    tracker = cls(minimum_consecutive_frames=2, high_conf_det_threshold=HIGH_SCORE, **options)
    tracked = []
    for step in steps:
        found = step.found
        given = supervision.Detections(
            found.xyxy.copy(), confidence=found.scores.copy(), class_id=found.labels.copy()
        )
        result = tracker.update(
            given[given.confidence >= LOW_SCORE], timestamp=step.stamp_ns / 1e9
        )
        is_tracked = result.tracker_id >= 0
        tracked.append((result.tracker_id[is_tracked], result.xyxy[is_tracked]))
    return tracked


def scores(steps: list[Step], tracked: Tracked) -> dict[str, float]:
    """Return HOTA, AssA and IDF1 in percent."""
    from trackeval.metrics import HOTA, Identity

    objects: dict[int, int] = {}
    tracks: dict[int, int] = {}

    def number(names, into):
        return np.array([into.setdefault(int(name), len(into)) for name in names], int)

    gt_ids = [number(step.objects, objects) for step in steps]
    tracker_ids = [number(ids, tracks) for ids, _ in tracked]
    data = {
        'gt_ids': gt_ids,
        'tracker_ids': tracker_ids,
        'similarity_scores': [
            iou(step.xyxy[:, None], boxes).astype(float).reshape(len(step.objects), len(ids))
            for step, (ids, boxes) in zip(steps, tracked)
        ],
        'num_timesteps': len(steps),
        'num_gt_ids': len(objects),
        'num_tracker_ids': len(tracks),
        'num_gt_dets': sum(map(len, gt_ids)),
        'num_tracker_dets': sum(map(len, tracker_ids)),
    }
    with contextlib.redirect_stdout(io.StringIO()):
        hota, identity = HOTA().eval_sequence(data), Identity().eval_sequence(data)
    return {
        'HOTA': 100 * hota['HOTA'].mean(),
        'AssA': 100 * hota['AssA'].mean(),
        'IDF1': 100 * identity['IDF1'],
    }


def mean_scores(run, kind: str) -> dict[str, float]:
    scenes = (
        [moving_camera(kind, seed) for seed in (1, 2, 3)]
        if kind in CAMERAS
        else [scene(kind, *rate, seed) for rate in RATES for seed in SEEDS]
    )
    all_scores = [scores(steps, run(steps)) for steps in scenes]
    return {name: float(np.mean([each[name] for each in all_scores])) for name in all_scores[0]}


def contestants():
    from trackers import ByteTrackTracker, OCSORTTracker

    return {
        'ByteTrack, trt_ros': lambda steps: run_own(ByteTracker, steps),
        'OC-SORT, trt_ros': lambda steps: run_own(OcSortTracker, steps),
        'ByteTrack, trackers': lambda steps: run_theirs(
            ByteTrackTracker, steps, track_activation_threshold=HIGH_SCORE
        ),
        'OC-SORT, trackers': lambda steps: run_theirs(OCSORTTracker, steps),
    }


@pytest.mark.parametrize('kind', KINDS)
def test_identities_are_kept_as_well_as_by_the_package_trackers(kind):
    pytest.importorskip('trackers', reason='it is the reference: pip install trackers')
    pytest.importorskip('trackeval', reason='it has the metrics: pip install trackeval')
    found = {name: mean_scores(run, kind) for name, run in contestants().items()}
    for metric in ('HOTA', 'IDF1'):
        for method in ('ByteTrack', 'OC-SORT'):
            own, theirs = (found[f'{method}, {package}'] for package in ('trt_ros', 'trackers'))
            # On straight ways both keep almost all identities: their difference is noise.
            assert own[metric] >= theirs[metric] - 0.5


@pytest.mark.parametrize('kind', CAMERAS)
def test_identities_are_kept_better_than_by_the_package_trackers_when_the_camera_moves(kind):
    pytest.importorskip('trackers', reason='it is the reference: pip install trackers')
    pytest.importorskip('trackeval', reason='it has the metrics: pip install trackeval')
    found = {name: mean_scores(run, kind)['HOTA'] for name, run in contestants().items()}
    own = [hota for name, hota in found.items() if 'trt_ros' in name]
    assert min(own) > max(hota for name, hota in found.items() if 'trt_ros' not in name)


if __name__ == '__main__':
    for name, run in contestants().items():
        for kind in (*KINDS, *CAMERAS):
            figures = mean_scores(run, kind)
            line = ', '.join(f'{metric} {value:.1f}' for metric, value in figures.items())
            print(f'{name} | {kind} | {line}', flush=True)
