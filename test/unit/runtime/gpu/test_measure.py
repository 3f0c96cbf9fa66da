"""What is measured, on a CUDA that runs on the host: how many images each run takes."""

from collections import Counter
import sys

import pytest

from support.fake_nvtx import nvtx
from trt_ros.profiling import recording
from trt_ros.runtime.gpu import measure as graph_measure
from trt_ros.vision.thresholds import Thresholds

#: The GPU gets all rows of the first image, and every third one of the second.
IMAGES = {'all rows': (160, 120), 'some rows': (288, 192)}


@pytest.mark.parametrize('image_wh', IMAGES.values(), ids=IMAGES)
@pytest.mark.parametrize(('size', 'batch'), [(1, 1), (-1, 4), (4, 4)])
def test_every_run_uses_full_batch(open_graph, make_engine, picture, cuda, size, batch, image_wh):
    frame = picture(*image_wh)
    pipeline = open_graph(make_engine(size), batch=batch)
    pipeline.warm_up(frame)
    for measured, graphs in (
        (graph_measure.graph_times, 1),
        (graph_measure.stage_times, 4),
        (graph_measure.host_times, 1),
    ):
        cuda.launched.clear()
        before = cuda.calls['cudaGraphLaunch']
        times = measured(pipeline, graph_measure.Work.of(pipeline, frame), 3)
        assert all(len(each) == 3 for each in times.values())
        runs = (cuda.calls['cudaGraphLaunch'] - before) / graphs
        assert cuda.launched.count('preprocess') == batch * runs > 0
    assert graph_measure.measure(pipeline, frame, rounds=3)['batch'] == batch


def test_the_rate_counts_images_not_runs(open_graph, make_engine, picture):
    pipeline = open_graph(make_engine(-1), batch=4)
    clock = iter([10.0, 12.0])
    work = graph_measure.Work.of(pipeline, picture())
    assert graph_measure.frames_per_second(pipeline, work, 5, clock.__next__) == 5 * 4 / 2.0


def test_each_stage_is_measured_as_a_graph(open_graph, engine, picture, cuda):
    pipeline = open_graph(engine)
    pipeline.warm_up(picture())
    before, runs, rounds = Counter(cuda.calls), engine.runs, 3
    times = graph_measure.stage_times(pipeline, graph_measure.Work.of(pipeline, picture()), rounds)
    assert list(times) == ['copy in', 'preprocess', 'inference', 'decode']
    calls = cuda.calls - before
    assert calls['cudaGraphLaunch'] == len(times) * (rounds + 5)
    assert calls['cudaGraphInstantiate'] == len(times) + 1
    assert engine.runs - runs == 2  # By the capture of the whole graph, and of this stage.


@pytest.fixture
def ranges(monkeypatch, tmp_path):
    """Return the ranges of this thread since the last call, as (depth, name)."""
    monkeypatch.setitem(sys.modules, 'nvtx', nvtx)
    monkeypatch.setenv('NVTX_LOG', str(tmp_path / 'ranges.txt'))
    seen = 0

    def new():
        nonlocal seen
        (found,) = nvtx.read_ranges().values()
        found, seen = found[seen:], len(found)
        return [(depth, name.removeprefix('trt_ros: ')) for depth, name in found]

    with recording():
        yield new


def test_ranges_cover_what_the_host_does_for_a_frame(open_graph, picture, ranges):
    pipeline = open_graph(frames_in_flight=1)
    for _ in range(2):
        pipeline.infer(picture(), Thresholds(0.5, 0.5, 50))
        steps = [each for each in ranges() if each[0] == 0]
        assert steps == [(0, name) for name in ('copy', 'enqueue', 'wait', 'decode')]
    pipeline.infer(picture(80, 60), Thresholds(0.5, 0.5, 50))
    assert ranges()[:2] == [(0, 'copy'), (1, 'capture')]
    graph_measure.host_times(pipeline, graph_measure.Work.of(pipeline, picture()), 1)
    assert ranges()[:4] == [(0, 'frame'), (1, 'copy'), (1, 'enqueue'), (1, 'wait')]


def test_without_a_graph_each_step_has_a_range(open_graph, picture, ranges):
    pipeline = open_graph(frames_in_flight=1, use_graph=False)
    pipeline.infer(picture(), Thresholds(0.5, 0.5, 50))
    ranges()
    pipeline.infer(picture(), Thresholds(0.5, 0.5, 50))
    assert ranges() == [
        (0, 'copy'),
        (0, 'enqueue'),
        *((1, name) for name in ('copy in', 'preprocess', 'inference', 'decode')),
        (0, 'wait'),
        (0, 'decode'),
    ]
