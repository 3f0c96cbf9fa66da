"""Shares of a GPU: SMs of their own, and what is created in which context."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.host_context import ASKED
from trt_ros.cuda.calls import CudaError
from trt_ros.cuda.device import open_gpu
from trt_ros.cuda.share import has_shares
from trt_ros.errors import BackendError, ParameterError


def test_shares_are_disjoint_and_return(cuda):
    first, second = open_gpu(0, 0.25), open_gpu(0, 0.74)
    assert str(first).endswith(', 8 of 36 SMs)') and str(second).endswith(', 16 of 36 SMs)')
    other = open_gpu(1, 1.0)
    assert cuda.greens == [[8], [8, 8], [8, 8, 8, 8]]
    with pytest.raises(ParameterError, match=r'gpu_share is 0\.5, but 0\.25 of the GPU is left'):
        open_gpu(0, 0.5)
    second.close()
    second.close()
    again = open_gpu(0, 0.6)
    assert again.launch_context is second.launch_context, 'contexts are kept'
    assert open_gpu(0, 0.01).launch_context.handle == 140
    for each in (first, again, other):
        each.close()
    assert has_shares(0) and not has_shares(1)


def test_without_a_share_all_is_as_before(cuda):
    gpu = open_gpu(0)
    assert gpu.launch_context is gpu.context and not cuda.greens and not has_shares(0)
    gpu.close()


@pytest.mark.parametrize('call', ['cuDeviceGetDevResource', 'cuGreenCtxCreate'])
def test_a_driver_that_cannot_split_is_named(cuda, call):
    cuda.fail[call] = 900
    with pytest.raises(BackendError, match=r'gpu_share 0\.5 cannot.*(?s:.*)stream_priority'):
        open_gpu(0, 0.5)
    assert not has_shares(0)


def test_an_old_cuda_python_is_named(cuda, monkeypatch):
    monkeypatch.delattr(type(cuda), 'CUdevResourceType')
    with pytest.raises(BackendError, match='cuda-python'):
        open_gpu(0, 0.5)


@pytest.mark.parametrize('frames_in_flight', [1, 2])
def test_a_pipeline_launches_in_its_share_and_waits_outside(
    cuda, open_graph, picture, frames_in_flight
):
    """The fake CUDA refuses streams, events, graphs and engines of another context."""
    pipeline = open_graph(gpu_share=0.5, stream_priority=-2, frames_in_flight=frames_in_flight)
    pipeline.warm_up(picture(100, 90))
    assert set(cuda.streams) == {-2} and cuda.calls['cuGreenCtxStreamCreate'] == frames_in_flight
    waiting = pipeline.start([picture(100, 90)], ASKED)
    # As another thread that launches meanwhile.
    with ThreadPoolExecutor(1) as thread, pipeline.gpu.launch_context:
        thread.submit(waiting.wait).result()
    assert '16 of 36 SMs' in pipeline.diagnostics()['GPU']
    pipeline.close()
    assert not has_shares(0) and not cuda._memory


def test_auxiliary_streams_have_the_priority_and_the_share(cuda, engine, open_graph, picture):
    engine.num_aux_streams = 2
    pipeline = open_graph(engine, gpu_share=0.5, stream_priority=-2)
    pipeline.warm_up(picture(100, 90))
    assert set(cuda.streams) == {-2} and len(cuda.streams) == len(pipeline.slots.all) + 2
    assert cuda.calls['cuGreenCtxStreamCreate'] == len(cuda.streams)
    for streams in engine.given_streams:
        assert len({*streams} - {slot.stream.handle for slot in pipeline.slots.all}) == 2
    assert engine.given_streams


def test_a_pipeline_that_fails_to_open_returns_its_share(cuda, open_graph):
    cuda.fail['cudaMalloc'] = 2
    with pytest.raises(CudaError, match='allocate'):
        open_graph(gpu_share=0.5)
    assert not has_shares(0)
