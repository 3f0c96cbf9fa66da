"""What is measured, on a CUDA that runs on the host: how many images each run takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trt_ros.cuda.graphs import Graph
from trt_ros.runtime.gpu import measure as graph_measure
from trt_ros.runtime.gpu.frame_slot import FrameSlot


@pytest.fixture
def counts(monkeypatch):
    """List how many images each run brings in."""
    seen, bring = [], FrameSlot._bring
    monkeypatch.setattr(
        FrameSlot,
        '_bring',
        lambda self, frames, *args: (seen.append(len(frames)), bring(self, frames, *args))[1],
    )
    return seen


@pytest.mark.parametrize(('size', 'batch'), [(1, 1), (-1, 4), (4, 4)])
def test_every_run_uses_full_batch(open_graph, make_engine, picture, counts, size, batch):
    pipeline = open_graph(make_engine(size), batch=batch)
    pipeline.warm_up(picture())
    for measured in (
        graph_measure.graph_times,
        graph_measure.stage_times,
        graph_measure.host_times,
    ):
        del counts[:]
        times = measured(pipeline, graph_measure.Work.of(pipeline, picture()), 3)
        assert all(len(each) == 3 for each in times.values())
        assert set(counts) == {batch}
    assert graph_measure.measure(pipeline, picture(), rounds=3)['batch'] == batch


def test_the_rate_counts_images_not_runs(open_graph, make_engine, picture, counts, monkeypatch):
    pipeline = open_graph(make_engine(-1), batch=4)
    work = graph_measure.Work.of(pipeline, picture())
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(graph_measure, 'time', SimpleNamespace(perf_counter=clock.__next__))
    assert graph_measure.frames_per_second(pipeline, work, 5) == 5 * 4 / 2.0
    assert set(counts) == {4}


def test_each_stage_is_measured_as_a_graph(open_graph, make_engine, picture, monkeypatch):
    pipeline = open_graph(make_engine(1))
    pipeline.warm_up(picture())
    launches, enqueued, launch = [], [], Graph.launch
    monkeypatch.setattr(
        Graph, 'launch', lambda self, stream: (launches.append(self), launch(self, stream))[1]
    )
    execution = pipeline.slots.all[0].buffers_for(1).execution
    monkeypatch.setattr(type(execution), 'enqueue', lambda *_: enqueued.append(1))
    rounds = 3
    times = graph_measure.stage_times(pipeline, graph_measure.Work.of(pipeline, picture()), rounds)
    assert list(times) == ['copy in', 'preprocess', 'inference', 'decode']
    assert len(set(launches)) == len(times)
    assert len(launches) == len(times) * (rounds + 5)
    assert len(enqueued) == 2  # By the capture of the whole graph, and of this stage.
