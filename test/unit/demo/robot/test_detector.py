"""The shipped detector of the robot's world."""

from evaluate_demo import evaluate
import onnx
import pytest

pytest.importorskip('mujoco')

from demo.robot.pictures import MODEL, held_out_pictures
from demo.robot.world import CLASSES, IMAGE_WH

from trt_ros import Pipeline


@pytest.mark.slow
def test_it_needs_no_options_and_finds_objects_on_held_out_pictures():
    network = onnx.load(MODEL)
    onnx.checker.check_model(network, full_check=True)
    assert MODEL.stat().st_size <= 3_000_000
    size_hw = [size.dim_value for size in network.graph.input[0].type.tensor_type.shape.dim[2:]]
    assert tuple(size_hw[::-1]) == IMAGE_WH  # No pixel is resampled.
    with Pipeline.open(str(MODEL), backend='onnxruntime') as detector:
        assert detector.class_names == CLASSES
        assert evaluate(detector, held_out_pictures(40), len(CLASSES)).mean() >= 0.85
