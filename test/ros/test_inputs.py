"""Networks of several inputs: images, tensors and states that meet by stamp or are sampled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')
pytest.importorskip('onnx')
pytest.importorskip('onnxruntime')
pytest.importorskip('isaac_ros_tensor_list_interfaces')

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from isaac_ros_tensor_list_interfaces.msg import TensorList
from onnx import TensorProto, helper
import onnxruntime
from rclpy.serialization import deserialize_message, serialize_message
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image
from std_msgs.msg import Float32MultiArray, Float64MultiArray, Int64MultiArray
from std_srvs.srv import Trigger

from support.save_network import save_network
from trt_ros.ros.dds.cdr_tensors import read_tensor_list, write_tensor_list

pytestmark = pytest.mark.ros

SIZE = 16
HIDDEN = 8
RED, GREEN, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 0)


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp('models')
    image = (1, 3, SIZE, SIZE)
    random = np.random.default_rng(1)
    weights = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in (
            ('w', (1, 3 * HIDDEN, 4)),
            ('r', (1, 3 * HIDDEN, HIDDEN)),
            ('b', (1, 6 * HIDDEN)),
        )
    }
    pool = [
        helper.make_node('GlobalAveragePool', [name], [f'{name}_pooled'])
        for name in ('left', 'right')
    ]
    return {
        # The mean colour of each image, left minus right.
        'stereo': save_network(
            folder / 'stereo.onnx',
            [
                *pool,
                helper.make_node('Sub', ['left_pooled', 'right_pooled'], ['sub']),
                helper.make_node('Flatten', ['sub'], ['difference']),
            ],
            {'left': image, 'right': image},
            {'difference': (1, 3)},
        ),
        'gru': save_network(
            folder / 'gru.onnx',
            [
                helper.make_node('GRU', ['x', 'w', 'r', 'b', '', 'h'], ['', 'hn'], hidden_size=8),
                helper.make_node('ReduceSum', ['hn'], ['energy'], keepdims=0),
            ],
            {'x': (1, 1, 4), 'h': (1, 1, HIDDEN)},
            {'energy': (), 'hn': (1, 1, HIDDEN)},
            constants=weights,
        ),
        # Mean of each camera and the joints, in one vector.
        'policy': save_network(
            folder / 'policy.onnx',
            [
                *pool,
                helper.make_node('Flatten', ['left_pooled'], ['l']),
                helper.make_node('Flatten', ['right_pooled'], ['r']),
                helper.make_node('Concat', ['l', 'r', 'joints'], ['action'], axis=1),
            ],
            {'left': image, 'right': image, 'joints': (1, 2)},
            {'action': (1, 8)},
        ),
        'rgbd': save_network(
            folder / 'rgbd.onnx',
            [
                helper.make_node('GlobalAveragePool', ['x'], ['pooled']),
                helper.make_node('Flatten', ['pooled'], ['means']),
            ],
            {'x': (1, 4, SIZE, SIZE)},
            {'means': (1, 4)},
        ),
        'thermal': save_network(
            folder / 'thermal.onnx',
            [helper.make_node('GlobalAveragePool', ['x'], ['mean'])],
            {'x': (1, 1, SIZE, SIZE)},
            {'mean': (1, 1, 1, 1)},
        ),
        'scaled': save_network(
            folder / 'scaled.onnx',
            [
                helper.make_node('Mul', ['x', 'factor'], ['product/out:0']),
                helper.make_node('Cast', ['x'], ['443'], to=TensorProto.INT64),
            ],
            {'x': (1, 3), 'factor': (1,)},
            {'product/out:0': (1, 3), '443': [TensorProto.INT64, (1, 3)]},
        ),
    }


@pytest.fixture
def start(start_node, models, backend):
    """Start a tensor node with bindings and wait until it is active."""

    def start(name, model, inputs, *ros_args, **parameters):
        node = start_node(
            name,
            'trt_ros.nodes.tensor',
            *ros_args,
            autostart=True,
            backend=backend,
            model_path=models[model],
            inputs=inputs,
            **{'qos_reliability': 'reliable', 'qos_depth': 50, **parameters},
        )
        node.wait_for_log('Started: active.')
        return node

    return start


@pytest.fixture
def publisher(peer):
    """Create a publisher that has a subscriber."""

    def create(kind, topic):
        publisher = peer.publisher(kind, topic)
        peer.wait_until(publisher.get_subscription_count, f'the node to subscribe to {topic}')
        return publisher

    return create


@pytest.fixture
def picture_of(as_image):
    def make(colour, stamp, frame_id='camera'):
        pixels = np.full((SIZE, SIZE, 3), colour, np.uint8)
        message = as_image(pixels, 'rgb8')
        return stamped(message, stamp, frame_id)

    return make


def stamped(message, stamp, frame_id=''):
    """Set the stamp in seconds."""
    message.header.stamp.sec = int(stamp)
    message.header.stamp.nanosec = round((stamp - int(stamp)) * 1e9)
    message.header.frame_id = frame_id
    return message


def tensor_list(stamp, frame_id='base', **tensors):
    written = write_tensor_list(tensors, (0, 0), '')
    return stamped(deserialize_message(written.tobytes(), TensorList), stamp, frame_id)


def read(message):
    view = read_tensor_list(np.frombuffer(serialize_message(message), np.uint8))
    return {name: values.tolist() for name, values in view.tensors.items()}


def at(stamp):
    return lambda message: (
        message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec == (pytest.approx(stamp))
    )


def diagnostics(peer, name):
    """Return a function that waits for values of a node's diagnostics."""
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    def wait_for(**expected):
        def matches(array):
            values = {each.key: each.value for each in array.status[0].values}
            return array.status[0].name == f'{name}: image' and all(
                values.get(key) == value for key, value in expected.items()
            )

        return inbox.wait_for(matches, str(expected)).status[0]

    return wait_for


