"""Runs that are launched before all that leads to them: the same results, in one launch."""

from dataclasses import replace
import weakref

import numpy as np
import pytest

from support.host_context import ASKED, image_bytes
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
