"""Several GPUs in one process: each call goes to its own, whatever thread makes it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
import gc
import threading

import numpy as np
import pytest

from support.host_context import ASKED
from support.waiting import DEADLINE_SECONDS
from trt_ros.cuda.calls import current_context
from trt_ros.cuda.device import Event, Stream, open_gpu
from trt_ros.cuda.memory import Account, DeviceBuffer, PinnedBuffer
from trt_ros.driver import device_order
from trt_ros.errors import GpuFailedError

TENSORS = {'images': np.zeros((1, 3, 64, 96), np.float32)}


def in_thread(work) -> None:
    """Run `work` in a thread of its own, whose id later threads get again."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(work).result()


def test_thread_with_reused_id_has_gpu_context(open_graph, cuda, picture, set_constants):
    set_constants(COPY_THREADS=2, CHUNK_NBYTES=4096)
    pipeline = open_graph(device=1)
    for size in (100, 120, 140, 400):  # Each is captured anew; the last makes memory grow.
        in_thread(lambda size=size: pipeline.infer(picture(size, 90), ASKED))
    assert cuda.used == {1}


@pytest.mark.parametrize('order', [(0, 1), (1, 0)])
def test_one_thread_serves_pipelines_on_two_gpus(order, open_graph, cuda, picture):
    pipelines = [open_graph(device=device, frames_in_flight=2) for device in order]
    for width in (100, 120):
        for pipeline in pipelines:
            cuda.used.clear()
            pipeline.warm_up(picture(width, 90))
            pipeline.infer(picture(400, 90 + width), ASKED)
            assert cuda.used == {pipeline.gpu.index}
    assert cuda.current is None


def test_memory_that_several_pipelines_read_is_page_locked_once(open_graph, cuda, picture):
    pipelines = [open_graph(device=device) for device in (0, 0, 1)]
    frame = picture()
    for pipeline in (*pipelines, pipelines[2]):  # Two subscriptions of the last one read it.
        pipeline.device.register(frame.data)
    assert list(cuda.registered) == [frame.data.ctypes.data]
    for pipeline in pipelines:
        pipeline.device.unregister(frame.data)
        assert cuda.registered
        pipeline.infer(picture(), ASKED)
        pipeline.infer(frame, ASKED)
    counts = [pipeline.diagnostics()['zero-copy frames'] for pipeline in pipelines]
    assert counts == ['0 of 2', '0 of 2', '1 of 2']
    pipelines[2].close()
    assert not cuda.registered


@pytest.mark.parametrize('order', [(0, 1), (1, 0)])
def test_one_thread_serves_tensors_on_two_gpus(order, make_engine, network_of):
    runners = [network_of(make_engine(), device=device) for device in order]
    for _ in range(2):
        for runner in runners:
            runner.infer(TENSORS)
            in_thread(lambda runner=runner: runner.infer(TENSORS))
    for runner in runners:
        in_thread(runner.close)


def test_garbage_is_freed_on_its_own_gpu_during_work_on_another(cuda):
    first, second = open_gpu(0), open_gpu(1)
    account = Account()
    with second.context:
        made = [DeviceBuffer(10, 'a', account), PinnedBuffer(10, 'a', account), Event(), Stream()]
    with first.context:
        made.clear()
        gc.collect()
        assert cuda.current == 0
    assert account.report() == {'device': {}, 'pinned': {}}
    assert not cuda._memory


def test_memory_without_a_gpu_is_a_bug_and_not_memory_of_gpu_0(cuda):
    open_gpu(1)
    with pytest.raises(RuntimeError, match=r'No GPU is current here: .*gpu\.context'):
        DeviceBuffer(10, 'a', Account())


def test_contexts_nest_and_restore_previous(cuda):
    first, second = open_gpu(0), open_gpu(1)
    with first.context:
        with second.context, pytest.raises(ValueError), first.context:
            raise ValueError
        assert int(current_context().handle) == int(first.context.handle)
        assert cuda.current == 0
    assert cuda.current is None


