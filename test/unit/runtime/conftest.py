"""A CUDA and a TensorRT that run on the host, so that the bookkeeping around them can be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trt_ros.tensors import TensorSpec


class FakeCuda:
    """
    The calls that trt_ros makes, each done at once on host memory.

    :ivar fail: call name to the status it answers once.
    :ivar calls: how often each was made.
    """

    cudaHostAllocMapped = cudaHostAllocPortable = cudaHostRegisterMapped = 0
    cudaEventBlockingSync, cudaEventDisableTiming = 1, 2
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyDefault=4)
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
    NAMES = {2: 'cudaErrorMemoryAllocation', 700: 'cudaErrorIllegalAddress', 900: 'cudaErrorX',
             600: 'cudaErrorNotReady'}

    def __init__(self) -> None:
        self.fail: dict[str, int] = {}
        self.calls: Counter[str] = Counter()
        self.launched: list[str] = []
        self._memory: dict[int, Any] = {}
        self._capture: list[Callable[[], None]] | None = None
        self._graphs: dict[int, list[Callable[[], None]]] = {}
        self._next = 1

    def __getattr__(self, name: str) -> Callable[..., tuple]:
        if not name.startswith(('cuda', 'cu', '_do_')) or name.startswith('_do_'):
            raise AttributeError(name)

        def call(*args: Any) -> tuple:
            self.calls[name] += 1
            status = self.fail.pop(name, 0)
            if status:
                return status, None
            result = getattr(type(self), '_do_' + name, lambda *_: ())(self, *args)
            return (0, *result)
        return call

    def cudaError_t(self, code: int) -> Any:
        return SimpleNamespace(name=self.NAMES[code], code=code)

    def cudaGetErrorString(self, error: Any) -> tuple:
        return 0, b'as the test wished'

    def _do_cudaGetDeviceCount(self):
        return (1,)

    def _do_cudaMemGetInfo(self):
        return 10_000_000, 20_000_000

    def _do_cudaDeviceGetStreamPriorityRange(self):
        return 0, -5

    def _do_cudaMalloc(self, nbytes):
        memory = ctypes.create_string_buffer(nbytes)
        self._memory[ctypes.addressof(memory)] = memory
        return (ctypes.addressof(memory),)

    def _do_cudaHostAlloc(self, nbytes, flags):
        return self._do_cudaMalloc(nbytes)

    def _do_cudaFree(self, ptr):
        del self._memory[ptr]
        return ()

    _do_cudaFreeHost = _do_cudaFree

    def _do_cudaHostGetDevicePointer(self, ptr, flags):
        return (ptr,)

    def _do_cudaEventCreateWithFlags(self, flags):
        self._next += 1
        return (self._next,)

    def _do_cudaEventElapsedTime(self, begin, end):
        return (0.5,)

    def _put(self, work: Callable[[], None]) -> tuple:
        if self._capture is None:
            work()
        else:
            self._capture.append(work)
        return ()

    def _do_cudaMemcpyAsync(self, target, source, nbytes, kind, stream):
        return self._put(lambda: ctypes.memmove(target, source, nbytes))

    def _do_cudaMemsetAsync(self, target, value, nbytes, stream):
        return self._put(lambda: ctypes.memset(target, value, nbytes))

    def _do_cudaStreamBeginCapture(self, stream, mode):
        self._capture = []
        return ()

    def _do_cudaStreamEndCapture(self, stream):
        self._next += 1
        self._graphs[self._next], self._capture = self._capture, None
        return (self._next,)

    def _do_cudaGraphInstantiate(self, graph, flags):
        return (graph,)

    def _do_cudaGraphGetNodes(self, graph, count):
        return None, len(self._graphs[graph])

    def _do_cudaGraphLaunch(self, graph, stream):
        for work in self._graphs[graph]:
            work()
        return ()

    def _do_cuModuleLoadData(self, cubin):
        return (1,)

    def _do_cuModuleGetFunction(self, module, name):
        return (name.decode(),)

    def _do_cuLaunchKernel(self, function, *args):
        return self._put(lambda: self.launched.append(function))


class FakeStream:
    handle = 7

    def close(self) -> None:
        pass


@pytest.fixture
def cuda(monkeypatch) -> FakeCuda:
    """Put FakeCuda where cuda-python is looked for."""
    from trt_ros.cuda import calls, kernels
    fake = FakeCuda()
    device = SimpleNamespace(
        name='Fake GPU', compute_capability=(9, 0), set_current=lambda: None,
        properties=SimpleNamespace(integrated=False, multiprocessor_count=1),
        create_stream=lambda options: FakeStream())
    core = SimpleNamespace(Device=lambda index: device, StreamOptions=SimpleNamespace)
    modules = {'cuda.bindings.runtime': fake, 'cuda.bindings.driver': fake, 'cuda.core': core}
    monkeypatch.setattr(calls, '_binding', modules.__getitem__)
    monkeypatch.setattr(calls, '_lost', [])
    monkeypatch.setattr(kernels, 'cubin_of', lambda *_: b'cubin')
    for cached in (calls.runtime, calls.driver, calls.core):
        cached.cache_clear()
    yield fake
    for cached in (calls.runtime, calls.driver, calls.core):
        cached.cache_clear()


class FakeContext:
    """Takes any address and runs nothing; says what the engine is told to say."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.shapes, self.addresses = engine, {}, {}

    def set_device_memory(self, ptr, nbytes) -> None:
        pass

    def set_input_shape(self, name, shape) -> bool:
        self.shapes[name] = shape
        return shape[0] <= self.engine.most

    def get_tensor_shape(self, name):
        batch = self.shapes['images'][0]
        if name == 'images':
            return self.shapes[name]
        shape, = (spec.shape for spec in self.engine.outputs if spec.name == name)
        return (batch, *shape[1:]) if len(shape) == 3 else shape

    def set_tensor_address(self, name, address) -> bool:
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream) -> bool:
        self.engine.runs += 1
        return not self.engine.refuses

    def is_stream_capturable(self, stream) -> bool:
        return self.engine.is_capturable


