"""
A GPU for the tests, and the kernels one at a time.

TRT_ROS_TEST_DEVICE chooses the GPU (default 0). None is current outside of a test's own `with`
blocks, as in the threads of a node, and no other GPU may be used.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
import os
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.fake_runner import model_of_image
from support.kernels_on_cpu import decoder_of
from trt_ros.cuda.calls import check, driver, live
from trt_ros.cuda.device import Gpu, Stream, open_gpu
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import (
    Account,
    DeviceBuffer,
    PinnedBuffer,
    copy_async,
    fill_async,
    process_nbytes,
)
from trt_ros.decode.choice import choose_decoder
from trt_ros.decode.cuda.decoder import Addresses
from trt_ros.driver import nvidia_driver
from trt_ros.engine.cache import kernel_folder
from trt_ros.engine.files import locked
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import GpuFailedError
from trt_ros.families.family import NetworkDescription
from trt_ros.progress import Reporter
from trt_ros.runtime.gpu import preprocess as steps
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.runtime.gpu.staging import header_nbytes, write_request
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.regions import Crop, Tiles
from trt_ros.vision.thresholds import Thresholds

HALF = Thresholds(0.5, 0.5, 300)


@pytest.fixture(scope='session')
def gpu() -> Gpu:
    device = int(os.environ.get('TRT_ROS_TEST_DEVICE', '0'))
    if len(nvidia_driver().gpus) <= device:
        pytest.skip(f'no NVIDIA GPU {device}')
    return open_gpu(device)


@pytest.fixture(autouse=True)
def no_other_gpu(gpu) -> Iterator[None]:
    """Nothing makes a context on a GPU that was not asked for."""
    yield
    used = [
        index
        for index in range(len(nvidia_driver().gpus))
        if check(driver().cuDevicePrimaryCtxGetState(index), 'ask whether a GPU is used')[1]
    ]
    assert used == [gpu.index]
    assert not int(check(driver().cuCtxGetCurrent(), 'ask for the current GPU'))


@pytest.fixture
def nothing_left(gpu) -> Iterator[None]:
    """What a test opens, it closes."""
    before = live()
    yield
    assert live() == before


@pytest.fixture
def used_nbytes(gpu) -> Callable[[int], int]:
    """
    Return the GPU memory that a process holds, by its id.

    Where NVML lists no processes (containers, WSL, Jetson), it is that of the whole GPU, and the
    test is skipped beside others.
    """
    from cuda.core import system

    device = system.Device(pci_bus_id=gpu.pci_bus_id)
    with gpu.context:
        is_listed = process_nbytes(device) > 0
    if not is_listed and 'PYTEST_XDIST_WORKER' in os.environ:
        pytest.skip('NVML lists no processes, and others use the GPU: ./dev test -m gpu test/gpu')

    def used(process: int) -> int:
        return process_nbytes(device, process) if is_listed else int(device.memory_info.used)

    return used


@pytest.fixture(scope='session')
def bench(gpu) -> Iterator[Any]:
    """
    A stream, an account and the kernels, for tests that run one kernel.

    The files of such tests are three groups of pytest-xdist, so that three processes, not all,
    wait for the compilation of all kernels.
    """
    with ExitStack() as owned:
        with gpu.context:
            stream = owned.enter_context(closing(Stream()))
            folder = kernel_folder()
            assert folder is not None
            with locked(folder, Reporter()):  # One process compiles, the others wait for it.
                made = {
                    name: owned.enter_context(closing(Kernels(name, gpu.arch, folder)))
                    for name in ('preprocess', 'decode')
                }
        yield SimpleNamespace(gpu=gpu, stream=stream, account=Account(), **made)


@pytest.fixture
def run_kernel(bench) -> Callable[..., np.ndarray]:
    """Return a function that launches kernels on arrays; every byte of the target is poisoned."""

    def run(out: np.ndarray, arrays: list[np.ndarray], launch: Callable[..., None]) -> np.ndarray:
        arrays = [np.ascontiguousarray(each) for each in arrays]
        with bench.gpu.context, ExitStack() as owned:
            target, *sources = (
                owned.enter_context(closing(DeviceBuffer(each.nbytes, 'test', bench.account)))
                for each in (out, *arrays)
            )
            handle = bench.stream.handle
            fill_async(target.ptr, 0xFF, out.nbytes, handle)
            for source, data in zip(sources, arrays):
                copy_async(source.ptr, data.ctypes.data, data.nbytes, handle)
            launch(handle, target.ptr, *(source.ptr for source in sources))
            copy_async(out.ctypes.data, target.ptr, out.nbytes, handle)
            bench.stream.synchronize()
        return out

    return run


@pytest.fixture
def preprocess_on_gpu(bench, run_kernel) -> Callable[..., np.ndarray]:
    """Run the preprocessing kernel."""

    def run(frame: Frame, preprocess: Preprocess, second: Frame | None = None) -> np.ndarray:
        frames = [frame] if second is None else [frame, second]
        geometries = [steps.Geometry.of(each) for each in frames]

        def launch(handle: int, target: int, *sources: int) -> None:
            for args in steps.preprocess_args(preprocess, geometries, sources, target):
                steps.launch_preprocess(bench.preprocess, args, handle)

        kind = 'uint16' if preprocess.dtype == 'bfloat16' else preprocess.dtype
        data = [each.data[: each.nbytes] for each in frames]
        return run_kernel(np.empty(preprocess.shape, kind), data, launch)

    return run


@pytest.fixture
def tiles_on_gpu(bench, run_kernel) -> Callable[[Frame, Tiles], np.ndarray]:
    """Run the preprocessing kernel on the tiles of a frame."""

    def run(frame: Frame, tiles: Tiles) -> np.ndarray:
        out = np.empty((tiles.count, *tiles.preprocess.shape[1:]), tiles.preprocess.dtype)
        geometry, nbytes = steps.Geometry.of(frame), out.nbytes // tiles.count

        def launch(handle: int, target: int, source: int) -> None:
            for args in steps.tile_args(tiles, geometry, source, target, nbytes):
                steps.launch_preprocess(bench.preprocess, args, handle)

        return run_kernel(out, [frame.data[: frame.nbytes]], launch)

    return run


@pytest.fixture
def crop_on_gpu(bench, run_kernel) -> Callable[[Frame, Crop, np.ndarray], np.ndarray]:
    """Run the kernel of regions."""

    def run(frame: Frame, crop: Crop, maps: np.ndarray) -> np.ndarray:
        preprocess, geometry = crop.preprocess, steps.Geometry.of(frame)

        def launch(handle: int, target: int, source: int, there: int) -> None:
            args = steps.crop_args(preprocess, geometry, source, target, there)
            steps.launch_crop(bench.preprocess, args, len(maps), handle)

        out = np.empty((len(maps), *preprocess.shape[1:]), preprocess.dtype)
        return run_kernel(out, [frame.data[: frame.nbytes], maps.astype(np.float32)], launch)

    return run


@pytest.fixture
def decode_on_gpu(bench) -> Callable[..., tuple[Any, np.ndarray]]:
    """
    Decode outputs, arrays by name with a batch axis of 1, as the GPU does for this head of vision.

    uint16 arrays are bfloat16's bits. Returns what was found and the four ints of the header.
    """

    def run(
        head: Any,
        outputs: Mapping[str, np.ndarray],
        letterbox: Letterbox,
        thresholds: Thresholds = HALF,
    ) -> tuple[Any, np.ndarray]:
        decoder = decoder_of(head, outputs, letterbox)
        with bench.gpu.context, ExitStack() as owned:

            def device(nbytes: int) -> DeviceBuffer:
                return owned.enter_context(closing(DeviceBuffer(nbytes, 'test', bench.account)))

            def pinned(nbytes: int) -> PinnedBuffer:
                return owned.enter_context(closing(PinnedBuffer(nbytes, 'test', bench.account)))

            handle, tensors = bench.stream.handle, {}
            for name, value in outputs.items():
                tensors[name] = device(value.nbytes)
                value = np.ascontiguousarray(value)
                copy_async(tensors[name].ptr, value.ctypes.data, value.nbytes, handle)
            scratch = device(decoder.scratch_nbytes)
            fill_async(scratch.ptr, 0, scratch.nbytes, handle)
            result = pinned(decoder.result_nbytes(letterbox.image_wh))
            request = pinned(header_nbytes(thresholds))
            write_request(request.view, thresholds)
            at = Addresses(
                lambda name: tensors[name].ptr, request.device_ptr, scratch.ptr, result.device_ptr
            )
            launches = decoder.launches(letterbox, at)
            # Scratch memory behind the counters, which a frame may leave as it is.
            stale = getattr(launches[0].argument, 'keys', None) or scratch.ptr + scratch.nbytes
            for _ in range(2):  # The second shows that the first left the counters at zero.
                result.view[:] = 0xFF
                fill_async(stale, 0xFF, scratch.ptr + scratch.nbytes - stale, handle)
                for launch in launches:
                    bench.decode.launch(*launch, handle)
                bench.stream.synchronize()
            found, _ = decoder.reader(result.view, letterbox.image_wh)()
            return found, result.view[:16].view(np.int32).copy()

    return run


@pytest.fixture(scope='session')
def small_detector(tmp_path_factory) -> Callable[..., Path]:
    """
    Write a YOLOv8-shaped network of 64 × 96 images whose boxes and scores depend on the pixels.

    One convolution of 8 × 8 patches: 96 anchors, three classes; boxes of 8 to 40 pixels.
    """
    from support.save_network import save_network

    folder = tmp_path_factory.mktemp('models')

    def make(name: str = 'small.onnx', *, batch: int | str = 1, inf: bool = False) -> Path:
        rng = np.random.default_rng(1)
        rows, cols = np.mgrid[:8, :12]
        centers = np.stack([cols * 8 + 4, rows * 8 + 4]).reshape(1, 2, 96).astype(np.float32)
        base = np.concatenate([centers, np.zeros((1, 5, 96), np.float32)], axis=1)
        gain = np.array([8, 8, 40, 40, 1, 1, 1], np.float32).reshape(1, 7, 1)
        if inf:
            gain[0, 4, 0] = np.inf
        constants = {
            'kernel': rng.normal(0, 0.15, (7, 3, 8, 8)).astype(np.float32),
            'base': base,
            'gain': gain,
            'flat': np.array([-1, 7, 96], np.int64),
        }
        path = save_network(
            folder / name,
            'patches = Conv <strides = [8, 8], kernel_shape = [8, 8]> (images, kernel) '
            'unit = Sigmoid(patches) columns = Reshape(unit, flat) '
            'scaled = Mul(columns, gain) output0 = Add(scaled, base)',
            {'images': (batch, 3, 64, 96)},
            {'output0': (batch, 7, 96)},
            constants=constants,
            metadata={'names': "{0: 'a', 1: 'b', 2: 'c'}"},
        )
        return Path(path)

    return make


@pytest.fixture
def open_graph(
    gpu: Gpu, small_detector: Callable[..., Path], set_constants: Callable[..., None]
) -> Iterator[Callable[..., GpuPipeline]]:
    """Open a pipeline of `small_detector`, or of another detector of its shape."""
    opened: list[GpuPipeline] = []

    def make(
        path: Path | None = None,
        build: BuildOptions | None = None,
        on_fault: Callable[[GpuFailedError], None] | None = None,
        constants: Mapping[str, Any] = MappingProxyType({}),
        batch: int = 1,
        **options: Any,
    ) -> GpuPipeline:
        set_constants(**constants)
        network = open_tensor_runner(
            path or small_detector(),
            build or BuildOptions(precision='fp32'),
            device=gpu.index,
            **{'frames_in_flight': 2, **options},
        )
        decoder = choose_decoder(
            'yolov8',
            NetworkDescription(network.inputs, network.outputs, network.metadata, (64, 96)),
        )
        model = model_of_image(network, Preprocess((64, 96)), decoder)
        pipeline = GpuPipeline(network, model, batch=batch)
        if on_fault is not None:
            pipeline.device.on_fault(on_fault)
        opened.append(pipeline)
        pipeline.warm_up()
        return pipeline

    yield make
    for pipeline in opened:
        pipeline.close()
