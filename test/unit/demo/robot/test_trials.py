"""Ten walks to an object with the shipped networks, in simulated time and without ROS."""

import numpy as np
import pytest

pytest.importorskip('mujoco')

from demo.robot.pictures import MODEL, eye_of
from demo.robot.seeker import STOP_DISTANCE, Seeker
from demo.robot.simulation import Simulation, yaw_of
from demo.robot.world import IMAGE_WH, RADIUS, TARGETS, draw_layout

from trt_ros import Pipeline
from trt_ros.vision.boxes_3d import DepthScene
from trt_ros.vision.depth_points import DepthImage, Intrinsics
from trt_ros.vision.frame import Frame

CAMERA_TICKS, MAX_TICKS = 10, 3000


@pytest.fixture(scope='module')
def detector():
    with Pipeline.open(str(MODEL), backend='onnxruntime') as opened:
        yield opened


def locate(simulation: Simulation, detector: Pipeline) -> list[tuple[str, np.ndarray]]:
    eye, camera = eye_of(simulation.model), simulation.data.camera('eye')
    view = eye.render(simulation.model, simulation.data, camera.xpos, camera.xmat.reshape(3, 3))
    found = detector(Frame.from_pixels(view.color, 'rgb8'), score=0.5)
    center = [(size - 1) / 2 for size in IMAGE_WH]
    scene = DepthScene(
        DepthImage.of(Frame.from_pixels(view.depth, '32FC1')),
        Intrinsics(eye.focal, eye.focal, *center, IMAGE_WH),
    )
    low, high = np.split(found.xyxy, 2, axis=1)
    xywht = np.hstack([(low + high) / 2, high - low, np.zeros((len(found), 1))])
    boxes = scene.measure(xywht, np.arange(len(found)))
    return [
        (name, center)
        for name, center, is_located in zip(found.names, boxes.centers, boxes.has_depth)
        if is_located
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    'seed', [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 10))]
)
def test_the_robot_finds_its_target_and_touches_nothing(seed, detector, step):
    target = TARGETS[seed % len(TARGETS)]
    layout = draw_layout(seed, target)
    simulation, seeker = Simulation(layout), Seeker(target)
    touched: set[str] = set()
    for tick in range(MAX_TICKS):
        sensed = simulation.sense()
        if tick % CAMERA_TICKS == 0:
            objects = locate(simulation, detector)
            seeker.see(objects, sensed.position, sensed.quaternion)
        step(simulation, sensed, seeker.steer(sensed.position[:2], yaw_of(sensed.quaternion)))
        assert not simulation.has_fallen
        touched |= simulation.touched()
        if seeker.has_arrived:
            break
    goal = np.array(layout.find(target).xy)
    left = np.linalg.norm(goal - simulation.data.qpos[:2]) - RADIUS[target]
    assert seeker.has_arrived
    assert left == pytest.approx(STOP_DISTANCE, abs=0.15)
    assert not touched
