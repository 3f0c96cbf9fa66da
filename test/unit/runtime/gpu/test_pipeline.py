"""Captured graphs, memory, fallbacks and failures of a pipeline, on the stand-in for CUDA."""

from dataclasses import replace
import gc
import weakref

import numpy as np
import pytest

from support.fake_runner import model_of_image
from support.host_context import ASKED, HostContext, captured, image_bytes
from trt_ros.cuda.calls import CudaError, live
from trt_ros.decode.choice import choose_decoder
from trt_ros.errors import (
    BackendError,
    BadFrameError,
    ClosedError,
    GpuFailedError,
    TensorMismatchError,
)
from trt_ros.families.family import NetworkDescription
from trt_ros.families.registry import TENSORS
from trt_ros.runtime.gpu.staging import RequestArgs
from trt_ros.tensors import TensorSpec
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

DECODED = ['select_columns_float32', 'rank_float32', 'mask_upright', 'reduce_float32']


def request_of(slot):
    return RequestArgs.from_buffer(slot.memory.pinned.view.data)


@pytest.mark.parametrize(
    ('frames_in_flight', 'calls'),
    [(1, {'cudaEventSynchronize': 1}), (2, {'cudaMemcpyAsync': 1, 'cudaEventSynchronize': 1})],
)
def test_a_frame_releases_the_gil_only_where_it_may_wait(
    open_graph, cuda, picture, frames_in_flight, calls
):
    pipeline, frame = open_graph(frames_in_flight=frames_in_flight), picture()
    frame.data.flags.writeable = False
    pipeline.device.register(frame.data)
    for _ in range(frames_in_flight):
        pipeline.infer(frame, ASKED)
    cuda.releases.clear()
    pipeline.infer(frame, ASKED)
    assert +cuda.releases == calls


def test_the_images_bytes_reach_the_gpu(open_graph, cuda, picture, set_constants):
    for chunk_nbytes in (4096, 1 << 20):
        set_constants(CHUNK_NBYTES=chunk_nbytes)
        pipeline = open_graph(frames_in_flight=1)
        frame = picture()
        pipeline.infer(frame, ASKED)
        assert image_bytes(pipeline, cuda) == frame.data.tobytes()
        memory = pipeline.slots.all[0].memory
        request = np.frombuffer(bytes(cuda._memory[memory.image.ptr])[:8], np.float32)
        assert request.tolist() == [0.5, 0.5]


def test_every_encoding_and_step_has_its_own_graph(open_graph, picture):
    pipeline = open_graph(frames_in_flight=1)
    frame = picture(64, 64)
    wide = Frame(np.zeros(64 * 200, np.uint8), 64, 64, 200, 'bgr8')
    for each in (wide, frame, picture(64, 64, 'rgb8'), frame):
        pipeline.infer(each, ASKED)
    assert captured(pipeline).made == 3


def test_a_run_keeps_its_frames_until_its_result(open_graph, picture):
    pipeline = open_graph(frames_in_flight=2)
    frame = picture()
    memory = weakref.ref(frame)
    run = pipeline.submit(frame, ASKED)
    del frame
    gc.collect()
    assert memory() is not None  # The GPU may be reading it.
    run.result()
    gc.collect()
    assert memory() is None


def test_larger_image_discards_graphs_of_old_buffers(open_graph, picture):
    pipeline = open_graph(frames_in_flight=1)
    pipeline.infer(picture(100, 90), ASKED)
    pipeline.infer(picture(400, 300), ASKED)
    assert len(captured(pipeline)) == 1
    pipeline.infer(picture(100, 90), ASKED)
    assert len(captured(pipeline)) == 2


def test_least_recently_used_size_is_evicted_but_not_for_a_refused_image(
    open_graph, picture, set_constants
):
    set_constants(MAX_GRAPHS=2)
    pipeline = open_graph(frames_in_flight=1)
    for width in (200, 100, 120, 140):
        pipeline.infer(picture(width, 90), ASKED)
    with pytest.raises(BadFrameError, match='of depth images'):
        pipeline.infer(Frame.from_pixels(np.zeros((60, 80), np.float32), '32FC1'), ASKED)
    assert live()['graph'] == 2