def test_two_images_of_one_stamp_meet(start, peer, publisher, picture_of):
    node = start('stereo', 'stereo', ['left=image:cam/left', 'right=image:cam/right'])
    assert 'input left: image on /cam/left' in node.log
    assert 'synchronization: equal stamps' in node.log
    left, right = publisher(Image, '/cam/left'), publisher(Image, '/cam/right')
    results = peer.inbox(TensorList, '/stereo/tensors')
    for stamp in (1, 2, 3):
        left.publish(picture_of(RED, stamp, 'left'))
    right.publish(picture_of(GREEN, 2, 'right'))
    found = results.wait_for(at(2))
    assert found.header.frame_id == 'left'
    assert read(found) == {'difference': [pytest.approx([1, -1, 0])]}
    right.publish(picture_of(BLACK, 3, 'right'))
    assert read(results.wait_for(at(3))) == {'difference': [pytest.approx([1, 0, 0])]}
    status = diagnostics(peer, 'stereo')
    status(
        **{
            'frames received': '3',
            'frames published': '2',
            'dropped: no partner': '1',
            'cam/left: dropped: no partner': '1',
            'cam/right: frames received': '2',
            'cam/right: frames published': '2',
            'cam/right: frames dropped': '0',
        }
    )
    right.publish(picture_of(BLACK, 3, 'right'))
    node.wait_for_log('Messages of /cam/right are dropped: duplicate stamp. Remedy: publish each')
    assert len(results.messages) == 2


def test_a_bad_image_drops_its_set_and_the_next_set_is_run(start, peer, publisher, picture_of):
    node = start('spoiled', 'stereo', ['left=image:l', 'right=image:r'])
    left, right = publisher(Image, '/l'), publisher(Image, '/r')
    results = peer.inbox(TensorList, '/spoiled/tensors')
    bad = picture_of(RED, 1)
    bad.encoding = 'unheard'
    left.publish(picture_of(RED, 1))
    right.publish(bad)
    node.wait_for_log('A frame of /r was dropped (unknown encoding).')
    left.publish(picture_of(RED, 2))
    right.publish(picture_of(RED, 2))
    assert read(results.wait_for(at(2))) == {'difference': [pytest.approx([0, 0, 0])]}
    diagnostics(peer, 'spoiled')(
        **{
            'l: dropped: unknown encoding': '1',
            'r: dropped: unknown encoding': '1',
            'frames published': '1',
        }
    )


def test_images_of_close_stamps_meet(start, peer, publisher, picture_of):
    node = start(
        'close',
        'stereo',
        ['left=image:near/left', 'right=image:near/right'],
        approximate_sync=True,
        approximate_sync_tolerance_seconds=0.01,
    )
    assert 'synchronization: stamps at most 0.01 s apart' in node.log
    left, right = publisher(Image, '/near/left'), publisher(Image, '/near/right')
    results = peer.inbox(TensorList, '/close/tensors')
    right.publish(picture_of(BLACK, 1.05))
    left.publish(picture_of(RED, 1.0))
    right.publish(picture_of(GREEN, 1.009))
    assert read(results.wait_for(at(1.0))) == {'difference': [pytest.approx([1, -1, 0])]}
    left.publish(picture_of(RED, 1.045))
    assert read(results.wait_for(at(1.045))) == {'difference': [pytest.approx([1, 0, 0])]}


