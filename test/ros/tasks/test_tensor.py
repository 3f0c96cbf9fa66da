"""The tensor node: images and tensors in, tensors out."""

from pathlib import Path

import numpy as np
import pytest
from sensor_msgs.msg import PointCloud2

from support.ros_messages import half_and_half, read_tensors, tensor_list
from support.save_network import save_network
from support.task_networks import always


@pytest.fixture
def tensor_messages():
    return pytest.importorskip('isaac_ros_tensor_list_interfaces.msg')


def test_an_image_becomes_the_networks_outputs(start, peer, models, tensor_messages):
    _, ask = start('tensor', 'any', models['classifier'], decoder='tensor')
    tensors = peer.inbox(tensor_messages.TensorList, '/any/tensors')
    found = ask(half_and_half((255, 51, 0), (255, 51, 0)), tensors)
    assert read_tensors(found) == {'scores': [pytest.approx([1.0, 0.2, 0.0], abs=1e-6)]}
    (tensor,) = found.tensors
    assert (tensor.name, tensor.data_type, list(tensor.strides)) == ('scores', 9, [12, 4])


def test_tensors_become_the_networks_outputs(start_active, peer, models, tensor_messages, backend):
    TensorList = tensor_messages.TensorList
    remap, given = ('-r', 'tensors:=/encoded'), {'input': 'tensors', 'scale': 0.5}
    node = start_active('sums', 'tensor', models['sum'], *remap, backend=backend, **given)
    assert 'Ignored by a network without images: scale.' in node.log
    publisher = peer.connected(TensorList, '/encoded')
    inbox = peer.inbox(TensorList, '/sums/tensors')

    def ask(stamp, **arrays):
        publisher.publish(tensor_list(stamp, 'front_camera', **arrays))

    a = np.arange(6, dtype='f4').reshape(2, 3)
    ask(1, a=a, b=10 * a)
    found = inbox.wait_for()
    assert (found.header.stamp.sec, found.header.frame_id) == (1, 'front_camera')
    assert read_tensors(found) == {'sum': (11 * a).tolist()}
    ask(2, a=a, b=a.T.copy())
    node.wait_for_log('A frame of /encoded was dropped (wrong tensor). The network takes b (2, 3)')
    ask(3, b=a.astype('f8'), a=a)
    found = inbox.wait_for(lambda message: message.header.stamp.sec != 1)
    assert (found.header.stamp.sec, read_tensors(found)) == (3, {'sum': (2 * a).tolist()})


def test_tensors_that_cannot_be_subscribed_to_leave_nothing_running(
    start_node, peer, models, tensor_messages
):
    node = start_node(
        'unheard',
        'trt_ros.nodes.tensor',
        backend='onnxruntime',
        model_path=models['sum'],
        input='tensors',
        **{'qos_overrides./tensors.subscription.depth': -1},
    )
    assert node.change('configure')
    assert not node.change('activate')
    node.wait_for_log('on_activate failed. The parameters qos_overrides./tensors.subscription')
    tasks = Path(f'/proc/{node.process.pid}/task')
    before = len(list(tasks.iterdir()))
    for _ in range(3):
        assert node.change('configure')
        assert not node.change('activate')
    peer.wait_until(lambda: len(list(tasks.iterdir())) <= before, 'the threads to end')


@pytest.mark.parametrize('has_rows', [True, False])
def test_keypoints_with_descriptors_become_points_too(start, peer, tmp_path, has_rows):
    rng = np.random.default_rng(0)
    arrays = {
        'keypoints': rng.integers(0, 32, (1, 5, 2)).astype(np.float32),
        'scores': np.float32([[0.9, 0.5, 0.25, 0, 0]]),
        'descriptors': rng.normal(0, 1, (1, 5, 3)).astype(np.float32),
    }
    if not has_rows:
        arrays['descriptors'] = arrays['descriptors'].transpose(0, 2, 1)
    parts = [always(name, values) for name, values in arrays.items()]
    model = save_network(
        tmp_path / 'points.onnx',
        ''.join(nodes for nodes, _ in parts),
        {'images': (1, 3, 32, 32)},
        {name: values.shape for name, values in arrays.items()},
        constants={name: each for _, constants in parts for name, each in constants.items()},
    )
    node, ask = start('tensor', f'features_{has_rows}', model, decoder='tensor')
    if not has_rows:
        node.wait_for_log('No ~/points: they need')
        return
    cloud = ask(
        half_and_half((255, 0, 0), (0, 0, 0)), peer.inbox(PointCloud2, '/features_True/points')
    )
    assert [(each.name, each.offset, each.count) for each in cloud.fields] == [
        *(('x', 0, 1), ('y', 4, 1), ('z', 8, 1)),
        *(('score', 12, 1), ('descriptor', 16, 3)),
    ]
    assert (cloud.width, cloud.height, cloud.point_step) == (3, 1, 28)
    found = np.frombuffer(cloud.data, np.float32).reshape(3, 7)
    wanted = np.dstack(
        [arrays['keypoints'], np.zeros((1, 5)), arrays['scores'][..., None], arrays['descriptors']]
    )
    np.testing.assert_array_equal(found, wanted[0, :3].astype(np.float32))
