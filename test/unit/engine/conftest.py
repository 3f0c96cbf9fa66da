"""Small ONNX models, made where they are needed; and the real tensorrt_rtx."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
import struct
from types import SimpleNamespace
import weakref

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import pytest

from trt_ros.cuda.memory import Account
from trt_ros.driver import nvidia_driver
from trt_ros.engine import engine as engines
from trt_ros.engine import open as opening
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.options import BuildOptions
from trt_ros.trt import Library, installed, load_trt

FLOAT = TensorProto.FLOAT


class Models:
    """Writes ONNX files into one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(
        self,
        nodes,
        inputs,
        outputs,
        *,
        weights=None,
        name='model',
        opset=17,
        kind=FLOAT,
        metadata=None,
        **others,
    ) -> Path:
        """Write a graph; inputs and outputs are {name: shape}, of `kind` unless in `others`."""
        graph = helper.make_graph(
            nodes,
            name,
            [
                helper.make_tensor_value_info(key, others.get(key, kind), shape)
                for key, shape in inputs.items()
            ],
            [
                helper.make_tensor_value_info(key, others.get(key, kind), shape)
                for key, shape in outputs.items()
            ],
            [numpy_helper.from_array(value, key) for key, value in (weights or {}).items()],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid('', opset)],
            ir_version=8,
            producer_name='test',
        )
        helper.set_model_props(model, metadata or {})
        path = self.folder / f'{name}.onnx'
        onnx.save(model, str(path))
        return path

    def one(
        self, op, *, shape=(1, 4), kind=FLOAT, out=None, weights=None, name=None, **attributes
    ) -> Path:
        """Write a model of one node: x, and the weights, in; y out."""
        node = helper.make_node(op, ['x', *(weights or {})], ['y'], name=f'the_{op}', **attributes)
        return self.save(
            [node], {'x': shape}, {'y': out or shape}, weights=weights, kind=kind, name=name or op
        )

    def conv(
        self, *, size=(32, 32), batch=1, name='conv', layers=2, metadata=None, opset=17, seed=0
    ) -> Path:
        """Write convolutions, then boxes-like arithmetic behind them."""
        rng = np.random.default_rng(seed)
        nodes, weights, last, channels = [], {}, 'x', 3
        for index in range(layers):
            weights[f'w{index}'] = rng.normal(0, 0.1, (8, channels, 3, 3)).astype(np.float32)
            nodes += [
                helper.make_node(
                    'Conv', [last, f'w{index}'], [f'c{index}'], f'conv_{index}', pads=[1, 1, 1, 1]
                ),
                helper.make_node('Relu', [f'c{index}'], [f'r{index}'], f'relu_{index}'),
            ]
            last, channels = f'r{index}', 8
        weights['scale'] = np.float32([100.0])
        nodes.append(helper.make_node('Mul', [last, 'scale'], ['y'], 'to_pixels'))
        return self.save(
            nodes,
            {'x': [batch, 3, *size]},
            {'y': [batch, 8, *size]},
            weights=weights,
            name=name,
            metadata=metadata,
            opset=opset,
        )


@pytest.fixture
def models(tmp_path) -> Models:
    folder = tmp_path / 'models'
    folder.mkdir()
    return Models(folder)


@pytest.fixture(scope='session')
def rtx():
    """The real library; it builds without a GPU."""
    if not installed('tensorrt_rtx'):
        pytest.skip('tensorrt_rtx is not installed')
    return load_trt('tensorrt_rtx')


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
    """An ICudaEngine without tensors."""

    num_io_tensors = num_optimization_profiles = 0


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

    `host_code` has, per load, whether the plan was allowed to run code of its own.
    """

    def __init__(self, monkeypatch) -> None:
        self.loaded, self.destroyed, self.host_code = 0, [], []
        self.errors, self.is_refusing = ['Magic tag does not match'], False
        log = SimpleNamespace(collect=lambda: nullcontext(SimpleNamespace(errors=self.errors)))
        library = Library('tensorrt', SimpleNamespace(), (10, 3, 0, 26), '10.3.0.26', log)
        monkeypatch.setattr(Library, 'new_runtime', lambda _: self.new_runtime())
        for module in (engines, opening):
            monkeypatch.setattr(module, 'load_trt', lambda prefer='auto': library)
        monkeypatch.setattr(engines, 'measured', self.measured)

    @contextmanager
    def measured(self, account: Account, owner: str) -> Iterator[None]:
        yield
        account.add(owner, 700)

    def new_runtime(self) -> Runtime:
        runtime = Runtime(self)
        weakref.finalize(runtime, self.destroyed.append, 'runtime')
        return runtime

    def deserialize(self, runtime: Runtime) -> Handle | None:
        if self.is_refusing:
            return None
        self.loaded += 1
        self.host_code.append(runtime.engine_host_code_allowed)
        handle = Handle()
        weakref.finalize(handle, self.destroyed.append, 'engine')
        return handle


@pytest.fixture
def library(monkeypatch) -> CountingLibrary:
    return CountingLibrary(monkeypatch)


@pytest.fixture
def plan(tmp_path) -> Path:
    """Write a plan of TensorRT 10.3."""
    path = tmp_path / 'net.engine'
    path.write_bytes(struct.pack('<4s20x4B36x', b'ftrt', 10, 3, 0, 26))
    return path
