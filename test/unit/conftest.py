"""Small networks, made on the spot, whose answers can be told by hand."""

from collections.abc import Callable
import os
from pathlib import Path
import threading

import numpy as np
import pytest

from support.descriptions import network as describe
from trt_ros.families.family import NetworkDescription

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
    onnx = pytest.importorskip('onnx')
    from onnx import helper, numpy_helper

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
        axes = [2, 3] if layout == 'nchw' else [1, 2]
        nodes = [
            helper.make_node(
                'Cast',
                ['images'],
                ['floats'],
                to=helper.np_dtype_to_tensor_dtype(np.dtype(float_type)),
            ),
            helper.make_node('Mul', ['floats', 'scale'], ['scaled']),
            helper.make_node('ReduceMean', ['scaled'], ['means'], axes=axes, keepdims=0),
            helper.make_node('Clip', ['means', 'nothing', 'one'], ['clipped']),
            helper.make_node('Reshape', ['clipped', 'column'], ['scores']),
            helper.make_node('ReduceMax', ['scores'], ['most'], axes=[1]),
            helper.make_node('Mul', ['most', 'nothing'], ['zero']),
            helper.make_node('Add', ['box', 'zero'], ['boxes']),
            helper.make_node('Concat', ['boxes', 'scores'], ['anchor'], axis=1),
            helper.make_node('Pad', ['anchor', 'pads'], ['output0']),
        ]
        graph = helper.make_graph(
            nodes,
            'colors',
            [
                helper.make_tensor_value_info(
                    'images', helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), image
                )
            ],
            [
                helper.make_tensor_value_info(
                    'output0',
                    helper.np_dtype_to_tensor_dtype(np.dtype(float_type)),
                    (batch, 7, 'anchors' if shape == () else anchors),
                )
            ],
            [numpy_helper.from_array(value, key) for key, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
        helper.set_model_props(model, metadata or {'names': str(COLORS)})
        path = tmp_path / name
        onnx.save(model, path)
        return path

    return make