def stale_status(inbox, name):
    """Return a status of a node that is STALE; None if there is none."""
    return next(
        (
            status
            for message in inbox.messages
            for status in message.status
            if (status.name, status.level) == (f'{name}: image', DiagnosticStatus.STALE)
        ),
        None,
    )


def test_without_partners_the_diagnostics_say_so(start, peer, publisher, picture_of):
    start('alone', 'stereo', ['left=image:lone/left', 'right=image:lone/right'])
    left, right = publisher(Image, '/lone/left'), publisher(Image, '/lone/right')
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')
    stamps = itertools.count()

    def is_stale():
        stamp = next(stamps)
        left.publish(picture_of(RED, stamp))
        right.publish(picture_of(RED, stamp + 0.5))
        return stale_status(inbox, 'alone')

    status = peer.wait_until(is_stale, 'a stale status')
    assert 'images arrive, but no result for' in status.message
    assert '(messages without partner: /lone/left ' in status.message
    assert '; set approximate_sync to true)' in status.message


def test_a_silent_topic_is_named(start, peer, publisher, picture_of):
    start('half', 'policy', ['left=image:one', 'right=image:two', 'joints=tensor:three'])
    one, two = publisher(Image, '/one'), publisher(Image, '/two')
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    stamps = itertools.count()

    def is_stale():
        stamp = next(stamps)
        one.publish(picture_of(RED, stamp))
        two.publish(picture_of(RED, stamp))
        return stale_status(inbox, 'half')

    message = peer.wait_until(is_stale, 'a stale status').message
    assert message.startswith('no message for ')
    assert message.endswith(' s on /three: no publisher')


def test_a_silent_topic_is_named_although_others_have_errors(start, peer, publisher, picture_of):
    start('masked', 'policy', ['left=image:one', 'right=image:two', 'joints=tensor:torques'])
    one, two = publisher(Image, '/one'), publisher(Image, '/two')
    publisher(TensorList, '/torques')
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    def is_stale():
        for each in (one, two):
            each.publish(picture_of(RED, 1))  # After the first: duplicate stamp.
        return stale_status(inbox, 'masked')

    message = peer.wait_until(is_stale, 'a stale status').message
    assert message.startswith('no message for ')
    assert message.endswith(' s on /torques: 1 publisher, no messages')


def test_a_recurrent_network_keeps_its_state(start, peer, publisher, models):
    bindings = ['x=tensor:steps', 'h=state:hn']
    node = start('gru', 'gru', bindings, outputs=['energy'], precision='fp32')
    assert 'input h: state, output hn of the previous run' in node.log
    steps = publisher(TensorList, '/steps')
    results = peer.inbox(TensorList, '/gru/tensors')
    session = onnxruntime.InferenceSession(models['gru'], providers=['CPUExecutionProvider'])
    inputs = np.random.default_rng(2).normal(size=(100, 1, 1, 4)).astype(np.float32)
    state = np.zeros((1, 1, HIDDEN), np.float32)
    first = None
    for number, x in enumerate(inputs, 1):
        steps.publish(tensor_list(number, x=x.astype(np.float64)))
        expected, state = session.run(['energy', 'hn'], {'x': x, 'h': state})
        first = expected if first is None else first
        found = read(results.wait_for(at(number)))
        assert found == {'energy': pytest.approx(float(expected), abs=1e-4)}
    answer = peer.call(Trigger, '/gru/reset')
    assert answer.success
    steps.publish(tensor_list(101, x=inputs[0]))
    assert read(results.wait_for(at(101))) == {'energy': pytest.approx(float(first), abs=1e-4)}
    # Played again: the stamps jump back, and the state is zero.
    steps.publish(tensor_list(5, x=inputs[0]))
    peer.wait_until(lambda: len(results.messages) == 102, 'the result after the jump')
    assert read(results.messages[-1]) == {'energy': pytest.approx(float(first), abs=1e-4)}
    assert node.change('deactivate')
    assert node.change('activate')
    peer.wait_until(steps.get_subscription_count, 'the node to subscribe again')
    steps.publish(tensor_list(6, x=inputs[0]))
    peer.wait_until(lambda: len(results.messages) == 103, 'the result after activation')
    assert read(results.messages[-1]) == {'energy': pytest.approx(float(first), abs=1e-4)}


