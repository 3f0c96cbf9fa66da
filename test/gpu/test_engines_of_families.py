"""Engines of every family of boxes are decoded on the GPU as by NumPy."""

from contextlib import closing

import numpy as np
import onnx
import pytest

from support.box_cases import CASES, POINT_CASES, all_rounded, assert_same
from support.fake_runner import model_of_image
from trt_ros.decode.choice import Decoder
from trt_ros.engine.options import BuildOptions
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures('nothing_left'),
    pytest.mark.xdist_group('engines of families'),
]

DTYPES = {'float32': 1, 'float16': 10, 'bfloat16': 16}  # onnx.TensorProto
ANCHORED = [
    name for name in CASES if 'centernet' in name or name.split()[0] in (
        'yolox', 'yolov5_raw', 'nanodet_plus', 'picodet', 'scrfd', 'yunet', 'retinaface',
        'mediapipe_palm', 'detectnet_v2',
    )
]  # fmt: skip


def network_of(outputs, dtype, input_hw):
    """Write a network that returns these outputs for a black image: their sum with its mean."""
    from onnx import helper, numpy_helper

    nodes = [helper.make_node('ReduceMean', ['images'], ['mean'], keepdims=0)]
    constants, infos = [], []
    for index, (name, value) in enumerate(outputs.items()):
        kind = DTYPES[dtype] if value.dtype == np.float32 else None
        kind = kind or helper.np_dtype_to_tensor_dtype(value.dtype)
        own = helper.np_dtype_to_tensor_dtype(value.dtype)
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), f'constant {index}'))
        nodes += [
            helper.make_node('Cast', ['mean'], [f'mean {index}'], to=own),
            helper.make_node('Add', [f'constant {index}', f'mean {index}'], [f'sum {index}']),
            helper.make_node('Cast', [f'sum {index}'], [name], to=kind),
        ]
        infos.append(helper.make_tensor_value_info(name, kind, value.shape))
    image = helper.make_tensor_value_info('images', DTYPES['float32'], (1, 3, *input_hw))
    graph = helper.make_graph(nodes, 'outputs', [image], infos, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)


@pytest.mark.parametrize(
    'name, dtype',
    [(name, 'float32') for name in (*CASES, *POINT_CASES)]
    + [(name, dtype) for name in ANCHORED for dtype in ('float16', 'bfloat16')],
)
def test_engines_of_every_family_give_the_boxes_of_numpy(name, dtype, gpu, tmp_path):
    head, outputs, letterbox = (CASES | POINT_CASES)[name](3)
    _, outputs = all_rounded(outputs, dtype)  # Exact in this type.
    path = tmp_path / 'network.onnx'
    onnx.save(network_of(outputs, dtype, letterbox.input_hw), path)
    # fp32 refuses networks of other types.
    precision = 'fp32' if dtype == 'float32' else 'auto'
    network = open_tensor_runner(path, BuildOptions(precision=precision), device=gpu.index)
    width, height = letterbox.image_wh
    frame = Frame(np.zeros(height * width * 3, np.uint8), width, height, 3 * width, 'bgr8')
    preprocess = Preprocess(letterbox.input_hw, pad_value=0)
    decoder = Decoder(name, 'the test', 'detect', {}, head)
    asked = Thresholds(score=0.4, iou=0.45, max_detections=300)
    with closing(GpuPipeline(network, model_of_image(network, preprocess, decoder))) as pipeline:
        got = pipeline.infer(frame, asked)
        assert pipeline.slots.all[0].buffers.has_gpu_decoder
    assert_same(got, head(outputs, preprocess(frame)[1], asked), scores=1e-5)
