"""Engines of families whose exports have operators of their own, built from small networks."""

import numpy as np
import onnx
import onnx.parser
import pytest

from support.builds import build_here
from support.descriptions import FAMILIES
from support.networks.detr import rtdetr_deployed
from support.networks.other import (
    classifier,
    depth,
    efficient_nms,
    paddle,
    semantic,
    torchvision,
    yolov3,
)
from support.networks.yolo import IMAGE, ULTRALYTICS, yolov5, yolov8_obb, yolov8_seg, yolov10
from trt_ros.decode.choice import open_head
from trt_ros.engine.builder.onnx_check import read_network
from trt_ros.errors import ModelError
from trt_ros.families.evidence import claim_of
from trt_ros.families.family import NetworkDescription
from trt_ros.tensors import TensorSpec

pytestmark = pytest.mark.slow  # A second each.


# tensorrt_rtx cannot build their last operator, so it is cut off.
CUT = {'yolov3', 'efficient_nms', 'ppyoloe'}


def case(family, outputs, network, metadata=None, *, inputs=''):
    """Return a row; `inputs` are beside the image."""
    return family, inputs, outputs, network, metadata or {}


BUILDS = [
    case(
        'yolov10',
        'float[1,9,6] output0',
        yolov10(),
        {**ULTRALYTICS, 'task': 'detect', 'end2end': 'True'},
    ),
    case('yolov5', 'float[1,63,8] output0', yolov5(), ULTRALYTICS),
    case(
        'rtdetr',
        'int64[1,9] labels, float[1,9,4] boxes, float[1,9] scores',
        rtdetr_deployed(),
        inputs=', int64[1,2] orig_target_sizes',
    ),
    case(
        'yolov3',
        'int64[n,3] chosen, float[1,16,4] boxes, float[1,3,16] scores',
        yolov3(),
        inputs=', float[1,2] image_shape',
    ),
    case(
        'efficient_nms',
        'int32[1,1] num_dets, float[1,20,4] det_boxes, float[1,20] det_scores, '
        'int32[1,20] det_classes',
        efficient_nms(),
    ),
    case(
        'ppyoloe',
        'float[n,6] rows, int32[1] numbers',
        paddle(),
        inputs=', float[1,2] scale_factor',
    ),
    case(
        'yolov8_seg',
        'float[1,15,21] output0, float[1,8,8,8] output1',
        yolov8_seg(),
        {**ULTRALYTICS, 'task': 'segment'},
    ),
    case('yolov8_obb', 'float[1,8,21] output0', yolov8_obb(), {**ULTRALYTICS, 'task': 'obb'}),
    case('semantic', 'int64[1,32,32] out', semantic()),
    case('classifier', 'float[1,3] logits', classifier()),
    case('depth', 'float[1,32,32] predicted_depth', depth()),
]


def write(folder, inputs, outputs, network, metadata):
    body, weights = network
    text = f"""<ir_version: 8, opset_import: ["" : 17, "TRT" : 1]>
        small ({IMAGE}{inputs}) => ({outputs}) <{', '.join(weights)}> {{ {body} }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for value in model.graph.value_info:
        shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
        values = rng.normal(0, 0.3, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, value.name))
    del model.graph.value_info[:]
    onnx.helper.set_model_props(model, metadata)
    path = folder / 'model.onnx'
    onnx.save(model, path)
    return path


def built_network(path, library, class_count=None):
    """Build, and return what is known of the engine as a runner would."""
    report, _ = build_here(path, library)
    inputs, outputs = (
        tuple(TensorSpec(**{**each, 'shape': tuple(each['shape'])}) for each in report[mode])
        for mode in ('inputs', 'outputs')
    )
    return NetworkDescription(inputs, outputs, report['metadata'], (32, 32), class_count)


@pytest.mark.parametrize(
    ('family', 'inputs', 'outputs', 'network', 'metadata'),
    BUILDS,
    ids=[f'{row[0]}-{index}' for index, row in enumerate(BUILDS)],
)
def test_an_engine_is_built_and_recognized(
    tmp_path, rtx, family, inputs, outputs, network, metadata
):
    path = write(tmp_path, inputs, outputs, network, metadata)
    engine = built_network(path, rtx, metadata.get('names', '').count(':') or None)
    expected = read_network(path)[1]
    if family in CUT:
        shapes = {'nms_boxes': (1, 16, 4), 'nms_scores': (1, 16, 3)}
        expected = tuple(TensorSpec(*each, 'float32', 'output') for each in shapes.items())
    assert engine.outputs == expected
    assert claim_of(FAMILIES[family], engine)
    open_head(FAMILIES[family], engine)


def test_torchvision_loops_before_nms_are_refused_with_remedy(tmp_path, rtx):
    path = write(tmp_path, '', 'float[16,4] boxes, float[n] scores', torchvision(), {})
    with pytest.raises(ModelError, match=r'the operator NonZero .*\n.*onnxruntime'):
        build_here(path, rtx)
