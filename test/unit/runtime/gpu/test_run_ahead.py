"""Runs that are launched before all that leads to them: the same results, in one launch."""

from dataclasses import replace
import threading
import weakref

import numpy as np
import pytest

from support.host_context import ASKED, image_bytes
from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.errors import BackendError
from trt_ros.vision.frame import Frame


@pytest.fixture
def lend(picture):
    """Return a function that returns an image in registered memory of a pipeline."""
    registered = []

    def lend(pipeline, **options) -> Frame:
        frame = picture(**options)
        frame = frame.with_data(frame.data + np.uint8(len(registered)))
        pipeline.device.register(frame.data)
        registered.append((pipeline, frame))
        return frame

    yield lend
    for pipeline, frame in registered:
        pipeline.device.unregister(frame.data)


@pytest.fixture
def pipeline(open_graph, lend):
    """A pipeline whose last image was in registered memory."""
    pipeline = open_graph(frames_in_flight=1)
    pipeline.infer(lend(pipeline), ASKED)
    return pipeline


@pytest.fixture
def late(cuda, monkeypatch):
    """Graphs run when they are waited for from now on; return those that are to run."""
    pending = []

    def launch(self, graph, stream):
        pending.append(lambda: [work() for work in self._graphs[graph]])
        return ()

    def run_all():
        while pending:
            pending.pop(0)()

    monkeypatch.setattr(type(cuda), '_do_cudaGraphLaunch', launch)
    for name in ('cudaStreamSynchronize', 'cudaEventSynchronize'):
        cuda.before[name] = run_all
    return pending


def launches(cuda, work) -> int:
    before = cuda.calls['cudaGraphLaunch']
    work()
    return cuda.calls['cudaGraphLaunch'] - before


def test_the_next_run_takes_over_what_was_launched_ahead(pipeline, lend, cuda):
    frame = lend(pipeline)
    for _ in range(2):
        assert launches(cuda, lambda: pipeline.run_ahead(frame.data, 0)) == 1
        assert image_bytes(pipeline, cuda).startswith(frame.data.tobytes())
        assert launches(cuda, lambda: pipeline.infer(frame, ASKED)) == 0
    assert launches(cuda, lambda: pipeline.infer(frame, ASKED)) == 1
    assert pipeline.zero_copy_frames == pipeline.frames == 4


@pytest.mark.parametrize('other', ['image', 'thresholds', 'size', 'encoding', 'memory'])
def test_a_run_of_something_else_is_launched(pipeline, lend, picture, cuda, other):
    ahead = lend(pipeline)
    frame = {
        'image': lambda: lend(pipeline),
        'size': lambda: lend(pipeline, width=128),
        'encoding': lambda: lend(pipeline, encoding='rgb8'),
        'memory': picture,
    }.get(other, lambda: ahead)()
    asked = replace(ASKED, score=0.7) if other == 'thresholds' else ASKED
    pipeline.run_ahead(ahead.data, 0)
    assert launches(cuda, lambda: pipeline.infer(frame, asked)) >= 1
    assert image_bytes(pipeline, cuda).startswith(frame.data.tobytes())


@pytest.mark.parametrize('other', ['not registered', 'smaller'])
def test_what_a_run_ahead_reads_stays_until_it_has(pipeline, lend, picture, cuda, request, other):
    ahead = lend(pipeline)
    frame = picture(80, 60) if other == 'not registered' else lend(pipeline, width=32, height=24)
    for each in (frame, ahead):  # Both graphs are captured.
        pipeline.infer(each, ASKED)
    ((_, word, _),) = pipeline.slots.all[0]._last.captured.words
    late, seen = request.getfixturevalue('late'), []
    pipeline.run_ahead(ahead.data, 0)
    late[:] = [lambda: seen.append(int(word[0]))]  # Instead of reading there.
    pipeline.infer(frame, ASKED)
    assert seen == [ahead.data.ctypes.data]
    assert image_bytes(pipeline, cuda).startswith(frame.data.tobytes())


def test_what_was_launched_of_a_run_ahead_that_fails_stays_until_it_has(
    open_graph, engine, lend, cuda, monkeypatch
):
    pipeline, seen = open_graph(engine, frames_in_flight=1, use_graph=False), []
    frame, ahead = lend(pipeline, width=32, height=24), lend(pipeline)
    for each in (frame, ahead):
        pipeline.infer(each, ASKED)
    ((_, word, _),) = pipeline.slots.all[0]._last.captured.words
    engine.refuses = True
    with monkeypatch.context() as context:
        context.setattr(cuda, '_put', lambda work: seen.append('late') or ())
        pipeline.run_ahead(ahead.data, 0)
    assert seen  # Not all stages failed.
    engine.refuses, seen[:] = False, []
    cuda.before['cudaStreamSynchronize'] = lambda: seen.append(int(word[0]))
    pipeline.infer(frame, ASKED)
    assert seen[:1] == [ahead.data.ctypes.data]
    assert image_bytes(pipeline, cuda).startswith(frame.data.tobytes())