def test_gpu_name_includes_pci_address(cuda, monkeypatch):
    for order, named in (
        ('PCI_BUS_ID', ''),
        ('FASTEST_FIRST', ' in CUDA_DEVICE_ORDER=FASTEST_FIRST'),
    ):
        monkeypatch.setenv('CUDA_DEVICE_ORDER', order)
        device_order.cache_clear()
        assert str(open_gpu(1)) == f'Fake GPU (sm_90, device 1{named}, PCI 0000:01:00.0)'
    monkeypatch.undo()
    device_order.cache_clear()


def test_a_sticky_error_fails_a_runner_of_tensors_and_is_reported_once(cuda, engine, network_of):
    faults: list[GpuFailedError] = []
    runner = network_of(engine)
    runner.faults.report_to(faults.append)
    runner.infer(TENSORS)
    cuda.fail['cudaEventSynchronize'] = 700
    for _ in range(2):
        with pytest.raises(GpuFailedError, match='cudaErrorIllegalAddress'):
            runner.infer(TENSORS)
    assert len(faults) == 1
    assert engine.is_retired  # No later pipeline shares it.
    runner.close()
    assert not engine.is_closed  # TensorRT would crash.


def test_an_error_that_is_not_sticky_ends_one_run_of_tensors(cuda, engine, network_of):
    with closing(network_of(engine)) as runner:
        cuda.fail['cudaMalloc'] = 2
        with pytest.raises(Exception, match='requested'):
            runner.infer(TENSORS)
        assert not engine.is_retired
        assert runner.infer(TENSORS)['output0'].shape == (1, 7, 96)


def test_tensor_timeout_fails_runner(cuda, engine, network_of):
    is_late, release = threading.Event(), threading.Event()
    cuda.before['cudaEventSynchronize'] = lambda: release.wait(DEADLINE_SECONDS)
    runner = network_of(engine, gpu_timeout=0.02)
    runner.faults.report_to(lambda _: is_late.set())
    thread = threading.Thread(target=runner.infer, args=(TENSORS,))
    thread.start()
    assert is_late.wait(DEADLINE_SECONDS)
    release.set()
    thread.join()
    with pytest.raises(GpuFailedError, match='has not responded'):
        runner.infer(TENSORS)
    assert engine.is_retired
    runner.close()
    assert engine.is_closed


def test_fault_before_subscription_is_reported(open_graph):
    faults: list[GpuFailedError] = []
    pipeline = open_graph(device=1)
    pipeline.faults.fail(GpuFailedError('It is gone.'))
    pipeline.faults.report_to(faults.append)
    assert [fault.problem for fault in faults] == ['It is gone.']
    with pytest.raises(GpuFailedError, match='It is gone'):
        pipeline.warm_up()


def test_receive_buffers_are_given_back_after_a_capture_in_progress(open_graph, cuda, picture):
    pipeline, order = open_graph(), []
    ring = np.zeros(4096, np.uint8)
    pipeline.device.register(ring)
    thread = threading.Thread(target=pipeline.device.unregister, args=(ring,))

    def end_capture():
        if not thread.ident:
            thread.start()
            thread.join(0.05)  # CUDA would refuse to synchronize here.
            order.append('end of the capture')

    cuda.before['cudaStreamEndCapture'] = end_capture
    cuda.before['cudaDeviceSynchronize'] = lambda: order.append('synchronization')
    pipeline.infer(picture(), ASKED)
    thread.join(DEADLINE_SECONDS)
    assert order == ['end of the capture', 'synchronization']


def test_tensor_runner_uses_requested_priority_and_wait(cuda, engine, network_of):
    network = network_of(engine, stream_priority=-3, gpu_wait='block')
    with closing(network) as runner:
        runner.infer(TENSORS)
        assert cuda.streams == [-3]
        assert cuda.event_flags[-1] & cuda.cudaEventBlockingSync
        assert cuda.calls['cudaEventSynchronize'] == 1