def test_batches_are_powers_of_two_each_with_a_context_and_every_count_has_a_graph(
    open_graph, make_engine, picture
):
    pipeline = open_graph(make_engine(-1, max_batch=6), batch=6, frames_in_flight=1)
    for count in (6, 1, 2, 3, 4, 5, 6, 1, 3):
        found = pipeline.start([picture()] * count, ASKED).result()
        assert len(found) == count
    (slot,) = pipeline.slots.all
    assert [slot.buffers_for(count).batch for count in range(1, 7)] == [1, 2, 4, 4, 6, 6]
    assert [captured(pipeline, batch=batch).made for batch in (1, 2, 4, 6)] == [1, 1, 2, 2]


def test_batch_is_padded_with_last_image_in_place(open_graph, make_engine, cuda, picture):
    pipeline = open_graph(make_engine(4), batch=4, frames_in_flight=1)
    frames = [picture(100, 90), picture(120, 90)]
    pipeline.infer_all(frames, ASKED)
    (graph,) = captured(pipeline, batch=2)._kept.values()
    assert [piece.stop for piece in graph.pieces] == [frame.nbytes for frame in frames]
    assert len(graph.addresses.images) == len(graph.readers) == 2
    cuda.launched.clear()
    pipeline.infer_all(frames, ASKED)
    assert cuda.launched == ['preprocess'] * 4 + DECODED * 2


def test_cameras_of_other_sizes_share_a_graph_whatever_their_order(
    open_graph, make_engine, picture
):
    pipeline = open_graph(make_engine(-1), batch=2, frames_in_flight=1)
    frames = [picture(100, 90), picture(120, 90)]
    for each in (frames, frames[::-1]):
        pipeline.infer_all(each, ASKED)
    assert captured(pipeline, batch=2).made == 1


def test_a_batch_beyond_the_profile_is_refused_and_the_slot_free_again(open_graph, picture):
    pipeline = open_graph(frames_in_flight=1)
    with pytest.raises(TensorMismatchError, match='2 images exceed the maximum batch size of 1'):
        pipeline.start([picture()] * 2, ASKED)
    pipeline.infer(picture(), ASKED)


@pytest.mark.parametrize(
    'size, batch, launches, line',
    [
        (-1, 3, 2, 'batch size: up to 3 images per run'),
        (-1, 8, 2, 'batch size: up to 4 images per run'),  # The profile takes no more.
        (4, 3, 2, 'fixed batch size 4: smaller batches are padded'),
        (1, 3, 5, 'batch size 1: the network accepts one image per run'),
    ],
)
def test_images_take_fewest_launches_that_engine_allows(
    open_graph, make_engine, cuda, picture, size, batch, launches, line
):
    pipeline = open_graph(make_engine(size), batch=batch)
    pipeline.warm_up(picture())
    before = cuda.calls['cudaGraphLaunch'], cuda.calls['cudaMalloc']
    assert len(pipeline.infer_all([picture()] * 5, ASKED)) == 5
    assert len(pipeline.infer(picture(), ASKED).scores) == 0
    # What may come has its context and memory since the warming up.
    assert (cuda.calls['cudaGraphLaunch'], cuda.calls['cudaMalloc']) == (
        before[0] + launches + 1,
        before[1],
    )
    assert line in pipeline.log_lines


def test_rejects_output_without_batch_with_remedy(open_graph, make_engine):
    engine = make_engine(-1)
    engine.create_execution_context = lambda strategy: HostContext(
        engine, lambda *_: None, lambda *_: (1, 7, 96)
    )
    pipeline = open_graph(engine, batch=2)
    with pytest.raises(
        TensorMismatchError,
        match=r'output0 has shape \(1, 7, 96\) for a batch of 2(?s:.*)'
        'Set max_batch_size to 1',
    ):
        pipeline.warm_up()


def test_batches_in_two_slots_use_one_context_and_wait_for_each_other(
    open_graph, make_engine, cuda, picture
):
    pipeline = open_graph(make_engine(-1), batch=4, frames_in_flight=2)
    pipeline.warm_up(picture())
    first, second = pipeline.slots.all
    assert first.buffers_for(4) is second.buffers_for(4)
    assert first.captured(first.buffers_for(4)) is not second.captured(second.buffers_for(4))
    before = cuda.calls['cudaStreamWaitEvent']
    pending = [pipeline.start([picture()] * count, ASKED) for count in (4, 3)]
    assert cuda.calls['cudaStreamWaitEvent'] == before + 1
    assert [len(each.result()) for each in pending] == [4, 3]


