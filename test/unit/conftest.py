"""Small networks, made on the spot, whose answers can be told by hand."""

from collections.abc import Callable, Iterator
import os
from pathlib import Path
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.descriptions import network as describe
from trt_ros.cuda import calls
from trt_ros.driver import Driver, GpuInfo, nvidia_driver
from trt_ros.families.family import NetworkDescription
from trt_ros.trt import installed, load_trt

COLORS = {0: 'red', 1: 'green', 2: 'blue'}


@pytest.fixture
def children() -> Callable[[], list[str]]:
    """
    Return the pids of the processes that the calling thread started in this test.

    Other tests of the process may have left some, such as a resource tracker.
    """

    def pids() -> list[str]:
        task = f'/proc/{os.getpid()}/task/{threading.get_native_id()}'
        return [pid for pid in Path(task, 'children').read_text().split() if pid not in before]

    before: list[str] = []
    before = pids()
    return pids


@pytest.fixture
def set_driver(monkeypatch) -> Iterator[Callable[..., None]]:
    """Return a function that replaces what the NVIDIA driver reports; () is no driver."""

    def set_driver(*gpus: GpuInfo, version: str = '580.65', cuda: tuple[int, int] = (13, 0)):
        found = Driver(version, cuda, gpus, '') if gpus else Driver('', (0, 0), (), 'no GPU')
        monkeypatch.setattr('trt_ros.driver._query', lambda: found)
        nvidia_driver.cache_clear()

    yield set_driver
    monkeypatch.undo()
    nvidia_driver.cache_clear()


@pytest.fixture
def set_cuda(monkeypatch) -> Iterator[Callable[[Any], None]]:
    """Return a function that replaces the CUDA runtime and NVML by one object."""

    def clear():
        for cached in (calls.core, calls.runtime):
            cached.cache_clear()

    def set_cuda(gpu: Any) -> None:
        device = SimpleNamespace(pci_bus_id='0000:01:00.0')
        modules = {
            'cuda.core': SimpleNamespace(Device=lambda: device),
            'cuda.core.system': SimpleNamespace(Device=lambda pci_bus_id: gpu),
            'cuda.bindings.runtime': gpu,
        }
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        clear()

    yield set_cuda
    clear()


@pytest.fixture(scope='session')
def rtx():
    """The real library; it builds without a GPU."""
    if not installed('tensorrt_rtx'):
        pytest.skip('tensorrt_rtx is not installed')
    return load_trt('tensorrt_rtx')


@pytest.fixture
def use_backend(monkeypatch) -> Callable[..., None]:
    """Return a function that replaces the choice of the backend."""

    def use_backend(backend, line=''):
        monkeypatch.setattr('trt_ros.runtime.backends.choose_backend', lambda _: (backend, line))

    return use_backend


@pytest.fixture(scope='session')
def network() -> Callable[..., NetworkDescription]:
    """Return the builder of network descriptions, see `support.descriptions`."""
    return describe


@pytest.fixture
def color_detector(tmp_path) -> Callable[..., Path]:
    """
    Write a YOLOv8-shaped network that finds one box: the middle of the image, half its size.

    Its three class scores are the means of the input's three channels, 0 to 1, so they show what
    reached the network. `scale` is applied inside, as networks that take uint8 do. A `batch` by
    name goes through it all, unless `is_baked`: then the network runs with 1 only, whatever it
    says.
    """
    to_onnx = pytest.importorskip('onnx.helper').np_dtype_to_tensor_dtype
    from support.save_network import save_network

    def make(
        name='colors.onnx',
        *,
        dtype=np.float32,
        layout='nchw',
        shape=None,
        batch=1,
        is_baked=False,
        scale=1.0,
        metadata=None,
    ) -> Path:
        height, width = shape or (64, 64)
        fixed_hw = ('height', 'width') if shape == () else (height, width)
        if shape == ():
            height, width = 64, 64
        image = (batch, 3, *fixed_hw) if layout == 'nchw' else (batch, *fixed_hw, 3)
        float_type = np.float32 if dtype == np.uint8 else dtype
        anchors = sum((height // stride) * (width // stride) for stride in (8, 16, 32))
        box = np.array([width / 2, height / 2, width / 2, height / 2], float_type)
        constants = {
            'box': box.reshape(1, 4, 1),
            'scale': np.array(scale, float_type),
            'column': np.array([1 if is_baked or batch == 1 else -1, 3, 1], np.int64),
            'nothing': np.array(0, float_type),
            'one': np.array(1, float_type),
            'pads': np.array([0, 0, 0, 0, 0, anchors - 1], np.int64),
        }
        kind = to_onnx(np.dtype(float_type))
        axes = [2, 3] if layout == 'nchw' else [1, 2]
        return Path(
            save_network(
                tmp_path / name,
                f'floats = Cast <to = {kind}> (images) '
                'scaled = Mul(floats, scale) '
                f'means = ReduceMean <axes = {axes}, keepdims = 0> (scaled) '
                'clipped = Clip(means, nothing, one) scores = Reshape(clipped, column) '
                'most = ReduceMax <axes = [1]> (scores) zero = Mul(most, nothing) '
                'boxes = Add(box, zero) anchor = Concat <axis = 1> (boxes, scores) '
                'output0 = Pad(anchor, pads)',
                {'images': [to_onnx(np.dtype(dtype)), image]},
                {'output0': [kind, (batch, 7, 'anchors' if shape == () else anchors)]},
                constants=constants,
                metadata=metadata or {'names': str(COLORS)},
            )
        )

    return make