def test_one_run_is_launched_ahead_at_most(pipeline, lend, cuda):
    frame = lend(pipeline)
    assert launches(cuda, lambda: [pipeline.run_ahead(frame.data, 0) for _ in range(9)]) == 1


def test_nobody_waits_for_a_capture(pipeline, lend, picture, cuda):
    frame, waited = lend(pipeline), []

    def capturing():
        thread = threading.Thread(target=pipeline.run_ahead, args=[frame.data, 0])
        thread.start()
        thread.join(DEADLINE_SECONDS)
        waited.append(thread.is_alive())

    cuda.before['cudaStreamBeginCapture'] = capturing
    pipeline.infer(picture(90, 60), ASKED)
    assert waited == [False]


def test_closing_waits_for_a_launch_ahead(open_graph, lend, cuda):
    pipeline = open_graph(frames_in_flight=1, gpu_timeout=DEADLINE_SECONDS)
    frame, closed = lend(pipeline), []
    pipeline.infer(frame, ASKED)
    thread = threading.Thread(target=lambda: pipeline.close() or closed.append(True))

    def launching():
        thread.start()
        wait_until(lambda: pipeline.slots._is_closed)
        assert not closed

    cuda.before['cudaGraphLaunch'] = launching
    pipeline.run_ahead(frame.data, 0)
    thread.join()
    assert closed


def test_a_stage_that_fails_ahead_is_reported_by_the_run(open_graph, engine, lend):
    pipeline = open_graph(engine, frames_in_flight=1, use_graph=False)
    frame = lend(pipeline)
    pipeline.infer(frame, ASKED)
    engine.refuses = True
    pipeline.run_ahead(frame.data, 0)
    with pytest.raises(BackendError):
        pipeline.infer(frame, ASKED)


def test_nothing_is_launched_while_a_result_is_awaited_or_read(pipeline, lend, cuda):
    frame = lend(pipeline)
    run = pipeline.submit(frame, ASKED)
    assert launches(cuda, lambda: pipeline.run_ahead(frame.data, 0)) == 0
    read, seen = pipeline._read, []
    pipeline._read = lambda *args: (
        seen.append(launches(cuda, lambda: pipeline.run_ahead(frame.data, 0))) or read(*args)
    )
    run.result()
    pipeline.infer(frame, ASKED)
    assert seen == [0]


def test_nothing_is_launched_for_memory_that_is_not_registered(pipeline, picture, cuda):
    assert launches(cuda, lambda: pipeline.run_ahead(picture().data, 0)) == 0


@pytest.mark.parametrize('options', [{'frames_in_flight': 2}, {'unified_memory': 'on'}])
def test_other_pipelines_do_not_run_ahead(open_graph, lend, cuda, options):
    pipeline = open_graph(**{'frames_in_flight': 1, **options})
    frame = lend(pipeline)
    for _ in pipeline.slots.all:
        pipeline.infer(frame, ASKED)
    assert launches(cuda, lambda: pipeline.run_ahead(frame.data, 0)) == 0


def test_memory_is_kept_until_a_run_so_that_no_other_image_can_be_there(pipeline, lend):
    block = np.zeros(1 << 17, np.uint8)
    pipeline.device.register(block)
    frame = lend(pipeline)
    message = block[: frame.nbytes + 52]
    message[52:] = frame.data
    kept = weakref.ref(message)
    pipeline.run_ahead(message, 52)
    del message
    assert kept() is not None
    pipeline.infer(frame, ASKED)
    assert kept() is None
    pipeline.device.unregister(block)


def test_a_launch_that_fails_is_reported_by_the_run(pipeline, lend, cuda):
    frame = lend(pipeline)
    cuda.fail['cudaGraphLaunch'] = 2
    pipeline.run_ahead(frame.data, 0)
    assert launches(cuda, lambda: pipeline.infer(frame, ASKED)) == 1


def test_closing_waits_for_what_was_launched_ahead(pipeline, lend, cuda):
    frame = lend(pipeline)
    pipeline.run_ahead(frame.data, 0)
    pipeline.device.unregister(frame.data)
    waits = cuda.calls['cudaStreamSynchronize']
    pipeline.close()
    assert cuda.calls['cudaStreamSynchronize'] > waits
    pipeline.run_ahead(frame.data, 0)