def test_slots_alternate_and_serialise_on_shared_scratch_memory(open_graph, cuda, picture):
    pipeline = open_graph(frames_in_flight=2)
    pipeline.warm_up(picture())
    before = cuda.calls['cudaStreamWaitEvent']
    pending = [pipeline.start([picture()], ASKED) for _ in range(2)]
    for each in pending:
        each.wait()
    pipeline.infer(picture(), ASKED)  # A frame that has ended is not waited for.
    assert cuda.calls['cudaStreamWaitEvent'] - before == 1


@pytest.mark.parametrize('is_capturable, reason', [(False, 'cannot be'), (True, 'end a capture')])
def test_without_a_capture_the_network_runs_without_graph_and_logs_the_reason(
    open_graph, engine, cuda, picture, is_capturable, reason
):
    engine.is_capturable = is_capturable
    if is_capturable:
        cuda.fail['cudaStreamEndCapture'] = 900
    pipeline = open_graph(engine, frames_in_flight=1)
    pipeline.infer(picture(), ASKED)
    assert cuda.calls['cudaGraphLaunch'] == 0
    assert cuda.launched[-1] == DECODED[-1]
    assert reason in pipeline.log_lines[-1]


def test_sticky_error_fails_pipeline_and_is_reported_once(open_graph, engine, cuda, picture):
    faults: list[GpuFailedError] = []
    pipeline = open_graph(engine, frames_in_flight=1)
    pipeline.device.on_fault(faults.append)
    pipeline.infer(picture(), ASKED)
    cuda.fail['cudaEventSynchronize'] = 700
    for _ in range(2):
        with pytest.raises(GpuFailedError, match='cudaErrorIllegalAddress'):
            pipeline.infer(picture(), ASKED)
    assert len(faults) == 1
    pipeline.close()
    assert not engine.is_closed  # TensorRT would crash.


def test_non_sticky_error_fails_only_its_frame(open_graph, cuda, picture):
    pipeline = open_graph(frames_in_flight=1)
    pipeline.infer(picture(), ASKED)
    cuda.fail['cudaGraphLaunch'] = 2
    with pytest.raises(CudaError, match='launch a graph'):
        pipeline.infer(picture(), ASKED)
    pipeline.infer(picture(), ASKED)


def test_tensorrt_execution_error_includes_its_message(open_graph, engine, picture):
    engine.refuses = True
    pipeline = open_graph(engine, frames_in_flight=1)
    with pytest.raises(BackendError, match=r'(?s)could not run.*the fake refused'):
        pipeline.infer(picture(), ASKED)


def table_on_gpu(cuda, slot):
    """The minimum scores by class that the kernels of the slot's last run have read."""
    memory = bytes(cuda._memory[slot.memory.image.ptr])
    size = RequestArgs.from_buffer_copy(memory).table_size
    return np.frombuffer(memory[32 : 32 + 4 * size], np.float32).tolist()


@pytest.mark.parametrize('in_registered_memory', [False, True])
def test_chosen_classes_change_while_a_frame_is_in_flight(
    in_registered_memory, open_graph, cuda, picture
):
    pipeline = open_graph(frames_in_flight=2)
    frame = picture()
    if in_registered_memory:
        ring = frame.data.copy()
        pipeline.device.register(ring)
        frame = Frame(ring, frame.width, frame.height, frame.step, frame.encoding)
    for each in [pipeline.start([frame], ASKED) for _ in range(2)]:
        each.wait()
    made = [captured(pipeline, slot).made for slot in range(2)]
    asked = [
        replace(ASKED, classes=['2']),
        replace(ASKED, class_scores={'0': 0.75, '1': 0.25}, class_agnostic=True),
    ]
    pending = [pipeline.start([frame], ClassThresholds.of(each, ())) for each in asked]
    first, second = pipeline.slots.all
    for each in pending:
        each.wait()
    assert table_on_gpu(cuda, first) == [np.inf, np.inf, 0.5]
    assert request_of(first).score_threshold == np.inf
    assert table_on_gpu(cuda, second) == [0.75, 0.25]
    assert (request_of(second).score_threshold, request_of(second).class_agnostic) == (0.5, 1)
    pipeline.infer(frame, ASKED)
    assert table_on_gpu(cuda, first) == []
    assert request_of(first).class_agnostic == 0
    assert [captured(pipeline, slot).made for slot in range(2)] == made


