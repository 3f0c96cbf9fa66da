"""Nodes whose network runs on an inference server, which is killed and restarted."""

import numpy as np
import pytest

pytest.importorskip('tritonclient.grpc')

from diagnostic_msgs.msg import DiagnosticStatus
from std_msgs.msg import Float32MultiArray

from support.kserve_server import ServerProcess
from support.ros_messages import as_image
from support.save_network import save_network
from support.waiting import wait_until
from trt_ros.cli import main

BOX = [32.0, 32.0, 96.0, 96.0]


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    """Serve 'means', a detector of the mean color, and 'half', which halves a tensor."""
    folder = tmp_path_factory.mktemp('server')
    constants = {
        'box': np.array([32, 32, 32, 32], np.float32).reshape(1, 4, 1),
        'column': np.array([1, 3, 1]),
        'others': np.zeros((1, 7, 83), np.float32),
    }
    save_network(
        folder / 'means.onnx',
        'pooled = GlobalAveragePool(images) scores = Reshape(pooled, column) '
        'first = Concat <axis = 1> (box, scores) output0 = Concat <axis = 2> (first, others)',
        {'images': (1, 3, 64, 64)},
        {'output0': (1, 7, 84)},
        constants=constants,
        metadata={'names': "{0: 'red', 1: 'green', 2: 'blue'}"},
    )
    half = {'half': np.array(0.5, np.float32)}
    tensors = {'joints': (4,)}, {'halves': (4,)}
    save_network(folder / 'half.onnx', 'halves = Mul(joints, half)', *tensors, constants=half)
    for name in ('means', 'half'):
        output = ['--output', str(folder / 'repository')]
        assert main(['triton', str(folder / f'{name}.onnx'), *output]) == 0
    with ServerProcess(folder / 'repository') as process:
        yield process


def test_detector_survives_a_restart_of_its_server(start_lane, server):
    lane = start_lane('remote', backend='auto', model_path=server.address('means'))
    image = as_image(np.full((128, 128, 3), (255, 0, 0), np.uint8), 'rgb8')
    assert lane.boxes(lane.detect(image)) == [('red', 1.0, BOX)]
    lane.status('server state', 'ready')
    server.kill()
    lane.publish(image)
    level, message = lane.status('dropped: remote unavailable', '1')
    assert level == DiagnosticStatus.WARN
    assert f'{server.address("means")} is not available' in message
    server.start()
    before = lane.last_stamp

    def resumed():
        lane.publish(image)  # Dropped until the connection is there again.
        return next(
            (each for each in lane.detections.messages if each.header.stamp.sec > before), None
        )

    assert lane.boxes(wait_until(resumed, 'results of the new server')) == [('red', 1.0, BOX)]
    lane.status('server state', 'ready')
    assert lane.node.process.poll() is None


def test_tensor_node_runs_a_network_without_images_on_a_server(start_active, peer, server):
    given = {'backend': 'auto', 'input': 'tensors', 'tensor_format': 'multiarray'}
    start_active('halves', 'tensor', server.address('half'), **given)
    joints = peer.connected(Float32MultiArray, '/tensors/joints')
    halves = peer.inbox(Float32MultiArray, '/halves/tensors/halves')
    joints.publish(Float32MultiArray(data=[1.0, 2.0, 3.0, 4.0]))
    assert list(halves.wait_for().data) == [0.5, 1.0, 1.5, 2.0]
