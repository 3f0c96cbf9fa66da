"""The networks of the robot demo on the GPU and on the CPU."""

from demo.robot.world import CLASSES, STANDING, WALK
import numpy as np
import pytest

from trt_ros import Pipeline
from trt_ros.vision.nms import iou

pytestmark = pytest.mark.gpu


def test_the_policy_and_its_states_are_those_of_the_cpu():
    rng = np.random.default_rng(0)
    with (
        Pipeline.open(str(WALK), precision='fp32') as gpu,
        Pipeline.open(str(WALK), backend='onnxruntime') as cpu,
    ):
        assert gpu.backend != 'onnxruntime'
        for _ in range(100):
            inputs = {
                'joint_positions': STANDING + rng.normal(0, 0.2, 12),
                'joint_velocities': rng.normal(0, 2, 12),
                'angular_velocity': rng.normal(0, 0.5, 3),
                'rotation': np.array([0.99, 0.1, -0.05, 0.08]),
                'command': rng.uniform(-1, 1, 3),
            }
            arrays = {name: np.float32([each]) for name, each in inputs.items()}
            expected = cpu(arrays)['joint_targets']
            assert gpu(arrays)['joint_targets'] == pytest.approx(expected, abs=2e-3)


def test_the_detector_finds_the_objects_that_it_finds_on_the_cpu():
    pytest.importorskip('mujoco')
    from demo.robot.pictures import MODEL, held_out_pictures

    with (
        Pipeline.open(str(MODEL), precision='fp32') as gpu,
        Pipeline.open(str(MODEL), backend='onnxruntime') as cpu,
    ):
        assert gpu.class_names == CLASSES
        for image, _, _ in held_out_pictures(10):
            found, expected = gpu(image, score=0.5), cpu(image, score=0.5)
            assert found.names == expected.names
            if len(found):
                assert iou(found.xyxy, expected.xyxy).min() > 0.95