def test_a_policy_samples_its_newest_inputs(start, peer, publisher, picture_of):
    """The clock is simulated: a sample is taken when it says so."""
    clock = peer.publisher(Clock, '/clock')
    node = start(
        'policy',
        'policy',
        [
            'left=image:hand',
            'right=image:head?max_age=2.0',
            'joints=tensor:joint_states#positions?max_age=0.5',
        ],
        rate_hz=10.0,
        use_sim_time=True,
    )
    assert 'synchronization: newest messages, sampled at 10 Hz' in node.log
    hand, head = publisher(Image, '/hand'), publisher(Image, '/head')
    joints = publisher(TensorList, '/joint_states')
    results = peer.inbox(TensorList, '/policy/tensors')
    peer.wait_until(clock.get_subscription_count, 'the node to subscribe to the clock')

    def tick(seconds):
        message = Clock()
        message.clock.sec = int(seconds)
        message.clock.nanosec = round((seconds - int(seconds)) * 1e9)
        clock.publish(message)

    hand.publish(picture_of(RED, 100.0, 'hand'))
    head.publish(picture_of(GREEN, 99.0, 'head'))
    positions = np.array([[0.25, -0.5]], np.float32)
    joints.publish(tensor_list(100.0, other=positions * 9, positions=positions))
    status = diagnostics(peer, 'policy')
    status(**{f'{topic}: frames received': '1' for topic in ('hand', 'head', 'joint_states')})
    tick(100.2)
    found = results.wait_for(at(100.0))
    assert found.header.frame_id == 'hand'
    assert read(found) == {'action': [pytest.approx([1, 0, 0, 0, 1, 0, 0.25, -0.5])]}
    tick(100.4)  # Sampled again, although nothing is new.
    peer.wait_until(lambda: len(results.messages) == 2, 'the second sample')
    joints.publish(tensor_list(100.05, positions=3 * positions))
    status(**{'joint_states: frames received': '2'})
    tick(100.6)
    status(**{'joint_states: dropped: older than max_age': '1'})
    joints.publish(tensor_list(100.6, positions=2 * positions))
    status(**{'joint_states: frames received': '3'})
    tick(100.8)
    found = results.wait_for(lambda message: read(message)['action'][0][7] == -1)
    assert len(results.messages) == 3
    joints.publish(tensor_list(100.7, positions=positions))
    status(**{'joint_states: frames received': '4'})
    tick(50.0)  # Time jumps back: all is forgotten.
    status(**{'joint_states: dropped: time jumped back': '1'})
    tick(50.2)
    hand.publish(picture_of(BLACK, 50.4, 'hand'))
    head.publish(picture_of(BLACK, 50.4))
    joints.publish(tensor_list(50.4, positions=positions))
    status(**{f'{topic}: frames received': '2' for topic in ('hand', 'head')})
    status(**{'joint_states: frames received': '5'})
    tick(50.6)
    results.wait_for(at(50.4))
    assert all(at(50.4)(message) for message in results.messages[3:])


def test_colour_and_depth_become_four_channels(start, peer, publisher, picture_of, as_image):
    node = start('rgbd', 'rgbd', ['x=image:color,depth?scale=1.0'])
    color, depth = publisher(Image, '/color'), publisher(Image, '/depth')
    results = peer.inbox(TensorList, '/rgbd/tensors')
    color.publish(picture_of((10, 20, 30), 1, 'optical'))
    millimetres = np.full((SIZE, SIZE), 1500, np.uint16)
    depth.publish(stamped(as_image(millimetres, '16UC1'), 1, 'optical'))
    found = results.wait_for(at(1))
    assert found.header.frame_id == 'optical'
    assert read(found) == {'means': [pytest.approx([10, 20, 30, 1.5])]}
    color.publish(stamped(as_image(millimetres, '16UC1'), 2))
    depth.publish(picture_of((10, 20, 30), 2))
    node.wait_for_log('The image on /color has the encoding 16UC1 of depth images.')
    node.wait_for_log('Swap the topics in inputs: x=image:/depth,/color.')


def test_a_thermal_image_is_one_channel(start, peer, publisher, as_image):
    start('thermal', 'thermal', ['x=image:thermal?scale=1.0'])
    thermal = publisher(Image, '/thermal')
    results = peer.inbox(TensorList, '/thermal/tensors')
    kelvins = np.full((SIZE, SIZE), 30_000, np.uint16)
    thermal.publish(stamped(as_image(kelvins, 'mono16'), 1))
    (mean,) = np.ravel(read(results.wait_for(at(1)))['mean'])
    assert mean == pytest.approx(30_000 / 256)