class FakeEngine:
    """An engine of 64 × 96 images and a YOLOv8 head of three classes."""

    def __init__(self, batch: int = 1, most: int = 4) -> None:
        self.inputs = (TensorSpec('images', (batch, 3, 64, 96), 'float32', 'input'),)
        self.outputs = (TensorSpec('output0', (batch, 7, 96), 'float32', 'output'),)
        self.metadata: dict[str, str] = {}
        self.facts = {'engine key': '0123456789abcdef'}
        self.most = most if batch == -1 else batch
        self.profiles: tuple = ()
        if batch == -1:
            self.profiles = ({'images': ((1, 3, 64, 96), (1, 3, 64, 96), (most, 3, 64, 96))},)
        self.plan_nbytes, self.runs = 1000, 0
        self.is_capturable, self.refuses, self.is_closed = True, False, False
        self.device_memory_size_v2 = 2000
        strategies = SimpleNamespace(USER_MANAGED=1, STATIC=0)

        @contextmanager
        def collect():
            yield SimpleNamespace(errors=['the fake refused'])
        self.flavour = SimpleNamespace(
            is_rtx=False, name='tensorrt', log=SimpleNamespace(collect=collect),
            trt=SimpleNamespace(ExecutionContextAllocationStrategy=strategies))

    @property
    def handle(self) -> FakeEngine:
        return self

    def create_execution_context(self, strategy) -> FakeContext:
        return FakeContext(self)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def make_engine(cuda) -> type[FakeEngine]:
    return FakeEngine


@pytest.fixture
def engine(make_engine) -> FakeEngine:
    return make_engine()


@pytest.fixture
def open_graph(cuda) -> Callable[..., Any]:
    """Open a GraphPipeline on the fakes; everything is given back at the end."""
    from trt_ros.cuda.calls import live
    from trt_ros.runtime.graph import GraphOptions, GraphPipeline
    from trt_ros.vision.decoder import choose_decoder
    from trt_ros.vision.letterbox import Preprocess

    before, opened = live(), []

    def make(engine: FakeEngine | None = None, on_fault=None, batch: int = 1,
             **options: Any) -> GraphPipeline:
        engine = engine or FakeEngine()
        outputs = (replace(engine.outputs[0], shape=(1, 7, 96)),)
        decoder = choose_decoder('yolov8', engine.inputs, outputs, {}, (64, 96))
        options.setdefault('gpu_timeout_seconds', 0)
        options.setdefault('copy_helpers', 0)
        pipeline = GraphPipeline.open(engine, Preprocess((64, 96)), decoder, on_fault=on_fault,
                                      batch=batch, options=GraphOptions(**options))
        opened.append(pipeline)
        return pipeline

    yield make
    for pipeline in opened:
        pipeline.close()
        assert pipeline.memory() == {'device': {}, 'pinned': {}}
    assert live() == before


@pytest.fixture
def picture() -> Callable[..., Any]:
    from trt_ros.vision.frame import Frame

    def make(width: int = 160, height: int = 120, encoding: str = 'bgr8') -> Frame:
        pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        return Frame.from_pixels(pixels, encoding)
    return make