def test_thresholds_of_every_run_reach_the_gpu(open_graph, picture):
    pipeline = open_graph(frames_in_flight=1)
    (slot,) = pipeline.slots.all
    frame, large = picture(), picture(400, 300)
    strict = replace(ASKED, score=0.75, max_detections=5000)
    runs = [(frame, ASKED), (frame, strict), (frame, ASKED), (frame, ASKED), (large, ASKED)]
    for image, thresholds in [*runs, (frame, ASKED), (large, strict), (frame, strict)]:
        pipeline.infer(image, thresholds)
        assert request_of(slot).score_threshold == thresholds.score
        assert request_of(slot).max_detections == thresholds.max_detections
    memory = slot.memory
    pipeline.infer(picture(800, 600), strict)
    assert slot.memory is not memory
    assert request_of(slot).score_threshold == strict.score


def test_request_is_written_again_after_an_image_in_other_memory(open_graph, picture):
    pipeline = open_graph(frames_in_flight=1)
    (slot,) = pipeline.slots.all
    memory = np.zeros(1 << 16, np.uint8)
    pipeline.device.register(memory)
    lent = Frame(memory[: 64 * 48 * 3], 64, 48, 192, 'bgr8')
    for frame, zero_copy in ((lent, 1), (picture(64, 48), 1), (lent, 2), (lent, 3)):
        pipeline.infer(frame, ASKED)
        assert pipeline.zero_copy_frames == zero_copy
        assert request_of(slot).score_threshold == ASKED.score


def test_a_class_of_a_high_index_makes_room_for_the_table(open_graph, cuda, picture):
    pipeline = open_graph(frames_in_flight=1)
    frame = picture()
    pipeline.infer(frame, ASKED)
    some = ClassThresholds.of(replace(ASKED, classes=['999']), ())
    pipeline.infer(frame, some)
    (slot,) = pipeline.slots.all
    assert table_on_gpu(cuda, slot) == [np.inf] * 999 + [0.5]
    assert bytes(cuda._memory[slot.memory.image.ptr])[4096:].startswith(frame.data.tobytes())
    pipeline.infer(frame, ASKED)
    assert image_bytes(pipeline, cuda).startswith(frame.data.tobytes())


def test_result_is_not_read_once_the_pipeline_is_closed(open_graph, cuda, picture):
    pipeline = open_graph(frames_in_flight=1)
    pending = pipeline.start([picture()], ASKED)
    cuda.before['cudaEventSynchronize'] = pipeline.close  # Its wait for the frame is over at once.
    with pytest.raises(ClosedError, match='The pipeline is closed'):
        pending.result()


def test_image_after_a_refused_one_has_its_thresholds(open_graph, picture):
    pipeline = open_graph(frames_in_flight=1)
    (slot,) = pipeline.slots.all
    depth = Frame(np.zeros(400 * 300 * 4, np.uint8), 400, 300, 1600, '32FC1')
    for refused in ([], [depth], [depth, depth]):
        for each in refused:
            with pytest.raises(BadFrameError, match='32FC1 is of depth images'):
                pipeline.infer(each, ASKED)
        pipeline.infer(picture(), ASKED)
        assert request_of(slot).score_threshold == ASKED.score


def test_outputs_without_batch_axis_reach_decoder_whole(engine, open_fitted, picture):
    engine.outputs = (TensorSpec('any', (7, 5), 'float32', 'output'),)
    decoder = choose_decoder(
        'auto', NetworkDescription(engine.inputs, engine.outputs, {}, (64, 96)), TENSORS
    )
    fitted = model_of_image(engine, Preprocess((64, 96)), decoder)
    assert open_fitted(engine, fitted).infer(picture(), ASKED)['any'].shape == (7, 5)


def test_buffers_of_new_batch_size_wait_for_run_in_their_memory(
    open_graph, make_engine, cuda, picture
):
    pipeline = open_graph(make_engine(-1), batch=4, frames_in_flight=2)
    pending = [pipeline.start([picture()] * 4, ASKED)]
    before = cuda.calls['cudaStreamWaitEvent'], cuda.calls['cudaMemsetAsync']
    pending.append(pipeline.start([picture()] * 2, ASKED))
    assert cuda.calls['cudaMemsetAsync'] > before[1]
    # Before the decoder's counters are zeroed, before the first run, and before the launch.
    assert cuda.calls['cudaStreamWaitEvent'] == before[0] + 3
    for each in pending:
        each.wait()
