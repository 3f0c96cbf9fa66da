"""The shipped detector: small, described, and good at its pictures."""

import ast

from demo.scene import CLASSES, held_out
from evaluate_demo import evaluate
import numpy as np
import onnx
import pytest

from trt_ros.demo import MODEL
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline


@pytest.fixture(scope='module')
def network() -> onnx.ModelProto:
    return onnx.load(MODEL)


@pytest.fixture
def pipeline():
    opened = Pipeline.open(LabeledOptions(model_path=str(MODEL), backend='onnxruntime'))
    yield opened
    opened.close()


def test_metadata_describes_the_model(network):
    metadata = {entry.key: entry.value for entry in network.metadata_props}
    assert ast.literal_eval(metadata['names']) == dict(enumerate(CLASSES))
    assert metadata['task'] == 'detect'
    assert metadata['stride'] == '32'
    assert ast.literal_eval(metadata['imgsz']) == [320, 320]
    assert metadata['license'] == 'Apache-2.0'


def test_has_yolov8_outputs_of_its_size_which_need_no_options(network, pipeline):
    shapes = {
        each.name: [size.dim_value for size in each.type.tensor_type.shape.dim]
        for each in (*network.graph.input, *network.graph.output)
    }
    cells = sum((320 // stride) ** 2 for stride in (8, 16, 32))
    assert shapes == {'images': [1, 3, 320, 320], 'output0': [1, 4 + len(CLASSES), cells]}
    assert pipeline.class_names == CLASSES
    assert pipeline.decoder.name == 'yolov8'


def test_it_is_small_and_old_tensorrt_can_build_it(network):
    onnx.checker.check_model(network, full_check=True)
    assert [each.version for each in network.opset_import] == [17]
    # Normalization belongs to the convolutions, and everything runs in float.
    kinds = {node.op_type for node in network.graph.node}
    assert 'BatchNormalization' not in kinds
    assert {'NonMaxSuppression', 'TopK', 'Loop', 'If'}.isdisjoint(kinds)
    assert MODEL.stat().st_size <= 3_000_000


@pytest.mark.slow
def test_finds_shapes_on_held_out_pictures(pipeline):
    precisions = evaluate(pipeline, held_out(20), len(CLASSES))
    assert np.isfinite(precisions).all()
    assert precisions.mean() >= 0.95
