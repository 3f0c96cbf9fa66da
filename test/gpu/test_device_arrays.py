"""Images and tensors in GPU memory of other libraries, compared with the same on the host."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.device_arrays import OnGpu
from support.save_network import save_network
from trt_ros.cuda.calls import check, driver
from trt_ros.cuda.device import Gpu
from trt_ros.errors import BadFrameError
from trt_ros.families.registry import TENSORS
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.device_frame import DeviceFrame
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures('nothing_left')]

ASKED = Thresholds(score=0.5, iou=0.5, max_detections=50)
CYCLES = 1 << 30  # Of the GPU's clock: half a second.
PIXELS = np.random.default_rng(1).integers(0, 256, (480, 640, 3), np.uint8)


@pytest.fixture
def on_gpu(gpu: Gpu) -> Iterator[Callable[..., OnGpu]]:
    """Copy an array to the GPU, by the CUDA array interface."""
    made: list[OnGpu] = []

    def on_gpu(array: np.ndarray, **others: Any) -> OnGpu:
        made.append(OnGpu(array, gpu, **others))
        return made[-1]

    yield on_gpu
    for each in made:
        each.close()


@pytest.fixture
def torch(gpu: Gpu) -> Iterator[Any]:
    """PyTorch, whose calls make its GPU current."""
    torch = pytest.importorskip('torch')
    with gpu.context:
        if not torch.cuda.is_available():
            pytest.skip('PyTorch has no GPU')
        with torch.cuda.device(gpu.index):
            yield torch
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def assert_same(found: Any, expected: Any) -> None:
    assert len(expected) > 0
    assert np.array_equal(found.xyxy, expected.xyxy)
    assert np.array_equal(found.scores, expected.scores)


@pytest.mark.parametrize('unified_memory', ['off', 'on'])
@pytest.mark.parametrize('gpu_share', [0.0, 0.5])
def test_results_equal_those_of_images_on_the_host(open_graph, on_gpu, unified_memory, gpu_share):
    pipeline = open_graph(frames_in_flight=2, unified_memory=unified_memory, gpu_share=gpu_share)
    cases = [
        (pixels, encoding)
        for pixels, encoding in (
            (PIXELS, 'bgr8'),
            (PIXELS[40:400, 30:350], 'bgr8'),  # Padded rows.
            (PIXELS[..., 0].copy(), 'mono8'),
            (PIXELS[..., 1].copy(), 'nv12'),
            (PIXELS[..., :2].copy().view('<u2')[..., 0], 'mono16'),
        )
    ]
    expected = [pipeline(Frame.from_pixels(*each), ASKED) for each in cases]
    frames = [DeviceFrame(on_gpu(pixels), encoding) for pixels, encoding in cases]
    for _ in range(2):
        for frame, want in zip(frames, expected):
            assert_same(pipeline(frame, ASKED), want)
    for number in range(60):
        if number == 10:  # Both slots have seen all.
            before = pipeline.memory()
        first, second = number % len(frames), (number + 1) % len(frames)
        runs = [pipeline.submit(frames[each], ASKED) for each in (first, second)]
        for run, each in zip(runs, (first, second)):
            assert_same(run.result(), expected[each])
    assert pipeline.memory() == before


@pytest.mark.parametrize('gpu_share', [0.0, 0.5])
@pytest.mark.parametrize('has_dlpack', [True, False])
def test_the_copy_waits_for_the_stream_of_the_library(
    open_graph, torch, on_gpu, gpu_share, has_dlpack
):
    pipeline = open_graph(gpu_share=gpu_share, frames_in_flight=1)
    expected = pipeline(PIXELS, ASKED)
    final = torch.from_numpy(PIXELS).cuda()
    stream = torch.cuda.Stream()
    pixels = torch.zeros_like(final)
    given: Any = pixels
    if not has_dlpack:  # The interface of PyTorch does not tell the stream.
        given = on_gpu(PIXELS, **pixels.__cuda_array_interface__, stream=stream.cuda_stream)
    pipeline(given, ASKED)  # Captures the graph.
    for _ in range(2):
        pixels.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(CYCLES)
            pixels.copy_(final)
            run = pipeline.submit(given, ASKED)
            assert not stream.query()  # It sleeps: the result below has waited.
        assert_same(run.result(), expected)


def test_the_default_stream_is_waited_for_without_another_word(open_graph, torch, on_gpu):
    pipeline = open_graph()
    expected = pipeline(PIXELS, ASKED)
    final = torch.from_numpy(PIXELS).cuda()
    pixels = torch.zeros_like(final)
    given = on_gpu(PIXELS)
    given.__cuda_array_interface__ = pixels.__cuda_array_interface__
    assert 'stream' not in given.__cuda_array_interface__
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    pixels.copy_(final)
    assert_same(pipeline(given, ASKED), expected)


def test_memory_that_is_freed_on_the_host_or_too_short_is_refused(open_graph, on_gpu):
    pipeline = open_graph(frames_in_flight=1)
    expected = pipeline(PIXELS, ASKED)
    freed = on_gpu(PIXELS)
    at_host = on_gpu(PIXELS, data=(PIXELS.ctypes.data, True))
    short = on_gpu(PIXELS, shape=(1 << 20, 1 << 20, 3))
    freed.close()  # Nothing is allocated any more, which could take its place.
    for refused in (freed, at_host, short):
        with pytest.raises(BadFrameError) as error:
            pipeline(refused, ASKED)
        assert error.value.kind == 'no GPU memory'
        assert_same(pipeline(PIXELS, ASKED), expected)


def test_mapped_memory_as_that_of_cuda_buffers_of_ros_is_read(open_graph, gpu, on_gpu):
    """The CUDA backend of rosidl::Buffer maps its memory (cuMemCreate, cuMemMap)."""
    cuda = driver()
    where = cuda.CUmemLocation()
    where.type, where.id = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, gpu.index
    properties, access = cuda.CUmemAllocationProp(), cuda.CUmemAccessDesc()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = access.location = where
    kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    properties.requestedHandleTypes = kind
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    size = 2 << 20
    with gpu.context:
        handle = check(cuda.cuMemCreate(size, properties, 0), 'create memory')
        address = int(check(cuda.cuMemAddressReserve(size, 0, 0, 0), 'reserve addresses'))
        check(cuda.cuMemMap(address, size, 0, handle, 0), 'map memory')
        check(cuda.cuMemSetAccess(address, size, [access], 1), 'allow access')
        check(cuda.cuMemcpyHtoD(address, PIXELS.ctypes.data, PIXELS.nbytes), 'copy')
    given = on_gpu(PIXELS, data=(address, True))
    pipeline = open_graph()
    try:
        assert_same(pipeline(given, ASKED), pipeline(PIXELS, ASKED))
    finally:
        with gpu.context:
            check(cuda.cuMemUnmap(address, size), 'unmap memory')
            check(cuda.cuMemAddressFree(address, size), 'free addresses')
            check(cuda.cuMemRelease(handle), 'free memory')
    with pytest.raises(BadFrameError, match='not in GPU memory'):
        pipeline(given, ASKED)


@pytest.fixture
def difference(tmp_path: Path, gpu: Gpu) -> Iterator[Callable[[int], Pipeline]]:
    """Open a network that subtracts two vectors of a length."""
    opened: list[Pipeline] = []

    def open_network(size: int) -> Pipeline:
        shapes = {'a': (1, size), 'b': (1, size)}
        path = save_network(tmp_path / f'{size}.onnx', 'c = Sub(a, b)', shapes, {'c': (1, size)})
        options = {'backend': 'tensorrt_rtx', 'device': gpu.index, 'precision': 'fp32'}
        options['inputs'] = ('a=tensor:a', 'b=tensor:b')
        opened.append(Pipeline.open(path, families=TENSORS, **options))
        return opened[-1]

    yield open_network
    for pipeline in opened:
        pipeline.close()


@pytest.mark.parametrize('size', [14, 1 << 18], ids=['small', 'large'])
def test_tensors_on_the_gpu_and_on_the_host_give_the_same(difference, torch, on_gpu, size):
    pipeline = difference(size)
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(1, size)).astype(np.float32) for _ in range(2))
    late = torch.zeros((1, size), dtype=torch.float32, device='cuda')
    source = torch.from_numpy(a).cuda()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(2):
        for given in ({'a': a, 'b': b}, {'a': on_gpu(a), 'b': b}, {'a': a, 'b': on_gpu(b)}):
            assert np.array_equal(pipeline(given)['c'], a - b)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(CYCLES)
            late.copy_(source)
            run = pipeline.submit({'a': late, 'b': b})
        assert np.array_equal(run.result()['c'], a - b)
        late.zero_()
        torch.cuda.synchronize()


def test_a_library_that_owns_the_memory_may_drop_it_at_once(open_graph, torch):
    pipeline = open_graph(frames_in_flight=2)
    frames = [np.roll(PIXELS, 40 * number, axis=1) for number in range(20)]
    expected = [pipeline(each, ASKED) for each in frames]
    running: list[Any] = []
    for number, each in enumerate(frames):
        # Its allocator gives memory that is not referenced to the next tensor.
        running.append((number, pipeline.submit(torch.from_numpy(each).cuda(), ASKED)))
        if len(running) == 2:
            index, run = running.pop(0)
            assert_same(run.result(), expected[index])
    for index, run in running:
        assert_same(run.result(), expected[index])
