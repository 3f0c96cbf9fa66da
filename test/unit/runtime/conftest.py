"""A CUDA and a TensorRT that run on the host, so that the bookkeeping around them can be seen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import contextmanager
import ctypes
from dataclasses import replace
import sys
import threading
from types import SimpleNamespace
from typing import Any
import weakref

import numpy as np
import pytest

from support.fake_runner import model_of_image
from support.host_context import HostContext
from trt_ros.cuda.memory import Account
from trt_ros.driver import GpuInfo
from trt_ros.families.family import NetworkDescription
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.tensors import TensorSpec

#: Functions of the driver that are the same as one of the runtime, in FakeCuda and its counts.
RUNTIME_NAMES = {
    'cuCtxPushCurrent_v2': 'cuCtxPushCurrent',
    'cuCtxPopCurrent_v2': 'cuCtxPopCurrent',
    'cuEventRecord': 'cudaEventRecord',
    'cuEventSynchronize': 'cudaEventSynchronize',
    'cuGraphLaunch': 'cudaGraphLaunch',
    'cuMemcpyAsync': 'cudaMemcpyAsync',
}


def argument_of(kind: Any, parameters: int) -> Any:
    """Return a copy of the argument of a launch, a struct."""
    (address,) = (ctypes.c_void_p * 1).from_address(parameters)
    return kind.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(kind)))


def small_copies(grid: tuple[int, int], parameters: int) -> Callable[[], None]:
    from trt_ros.cuda.copies import CopyArgs

    args = argument_of(CopyArgs, parameters)

    def copy() -> None:
        for number in range(grid[0]):
            ctypes.memmove(args.targets[number], args.sources[number], args.nbytes[number])

    return copy


def fetching(grid: tuple[int, int], parameters: int) -> Callable[[], None]:
    from trt_ros.cuda.copies import FetchArgs

    args = argument_of(FetchArgs, parameters)

    def fetch() -> None:
        first = ctypes.c_uint64.from_address(args.source).value + args.first
        for block in range(grid[1]):
            target = args.target + block * args.nbytes
            ctypes.memmove(target, first + block * args.period, args.nbytes)

    return fetch


#: Kernels of copy.cu: functions that return what a launch does.
COPIES = {'copy_small': small_copies, 'fetch': fetching}


class FakeLibcuda:
    """The functions of FakeCuda as ctypes has those of the driver: numbers in, the status out."""

    def __init__(self, cuda: FakeCuda, keeps_gil: bool) -> None:
        self._cuda, self._keeps_gil = cuda, keeps_gil

    def __getattr__(self, name: str) -> Callable[..., int]:
        same = RUNTIME_NAMES.get(name, name)

        def function(*numbers: int | None) -> int:
            assert len(numbers) == len(function.argtypes)
            self._cuda.releases[same] += not self._keeps_gil
            return self._cuda.call(same, *(ctypes.c_void_p(each).value for each in numbers))[0]

        return function


class FakeCuda:
    """
    The calls that trt_ros makes, each done at once on host memory, on two GPUs.

    As in CUDA, a thread's calls go to the GPU whose context is current there, and what was made on
    one GPU is of no use on another. A call without a context, which would make one on GPU 0, fails
    the test. A green context is a GPU of its own, numbered 10 k + that of the GPU, which one
    thread at a time may use.

    :ivar fail: call name to the status it answers once.
    :ivar calls: how often each was made.
    :ivar releases: how often each released the GIL, as all calls of cuda.bindings do.
    :ivar launched: the kernels launched, without those of copies.
    :ivar used: the GPUs that memory was taken on, graphs were launched on or engines ran on.
    """

    cudaHostAllocMapped = cudaHostAllocPortable = 0
    cudaHostRegisterMapped = cudaHostRegisterPortable = 0
    cudaEventBlockingSync, cudaEventDisableTiming = 1, 2
    cudaStreamNonBlocking = 1
    # Names of calls of the process, not of a thread's GPU, begin so.
    ANYWHERE = ('cuInit', 'cuDev', 'cuCtx', 'cuGreenCtxCreate')
    CUdevResourceType = SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM=1)
    CUgreenCtxCreate_flags = SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
    NAMES = {
        2: 'cudaErrorMemoryAllocation',
        700: 'cudaErrorIllegalAddress',
        900: 'cudaErrorX',
        600: 'cudaErrorNotReady',
    }

    def __init__(self) -> None:
        self.fail: dict[str, int] = {}
        self.calls: Counter[str] = Counter()
        self.releases: Counter[str] = Counter()
        self.launched: list[str] = []
        self._memory: dict[int, Any] = {}
        self._device_nbytes: dict[int, int] = {}  # By address.
        self.registered: dict[int, int | None] = {}  # Address to the GPU it was registered on.
        self._capture: list[Callable[[], None]] | None = None
        self._graphs: dict[int, list[Callable[[], None]]] = {}
        self._next = 1
        self._threads = threading.local()
        self._made: dict[tuple[str, int], int] = {}  # (kind, handle) to its GPU.
        self.used: set[int] = set()
        self.streams: list[int] = []  # The priorities of those made.
        self.event_flags: list[int] = []
        self.library_nbytes = 0  # Of the GPU's memory, taken by libraries.
        self.before: dict[str, Callable[[], object]] = {}  # Call name to what it waits for.
        self.greens: list[list[int]] = []  # The SMs of each green context.
        self._owners: dict[int, list[int]] = defaultdict(list)  # Green context to its threads.

    @property
    def current(self) -> int | None:
        """The GPU of this thread."""
        stack = getattr(self._threads, 'stack', [])
        return stack[-1] if stack else None

    def give_back(self, nbytes: int) -> None:
        """Free memory of a library."""
        self.library_nbytes -= nbytes

    def _make(self, kind: str, handle: int | None = None) -> int:
        if handle is None:
            self._next += 1
            handle = self._next
        self._made[kind, handle] = self.current
        self.used.add(self.current)
        return handle

    def _is_here(self, kind: str, handle: int) -> None:
        made = self._made.get((kind, int(handle)), self.current)
        assert made == self.current, f'{kind} of GPU {made} on GPU {self.current}'

    def __getattr__(self, name: str) -> Callable[..., tuple]:
        if not name.startswith(('cuda', 'cu', '_do_')) or name.startswith('_do_'):
            raise AttributeError(name)

        def call(*args: Any) -> tuple:
            self.releases[name] += 1
            return self.call(name, *args)

        return call

    def call(self, name: str, *args: Any) -> tuple:
        """Return the status of a call, and what it answers."""
        self.calls[name] += 1
        assert name.startswith(self.ANYWHERE) or self.current is not None, (
            f'{name} makes a context'
        )
        if name in self.before:
            self.before[name]()
        status = self.fail.pop(name, 0)
        if status:
            return status, None
        result = getattr(type(self), '_do_' + name, lambda *_: ())(self, *args)
        return (0, *result)

    def cudaError_t(self, code: int) -> Any:
        return SimpleNamespace(name=self.NAMES[code], code=code)

    def cudaGetErrorString(self, error: Any) -> tuple:
        return 0, b'as the test wished'

    def _do_cuDeviceGet(self, index):
        return (index,)

    def _do_cuDevicePrimaryCtxRetain(self, device):
        return (100 + device,)

    def _do_cuCtxPushCurrent(self, context):
        self._threads.__dict__.setdefault('stack', []).append(context - 100)
        if context >= 110:
            owners = self._owners[context]
            owners.append(threading.get_ident())
            assert set(owners) == {owners[0]}, 'a green context in two threads'
        return ()

    def _do_cuCtxPopCurrent(self, popped=None):
        context = 100 + self._threads.stack.pop()
        if context >= 110:
            self._owners[context].pop()
        return (context,)

    def _do_cuDeviceGetDevResource(self, device, kind):
        return (SimpleNamespace(sm=SimpleNamespace(smCount=36)),)

    def _do_cuDevSmResourceSplitByCount(self, count, whole, flags, smallest):
        group = SimpleNamespace(sm=SimpleNamespace(smCount=8))
        return [group] * count, 4, None

    def _do_cuDevResourceGenerateDesc(self, resources, count):
        return ([group.sm.smCount for group in resources],)

    def _do_cuGreenCtxCreate(self, description, device, flags):
        self.greens.append(description)
        return (10 * len(self.greens) + device,)

    def _do_cuCtxFromGreenCtx(self, green):
        return (100 + green,)

    def _do_cuGreenCtxStreamCreate(self, green, flags, priority):
        assert green == self.current
        return self._do_cudaStreamCreateWithPriority(flags, priority)

    def _do_cuCtxGetCurrent(self):
        return (0 if self.current is None else 100 + self.current,)

    def _do_cudaMemGetInfo(self):
        held = sum(self._device_nbytes.values()) + self.library_nbytes
        return 10_000_000 - held, 20_000_000

    def _do_cudaDeviceGetStreamPriorityRange(self):
        return 0, -5

    def _do_cudaMalloc(self, nbytes):
        (ptr,) = self._do_cudaHostAlloc(nbytes, 0)
        self._device_nbytes[ptr] = nbytes
        return (ptr,)

    def _do_cudaHostAlloc(self, nbytes, flags):
        memory = ctypes.create_string_buffer(nbytes)
        self._memory[ctypes.addressof(memory)] = memory
        return (self._make('memory', ctypes.addressof(memory)),)

    def _do_cudaFree(self, ptr):
        self._is_here('memory', ptr)
        del self._memory[ptr]
        self._device_nbytes.pop(ptr, None)
        return ()

    _do_cudaFreeHost = _do_cudaFree

    def _do_cudaHostRegister(self, ptr, nbytes, flags):
        assert ptr not in self.registered, 'cudaErrorHostMemoryAlreadyRegistered'
        self.registered[ptr] = self.current
        return ()

    def _do_cudaHostUnregister(self, ptr):
        assert self.registered.pop(ptr) == self.current
        return ()

    def _do_cudaHostGetDevicePointer(self, ptr, flags):
        return (ptr,)

    def _do_cudaPointerGetAttributes(self, address):
        for start, nbytes in self._device_nbytes.items():
            if start <= address < start + nbytes:
                return (SimpleNamespace(type=2, device=self._made['memory', start]),)
        return (SimpleNamespace(type=0, device=-2),)

    def _do_cudaEventCreateWithFlags(self, flags):
        self.event_flags.append(flags)
        return (self._make('event'),)

    def _do_cudaEventRecord(self, event, stream):
        self._is_here('event', event)
        self._is_here('stream', stream)
        return ()

    def _do_cudaStreamCreateWithPriority(self, flags, priority):
        self.streams.append(priority)
        return (self._make('stream'),)

    def _do_cudaStreamDestroy(self, stream):
        self._is_here('stream', stream)
        return ()

    def _do_cudaEventElapsedTime(self, begin, end):
        return (0.5,)

    def _put(self, work: Callable[[], None]) -> tuple:
        if self._capture is None:
            work()
        else:
            self._capture.append(work)
        return ()

    def _do_cudaMemcpyAsync(self, target, source, nbytes, stream):
        assert self._made.get(('stream', stream), self.current) % 10 == self.current % 10
        return self._put(lambda: ctypes.memmove(target, source, nbytes))

    def _do_cuMemcpy2DAsync_v2(self, parameters, stream):
        from trt_ros.cuda.copies import RowsCopy

        copy = RowsCopy.from_buffer_copy(ctypes.string_at(parameters, ctypes.sizeof(RowsCopy)))

        def copy_rows() -> None:
            for row in range(copy.rows):
                source = copy.source_address + copy.source_x + row * copy.source_step
                ctypes.memmove(copy.target_address + row * copy.target_step, source, copy.nbytes)

        return self._put(copy_rows)

    def _do_cudaMemsetAsync(self, target, value, nbytes, stream):
        return self._put(lambda: ctypes.memset(target, value, nbytes))

    def _do_cudaStreamBeginCapture(self, stream, mode):
        self._capture = []
        return ()

    def _do_cudaStreamEndCapture(self, stream):
        graph = self._make('graph')
        self._graphs[graph], self._capture = self._capture, None
        return (graph,)

    def _do_cudaGraphInstantiate(self, graph, flags):
        return (graph,)

    def _do_cudaGraphGetNodes(self, graph, count):
        return None, len(self._graphs[graph])

    def _do_cudaGraphLaunch(self, graph, stream):
        self._is_here('graph', graph)
        self._is_here('stream', stream)
        self.used.add(self.current)
        for work in self._graphs[graph]:
            work()
        return ()

    def _do_cuModuleLoadData(self, cubin):
        self.library_nbytes += len(CUBIN)
        return (self._make('module'),)

    def _do_cuModuleGetFunction(self, module, name):
        self._is_here('module', module)
        return (name.decode(),)

    def _do_cuModuleUnload(self, module):
        self._is_here('module', module)
        self.give_back(len(CUBIN))
        return ()

    def _do_cuLaunchKernel(self, function, *args):
        self._is_here('stream', args[7])
        if function in COPIES:
            return self._put(COPIES[function](args[:2], args[8]))
        run = self.prepare(function, args[:3], args[3:6], args[8])
        return self._put(lambda: (self.launched.append(function), run()))

    def prepare(self, *launch) -> Callable[[], object]:
        """Return what a kernel does, other than those of copies."""
        return lambda: None


@pytest.fixture
def cuda(monkeypatch, set_constants, set_driver) -> FakeCuda:
    """Put FakeCuda where cuda-python is looked for."""
    from trt_ros.cuda import calls, share

    fake = FakeEngine.cuda = FakeCuda()
    states = (calls._lost, share._partitions, share._green)

    set_driver(
        *(
            GpuInfo(index, 'Fake GPU', (9, 0), 1, 20_000_000, False, '', f'0000:0{index}:00.0')
            for index in range(2)
        )
    )
    program = SimpleNamespace(compile=lambda _: SimpleNamespace(code=CUBIN))
    core = SimpleNamespace(
        Device=lambda: SimpleNamespace(pci_bus_id='0000:00:00.0'),
        ProgramOptions=lambda **_: None,
        Program=lambda *_: program,
    )
    monkeypatch.setitem(sys.modules, 'cuda.core', core)
    for name in ('runtime', 'driver'):
        monkeypatch.setitem(sys.modules, f'cuda.bindings.{name}', fake)
    monkeypatch.setattr(
        calls, 'libcuda', lambda *, keeps_gil: FakeLibcuda(fake, keeps_gil=keeps_gil)
    )
    set_constants(kernel_folder=lambda _: None, COPY_THREADS=0)
    caches = (calls.runtime, calls.driver, calls.core, calls.driver_call)
    for cached in caches:
        cached.cache_clear()
    yield fake
    for cached in caches:
        cached.cache_clear()
    for state in states:
        state.clear()


@pytest.fixture
def numbers(cuda) -> None:
    """Run the kernels of images, regions, counters and noise, on the CPU."""
    from support.numbers_on_cpu import KERNELS, NumbersOnCpu

    kernels, nothing = NumbersOnCpu(), cuda.prepare
    cuda.prepare = lambda function, *launch: (
        kernels.prepare(function, *launch) if function in KERNELS else nothing()
    )


CUBIN = b'cubin'
CONTEXT_NBYTES = 300_000  # GPU memory of an execution context.


class FakeContext(HostContext):
    """Computes nothing for batches up to the largest; takes memory of the GPU."""

    def __init__(self, engine: FakeEngine) -> None:
        super().__init__(engine, lambda *_: None, FakeContext.shape_of)
        engine.cuda.library_nbytes += CONTEXT_NBYTES
        weakref.finalize(self, engine.cuda.give_back, CONTEXT_NBYTES)

    def set_input_shape(self, name, shape) -> bool:
        return super().set_input_shape(name, shape) and shape[0] <= self.engine.max_batch

    def shape_of(self, name):
        if name in self.shapes:
            return self.shapes[name]
        batch = self.shapes['images'][0]
        (shape,) = (spec.shape for spec in self.engine.outputs if spec.name == name)
        return (batch, *shape[1:]) if len(shape) == 3 else shape


class FakeEngine:
    """An engine of 64 × 96 images and a YOLOv8 head of three classes."""

    cuda: FakeCuda

    def __init__(self, batch: int = 1, max_batch: int = 4) -> None:
        self.inputs = (TensorSpec('images', (batch, 3, 64, 96), 'float32', 'input'),)
        self.outputs = (TensorSpec('output0', (batch, 7, 96), 'float32', 'output'),)
        self.metadata: dict[str, str] = {}
        self.bindings = self.default_outputs = ()
        self.diagnostics = {'engine key': '0123456789abcdef'}
        self.max_batch = max_batch if batch == -1 else batch
        self.profiles: tuple = ()
        if batch == -1:
            self.profiles = ({'images': ((1, 3, 64, 96), (1, 3, 64, 96), (max_batch, 3, 64, 96))},)
        self.account, self.runs = Account(), 0
        self.account.add('engine', 1000)
        self.is_capturable, self.refuses, self.is_closed = True, False, False
        self.users, self.is_retired = 1, False
        self.device_memory_size_v2 = 2000
        self.num_aux_streams, self.given_streams = 0, []
        self.on_host: set[str] = set()
        strategies = SimpleNamespace(USER_MANAGED=1)

        @contextmanager
        def collect():
            yield SimpleNamespace(errors=['the fake refused'])

        self.library = SimpleNamespace(
            is_rtx=False,
            name='tensorrt',
            log=SimpleNamespace(collect=collect),
            trt=SimpleNamespace(ExecutionContextAllocationStrategy=strategies),
        )

    @property
    def handle(self) -> FakeEngine:
        return self

    def get_tensor_location(self, name) -> SimpleNamespace:
        return SimpleNamespace(name='HOST' if name in self.on_host else 'DEVICE')

    def create_execution_context(self, strategy) -> FakeContext:
        return FakeContext(self)

    def retire(self) -> None:
        self.is_retired = True

    def close(self) -> None:
        assert self.cuda.current is not None, 'the engine is closed without a current GPU'
        self.account.drop('engine')
        self.is_closed = True


@pytest.fixture
def make_engine(cuda) -> type[FakeEngine]:
    return FakeEngine


@pytest.fixture
def engine(make_engine) -> FakeEngine:
    return make_engine()


@pytest.fixture
def network_of(cuda) -> Callable[..., Any]:
    """Return an engine as an open network on the fake GPU of the options."""
    from trt_ros.cuda.device import open_gpu
    from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
    from trt_ros.runtime.options import PipelineOptions

    def make(engine: FakeEngine, **options: Any) -> TensorRTRunner:
        use_graph = options.pop('use_graph', True)  # Of TensorRTRunner; the others are options.
        options = PipelineOptions(**{'frames_in_flight': 2, **options})
        gpu = open_gpu(options.device, options.gpu_share)
        return TensorRTRunner(gpu, engine, options=options, use_graph=use_graph)

    return make


@pytest.fixture
def opened(cuda) -> list[Any]:
    """Return a list of pipelines that are closed at the end, and then own nothing."""
    from trt_ros.cuda.calls import live

    before, pipelines = live(), []
    yield pipelines
    for pipeline in pipelines:
        pipeline.close()
        assert pipeline.memory() == {'device': {}, 'pinned': {}}
    assert live() == before


@pytest.fixture
def open_fitted(network_of, opened) -> Callable[..., Any]:
    """Open a GpuPipeline of an engine on the fakes, without a watchdog."""
    from trt_ros.runtime.gpu.pipeline import GpuPipeline

    def make(engine: FakeEngine, fitted: ResolvedModel, batch: int = 1, **options: Any) -> Any:
        network = network_of(engine, **{'gpu_timeout': 0, **options})
        opened.append(GpuPipeline(network, fitted, batch))
        return opened[-1]

    return make


@pytest.fixture
def open_graph(open_fitted) -> Callable[..., Any]:
    """Open a GpuPipeline of a detector."""
    from trt_ros.decode.choice import choose_decoder
    from trt_ros.vision.letterbox import Preprocess

    def make(engine: FakeEngine | None = None, batch: int = 1, **options: Any) -> Any:
        engine = engine or FakeEngine()
        outputs = (replace(engine.outputs[0], shape=(1, 7, 96)),)
        decoder = choose_decoder(
            'yolov8', NetworkDescription(engine.inputs, outputs, {}, (64, 96))
        )
        fitted = model_of_image(engine, Preprocess((64, 96)), decoder)
        return open_fitted(engine, fitted, batch, **options)

    return make


@pytest.fixture
def decode_on_cpu(set_constants) -> None:
    """Leave decoding to the CPU, as for heads without kernels."""
    set_constants(gpu_decoder=lambda *_: None)


@pytest.fixture
def picture() -> Callable[..., Any]:
    from trt_ros.vision.frame import Frame

    def make(width: int = 160, height: int = 120, encoding: str = 'bgr8') -> Frame:
        pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        return Frame.from_pixels(pixels, encoding)

    return make
