"""Small ONNX models, made where they are needed; and the real tensorrt_rtx."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from importlib.machinery import ModuleSpec
import os
from pathlib import Path
import struct
import sys
from types import ModuleType, SimpleNamespace
import weakref

import numpy as np
import onnx
import pytest

from support.save_network import parse_network
from trt_ros.driver import GpuInfo, nvidia_driver
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.options import BuildOptions
from trt_ros.trt import LIBRARIES, Library, installed, library_version

L4 = GpuInfo(0, 'NVIDIA L4', (8, 9), 58, 24 << 30, False, 'GPU-1', '0000:01:00.0')


class Models:
    """Writes ONNX files into one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, graph: str, *, name='network', **others) -> Path:
        """Write a graph in the text format of ONNX, see parse_network; return its path."""
        model = parse_network(graph, **others)
        model.producer_name = 'test'
        path = self.folder / f'{name}.onnx'
        onnx.save(model, str(path))
        return path

    def split(self, path: Path, location: str = 'w') -> Path:
        """Move the weights of a network to another file; return its path."""
        external = {'save_as_external_data': True, 'location': location, 'size_threshold': 0}
        onnx.save(onnx.load(path), path, **external)
        return path.parent / location

    def one(
        self, op: str, *, shape=(1, 4), kind='float', out=None, name=None, **constants
    ) -> Path:
        """Write a model of one node, maybe with attributes: x, and the constants, in; y out."""
        x, y = (','.join(map(str, each)) for each in (shape, out or shape))
        kind_name = op.split()[0]
        inputs = ', '.join(['x', *constants])
        return self.save(
            f'({kind}[{x}] x) => ({kind}[{y}] y) {{ [the_{kind_name}] y = {op} ({inputs}) }}',
            constants=constants,
            name=name or kind_name,
        )

    def conv(self, *, size=(32, 32), batch=1, name='conv', layers=2, seed=0, **others) -> Path:
        """Write convolutions, then boxes-like arithmetic behind them."""
        rng = np.random.default_rng(seed)
        weights, nodes, last = {'scale': [100.0]}, '', 'x'
        for index in range(layers):
            channels = 8 if index else 3
            weights[f'w{index}'] = rng.normal(0, 0.1, (8, channels, 3, 3))
            nodes += f"""
                [conv_{index}] c{index} = Conv <pads = [1, 1, 1, 1]> ({last}, w{index})
                [relu_{index}] r{index} = Relu (c{index})"""
            last = f'r{index}'
        shape = ','.join(map(str, size))
        return self.save(
            f"""(float[{batch},3,{shape}] x) => (float[{batch},8,{shape}] y)
                {{ {nodes} [to_pixels] y = Mul ({last}, scale) }}""",
            constants=weights,
            name=name,
            **others,
        )


@pytest.fixture
def models(tmp_path) -> Models:
    folder = tmp_path / 'models'
    folder.mkdir()
    return Models(folder)


@pytest.fixture(scope='session')
def built_cache(tmp_path_factory, rtx) -> Path:
    """Return the folder of an engine cache with the engine of `Models.conv()`, for copies."""
    folder = tmp_path_factory.mktemp('built')
    EngineCache(folder / 'cache').get_or_build(Models(folder).conv(), BuildOptions(), rtx)
    return folder / 'cache'


@pytest.fixture
def no_tensorrt():
    """Skip where the full TensorRT is installed."""
    if installed('tensorrt'):
        pytest.skip('tensorrt is installed')


@pytest.fixture
def no_gpu():
    """Skip where there is a GPU."""
    if nvidia_driver().gpus:
        pytest.skip('this machine has a GPU')


class Handle:
    """An ICudaEngine of float inputs, by name with their formats."""

    num_optimization_profiles = 0

    def __init__(self, formats: dict[str, str]) -> None:
        self._formats, self.num_io_tensors = formats, len(formats)

    def get_tensor_name(self, index: int) -> str:
        return list(self._formats)[index]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return 1, 8

    def get_tensor_dtype(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name='FLOAT')

    def get_tensor_mode(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name='INPUT')

    def get_tensor_format(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=self._formats[name])


class Runtime:
    """An IRuntime."""

    engine_host_code_allowed = False

    def __init__(self, library: CountingLibrary) -> None:
        self._library = library

    def deserialize_cuda_engine(self, plan: bytes) -> Handle | None:
        return self._library.deserialize(self)


class CountingLibrary:
    """
    A TensorRT without a GPU that counts what it loads and destroys.

    `host_code` has, per load, whether the plan was allowed to run code of its own; `formats` has
    those of the tensors of its engines.
    """

    def __init__(self) -> None:
        self.loaded = self.refused = 0
        self.destroyed: list[str] = []
        self.host_code: list[bool] = []
        self.plugins: list[str] = []
        self.formats: dict[str, str] = {}
        self.errors, self.is_refusing = ['Magic tag does not match'], False

    def of(self, name: str) -> Library:
        """Return the library of a name; of tensorrt_rtx, the version that is installed."""
        log = SimpleNamespace(collect=lambda: nullcontext(SimpleNamespace(errors=self.errors)))
        version = (10, 3, 0, 26) if name == 'tensorrt' else library_version(name, 1)
        trt = SimpleNamespace(
            Runtime=lambda _: self.new_runtime(),
            init_libnvinfer_plugins=lambda *_: None,
            get_plugin_registry=lambda: SimpleNamespace(load_library=self.load_plugins),
        )
        return Library(name, trt, version, '.'.join(map(str, version)), log)

    def load_plugins(self, path: str) -> object:
        self.plugins.append(path)
        return object()

    @property
    def compute_running_processes(self) -> list[SimpleNamespace]:
        """As NVML lists them: each engine takes 700 bytes."""
        return [SimpleNamespace(pid=os.getpid(), used_gpu_memory=1000 + 700 * self.loaded)]

    def cudaMemGetInfo(self) -> tuple[int, int, int]:
        return 0, 3_000_000, 10**9

    def cudaGetLastError(self) -> tuple[int]:
        return (0,)

    def new_runtime(self) -> Runtime:
        runtime = Runtime(self)
        weakref.finalize(runtime, self.destroyed.append, 'runtime')
        return runtime

    def deserialize(self, runtime: Runtime) -> Handle | None:
        if self.is_refusing:
            self.refused += 1
            return None
        self.loaded += 1
        self.host_code.append(runtime.engine_host_code_allowed)
        handle = Handle(self.formats)
        weakref.finalize(handle, self.destroyed.append, 'engine')
        return handle


@pytest.fixture
def library(monkeypatch, set_driver, set_cuda) -> CountingLibrary:
    """Put a CountingLibrary where TensorRT, CUDA and NVML are looked for, and GPUs."""
    library = CountingLibrary()
    for name in LIBRARIES:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, origin=name)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr('trt_ros.trt._load', cache(library.of))
    set_driver(*[L4] * 62)
    set_cuda(library)
    return library


@pytest.fixture
def plan(tmp_path) -> Path:
    """Write a plan of TensorRT 10.3."""
    path = tmp_path / 'net.engine'
    path.write_bytes(struct.pack('<4s20x4B36x', b'ftrt', 10, 3, 0, 26))
    return path
