"""A frame through one CUDA graph: the same boxes as the CPU, whatever comes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import ctypes
from dataclasses import replace
import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from support.host_context import captured
from trt_ros.cuda.calls import CudaError, check, live, runtime
from trt_ros.decode.choice import choose_decoder
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import GpuFailedError
from trt_ros.families.family import NetworkDescription
from trt_ros.ros.dds.memory import allocate_shared, map_shared
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.runtime.gpu.waiting import MAX_RUNS
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures('nothing_left')]

ASKED = Thresholds(score=0.5, iou=0.5, max_detections=50)
#: The GPU gets all rows of the first, every third row of the second, half of the third.
SIZES = [(160, 120), (288, 192), (384, 256)]
ON_CPU = {'gpu_decoder': lambda *_: None}


@pytest.fixture
def on_cpu(small_detector) -> Callable[[Frame], Any]:
    runner = OnnxRuntimeRunner.open(str(small_detector()))
    decoder = choose_decoder(
        'yolov8', NetworkDescription(runner.inputs, runner.outputs, runner.metadata, (64, 96))
    )
    preprocess = Preprocess((64, 96))

    def infer(frame: Frame, thresholds: Thresholds = ASKED):
        tensor, letterbox = preprocess(frame)
        return decoder(runner.infer({'images': tensor}), letterbox, thresholds)

    yield infer
    runner.close()


def picture(width=160, height=120, *, seed=0, encoding='bgr8') -> Frame:
    rng = np.random.default_rng(seed)
    if encoding == 'nv12':
        data = rng.integers(0, 256, width * height * 3 // 2, dtype=np.uint8)
        return Frame(data, width, height, width, 'nv12')
    return Frame.from_pixels(rng.integers(0, 256, (height, width, 3), dtype=np.uint8), encoding)


def assert_same(got, want) -> None:
    """Scores differ by rounding in the network, so equal ones may swap: compare by box."""
    assert len(want) > 0
    assert len(got) == len(want)
    order = np.lexsort((got.xyxy[:, 0], got.xyxy[:, 1], got.labels))
    other = np.lexsort((want.xyxy[:, 0], want.xyxy[:, 1], want.labels))
    assert got.labels[order].tolist() == want.labels[other].tolist()
    np.testing.assert_allclose(got.xyxy[order], want.xyxy[other], atol=0.1)
    np.testing.assert_allclose(got.scores[order], want.scores[other], atol=1e-3)


def test_the_graph_finds_what_the_cpu_finds(open_graph, on_cpu):
    pipeline = open_graph()
    assert (
        'CUDA graph' in pipeline.log_lines[-1] and 'decoding on the GPU' in pipeline.log_lines[-1]
    )
    for seed in range(5):
        frame = picture(seed=seed)
        assert_same(pipeline.infer(frame, ASKED), on_cpu(frame))


@pytest.mark.parametrize(
    'options',
    [
        dict(use_graph=False),
        dict(constants=ON_CPU),
        dict(unified_memory='on'),
        dict(frames_in_flight=1),
        dict(gpu_wait='block'),
        dict(gpu_wait='spin'),
        dict(stream_priority=-5),
        dict(constants={'CHUNK_NBYTES': 4096, 'COPY_THREADS': 3}),
        dict(constants={'CHUNK_NBYTES': 4096, 'COPY_THREADS': 0}),
        dict(unified_memory='on', constants={'CHUNK_NBYTES': 4096}),
    ],
)
def test_all_options_give_the_same_boxes(options, open_graph, on_cpu):
    pipeline = open_graph(**options)
    for seed in range(3):
        for size in SIZES:
            frame = picture(*size, seed=seed)
            assert_same(pipeline.infer(frame, ASKED), on_cpu(frame))


def test_a_new_size_or_encoding_is_captured_and_the_old_one_kept(open_graph, on_cpu):
    pipeline = open_graph(frames_in_flight=1)
    frames = [
        picture(),
        picture(200, 100),
        picture(161, 121, encoding='rgb8'),
        picture(160, 120, encoding='nv12'),
        picture(400, 300),
    ]
    for frame in frames:
        assert_same(pipeline.infer(frame, ASKED), on_cpu(frame))
    graphs = captured(pipeline)
    made = graphs.made
    for frame in frames:
        assert_same(pipeline.infer(frame, ASKED), on_cpu(frame))
    # The largest made the slot's memory grow, which dropped the graphs before it.
    assert graphs.made == made + 4
    for frame in frames:
        pipeline.infer(frame, ASKED)
    assert graphs.made == made + 4


def test_chosen_classes_change_between_frames_in_flight(open_graph, on_cpu):
    pipeline, frame = open_graph(frames_in_flight=2), picture(seed=2)
    choices = [
        {},
        {'classes': ['1']},
        {'class_scores': {'1': 0.3, '2': 0.75}},
        {'class_agnostic': True},
        {'classes': ['0', '2'], 'class_scores': {'2': 0.6}, 'class_agnostic': True},
        {'classes': ['9']},
    ]
    asked = [
        ClassThresholds.of(replace(ASKED, max_detections=300, **choice), ()) for choice in choices
    ]
    assert [len(on_cpu(frame, each)) for each in asked] == [82, 4, 27, 81, 68, 0]
    made = [slot.captured(slot.buffers_for(1)).made for slot in pipeline.slots.all]
    for first, second in zip(asked, [*asked[1:], asked[0]]):
        pending = [pipeline.start([frame], each) for each in (first, second)]
        for each, thresholds in zip(pending, (first, second)):
            (got,), want = each.result(), on_cpu(frame, thresholds)
            if len(want):
                assert_same(got, want)
            assert len(got) == len(want)
    later = [slot.captured(slot.buffers_for(1)).made for slot in pipeline.slots.all]
    assert [after - before for before, after in zip(made, later)] == [1, 1]


def test_frames_under_way_in_two_slots_do_not_mix(open_graph, on_cpu):
    pipeline = open_graph(frames_in_flight=2)
    frames = [picture(seed=seed) for seed in range(10)]
    for first, second in zip(frames[::2], frames[1::2]):
        pending = [pipeline.start([frame], ASKED) for frame in (first, second)]
        for frame, each in zip((first, second), pending):
            assert_same(each.result()[0], on_cpu(frame))


def test_threads_may_share_a_pipeline(open_graph, on_cpu):
    pipeline = open_graph(frames_in_flight=2)
    frames = [picture(100 + 20 * seed, 90, seed=seed) for seed in range(4)]
    wants = [on_cpu(frame) for frame in frames]

    def work(index: int) -> None:
        for _ in range(50):
            assert_same(pipeline.infer(frames[index], ASKED), wants[index])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))


def test_a_hundred_frames_allocate_nothing(open_graph, used_nbytes):
    pipeline = open_graph()
    frames = [picture(seed=1), picture(200, 100)]
    for frame in frames * 4:
        pipeline.infer(frame, ASKED)
    before = live(), pipeline.memory(), used_nbytes(os.getpid())
    for _ in range(50):
        for frame in frames:
            pipeline.infer(frame, ASKED)
    assert (live(), pipeline.memory(), used_nbytes(os.getpid())) == before


def test_fifty_openings_leak_nothing_and_memory_is_reported_per_owner(open_graph):
    before = live()
    for _ in range(50):
        pipeline = open_graph(frames_in_flight=1)
        assert {'activations', 'slots', 'kernels', 'tensors', 'decoder'} <= set(
            pipeline.memory()['device']
        )
        assert {'slots', 'results'} <= set(pipeline.memory()['pinned'])
        pipeline.close()
        assert pipeline.memory() == {'device': {}, 'pinned': {}}
    assert live() == before


@pytest.mark.parametrize('is_shared', [False, True])
def test_registered_memory_is_read_where_it_lies(open_graph, on_cpu, is_shared):
    for unified_memory in ('off', 'on'):
        pipeline = open_graph(unified_memory=unified_memory)
        ring = written = np.zeros(1 << 20, np.uint8)
        if is_shared:  # Mapped twice, as by two processes.
            written, fd = allocate_shared(1 << 20)
            ring = map_shared(fd)
            os.close(fd)
        pipeline.device.register(ring)
        for seed, offset in enumerate((0, 61, 4097, 61)):
            frame = picture(*SIZES[seed % 3], seed=seed)
            written[offset : offset + frame.nbytes] = frame.data
            lying = frame.with_data(ring[offset : offset + frame.nbytes])
            assert_same(pipeline.infer(lying, ASKED), on_cpu(frame))
        assert pipeline.memory()['pinned']['receive buffers'] == ring.nbytes
        pipeline.device.unregister(ring)
        assert 'receive buffers' not in pipeline.memory()['pinned']
        pipeline.close()


def test_prepared_cameras_share_memory_of_largest_batch(open_graph, on_cpu, small_detector):
    path = small_detector('cameras.onnx', batch='batch')
    pipeline = open_graph(path, BuildOptions(precision='fp32', batch=4), batch=4)
    assert pipeline.max_batch == 4
    frames = [picture(), picture(200, 100, seed=1), picture(encoding='nv12', seed=2)]
    frames += [picture(90, 90, seed=3), picture(seed=4)]
    tensors = pipeline.memory()['device']['tensors']
    for count in (5, 1, 3, 4, 2):
        for got, frame in zip(pipeline.infer_all(frames[:count], ASKED), frames):
            assert_same(got, on_cpu(frame))
    assert pipeline.memory()['device']['tensors'] == tensors
    for _ in range(20):  # Two batches in flight in the same tensors.
        pending = [pipeline.submit_run(each, ASKED) for each in (frames[:4], frames[3:])]
        found = [result for each in pending for result in each.result()]
        for got, frame in zip(found, frames[:4] + frames[3:]):
            assert_same(got, on_cpu(frame))


def test_nan_and_inf_are_counted(open_graph, small_detector, caplog):
    for constants in ({}, ON_CPU):
        pipeline = open_graph(small_detector('inf.onnx', inf=True), constants=constants)
        before = pipeline.nonfinite.count
        pipeline.infer(picture(), ASKED)
        assert pipeline.nonfinite.count == before + 1
        assert 'NaN or infinite' in caplog.text
        pipeline.close()


def test_out_of_memory_reports_requested_and_free_bytes(open_graph):
    pipeline = open_graph(frames_in_flight=1)
    from trt_ros.cuda.memory import DeviceBuffer

    with (
        pytest.raises(CudaError, match=r'(?s)requested .* free .* of .*slots.*Remedy') as caught,
        pipeline.gpu.context,
    ):
        DeviceBuffer(1 << 50, 'slots', pipeline.account)
    assert not caught.value.is_sticky
    assert len(pipeline.infer(picture(), ASKED)) > 0  # Nothing is broken.


def hold_up(pipeline: GpuPipeline, work: Callable[[], object]) -> None:
    """Make the stream of the first slot wait for a function on the host."""
    hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: (work(), None)[1])
    pipeline.held = [*getattr(pipeline, 'held', []), hold]  # CUDA calls it later.
    address = ctypes.cast(hold, ctypes.c_void_p).value
    stream = pipeline.slots.all[0].stream.handle
    with pipeline.gpu.context:
        check(
            runtime().cudaLaunchHostFunc(stream, runtime().cudaHostFn_t(address), 0),
            'hold a stream',
        )


def test_event_is_done_after_the_work_before_it(open_graph):
    pipeline = open_graph(frames_in_flight=1)
    pipeline.infer(picture(), ASKED)
    done, release = pipeline.slots.all[0].done, threading.Event()
    hold_up(pipeline, lambda: release.wait(60))
    pending = pipeline.start([picture()], ASKED)
    with pipeline.gpu.context:
        assert not done.is_done()
        release.set()
        pending.result()
        assert done.is_done()


def test_long_runs_are_slept_through_with_the_same_boxes(open_graph, on_cpu):
    pipeline = open_graph(frames_in_flight=1, gpu_wait='adaptive')
    pipeline.infer(picture(), ASKED)
    sleeps = []
    pipeline.shared.waiting._sleep = lambda seconds: (sleeps.append(seconds), time.sleep(seconds))
    for seed in range(MAX_RUNS + 4):  # The first runs, which are shorter, are forgotten.
        frame = picture(seed=seed)
        hold_up(pipeline, lambda: time.sleep(0.005))
        assert_same(pipeline.infer(frame, ASKED), on_cpu(frame))
    assert max(sleeps) > 0.002


def test_unresponsive_gpu_is_detected(open_graph, bench):
    """A callback on the host holds the stream up, as a kernel without end would."""
    faults: list[GpuFailedError] = []
    reported = threading.Event()

    def on_fault(error: GpuFailedError) -> None:
        faults.append(error)
        reported.set()

    pipeline = open_graph(gpu_timeout=1.0, frames_in_flight=1, on_fault=on_fault)
    # Else the frame below would take memory first, and freeing waits for the stream.
    pipeline.infer(picture(), ASKED)
    release = threading.Event()
    hold_up(pipeline, lambda: release.wait(60))
    pending = pipeline.start([picture()], ASKED)
    assert reported.wait(60)
    release.set()
    pending.result()  # It did answer in the end; the pipeline stays failed all the same.
    assert 'has not responded' in str(faults[0])
    with pytest.raises(GpuFailedError, match='has not responded'):
        pipeline.infer(picture(), ASKED)


def test_the_runner_gives_the_outputs_of_onnx_runtime(gpu, small_detector):
    runner = open_tensor_runner(
        small_detector(),
        BuildOptions(precision='fp32'),
        device=gpu.index,
        stream_priority=-2,
        gpu_wait='block',
    )
    reference = OnnxRuntimeRunner.open(str(small_detector()))
    for seed in range(3):
        tensor = np.random.default_rng(seed).random((1, 3, 64, 96), np.float32)
        got = runner.infer({'images': tensor})['output0']
        want = reference.infer({'images': tensor})['output0']
        np.testing.assert_allclose(got, want, atol=0.05)  # Boxes in pixels; TF32 rounds.
    runner.close()
    reference.close()