def test_multi_arrays_need_no_isaac_ros(start, peer, publisher):
    vector = peer.publisher(Float64MultiArray, '/arrays/tensors/x')
    node = start(
        'arrays',
        'scaled',
        ['*=tensor:arrays/tensors'],
        tensor_format='multiarray',
        approximate_sync=True,
        approximate_sync_tolerance_seconds=10.0,
    )
    assert 'tensor format: multiarray' in node.log
    peer.wait_until(vector.get_subscription_count, 'a subscription of the published type')
    factor = publisher(Float32MultiArray, '/arrays/tensors/factor')
    products = peer.inbox(Float32MultiArray, '/arrays/tensors/product_out_0')
    integers = peer.inbox(Int64MultiArray, '/arrays/tensors/tensor_443')
    vector.publish(Float64MultiArray(data=[1.0, 2.0, 3.5]))
    factor.publish(Float32MultiArray(data=[2.0]))
    found = products.wait_for()
    assert list(found.data) == [2, 4, 7]
    assert [(each.size, each.stride) for each in found.layout.dim] == [(1, 3), (3, 3)]
    assert list(integers.wait_for().data) == [1, 2, 3]


def test_a_publisher_of_another_multi_array_is_followed(start, peer):
    node = start('late', 'gru', ['x=tensor:late_x', 'h=state:hn'], tensor_format='multiarray')
    results = peer.inbox(Float32MultiArray, '/late/tensors/energy')
    first = peer.publisher(Float64MultiArray, '/late_x')
    node.wait_for_log('/late_x: subscribed to Float64MultiArray, which is published.')
    peer.wait_until(first.get_subscription_count, 'a subscription of float64')
    first.publish(Float64MultiArray(data=[1.0, 2.0, 3.0, 4.0]))
    results.wait_for()
    peer.between_callbacks(lambda: peer.node.destroy_publisher(first))
    second = peer.publisher(Int64MultiArray, '/late_x')
    node.wait_for_log('/late_x: subscribed to Int64MultiArray, which is published.')
    peer.wait_until(second.get_subscription_count, 'a subscription of int64')
    second.publish(Int64MultiArray(data=[1, 2, 3, 4]))
    peer.wait_until(lambda: len(results.messages) == 2, 'the second result')
    assert node.change('deactivate')


def test_bindings_that_cannot_be_honoured_are_refused(start_node, models):
    node = start_node(
        'refused', 'trt_ros.nodes.tensor', backend='onnxruntime', model_path=models['scaled']
    )
    usual = {
        'input': 'image',
        'inputs': ['*=tensor:t'],
        'rate_hz': 0.0,
        'approximate_sync': False,
        'tensor_format': 'auto',
        'regions': False,
    }
    for changes, problem in (
        ({'input': 'tensors'}, 'input is tensors, but inputs has bindings'),
        ({'inputs': ['x=tensor:t?max_age=1', 'factor=tensor:t']}, "'t' has a max_age in inputs"),
        ({'rate_hz': 5.0, 'approximate_sync': True}, 'approximate_sync is true, but rate_hz is 5'),
        ({'inputs': ['y=tensor:t', '*=tensor:t']}, "The network has no input 'y'"),
        ({'inputs': ['x=tensor:t']}, 'The network input factor'),
        ({'inputs': ['*=tensor:t//u']}, "inputs has an invalid topic 't//u'"),
        ({'tensor_format': 'isaac5'}, 'Package isaac_ros_tensor_msgs is not installed'),
        ({'tensor_format': 'isaac5'}, 'or install isaac_ros_tensor_msgs of Isaac ROS 5'),
        (
            {'inputs': ['x=tensor:t', 'factor=tensor:t'], 'tensor_format': 'multiarray'},
            "'t' is bound to the network inputs x, factor",
        ),
        (
            {'inputs': ['x=tensor:t#z', 'factor=tensor:f'], 'tensor_format': 'multiarray'},
            "The network input 'x' is bound to t#z",
        ),
        ({'regions': True}, "inputs is ['*=tensor:t'], but regions is true"),
    ):
        assert node.set(**{**usual, **changes}) == ''
        assert not node.change('configure')
        node.wait_for_log(problem)
    assert node.set(**usual) == ''
    assert node.change('configure')
