"""Tensor nodes whose networks take states, sampled inputs, four or one channels, and arrays."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip('isaac_ros_tensor_list_interfaces')

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from isaac_ros_tensor_list_interfaces.msg import TensorList
import onnxruntime
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float32MultiArray, Float64MultiArray, Int64MultiArray
from std_srvs.srv import Trigger

from support.backends import ON_CPU
from support.ros_messages import (
    BLACK,
    GREEN,
    RED,
    at,
    read_tensors,
    tensor_list,
    values_of,
    wait_for_values,
)

HIDDEN = 8


def test_a_recurrent_network_keeps_its_state(start, peer, publisher, models):
    bindings = ['x=tensor:steps', 'h=state:hn']
    options = {'outputs': ['energy'], 'precision': 'fp32', 'frames_in_flight': 3}
    node = start('tensor', 'gru', 'gru', inputs=bindings, **options)
    assert 'input h: state, output hn of the previous run' in node.log
    assert 'Parameters without effect on these inputs: frames_in_flight.' in node.log
    steps = publisher(TensorList, '/steps')
    results = peer.inbox(TensorList, '/gru/tensors')
    session = onnxruntime.InferenceSession(models['gru'], providers=['CPUExecutionProvider'])
    inputs = np.random.default_rng(2).normal(size=(12, 1, 1, 4)).astype(np.float32)
    state = np.zeros((1, 1, HIDDEN), np.float32)
    first = None
    for number, x in enumerate(inputs, 1):
        steps.publish(tensor_list(number, x=x.astype(np.float64)))
        expected, state = session.run(['energy', 'hn'], {'x': x, 'h': state})
        first = expected if first is None else first
        found = read_tensors(results.wait_for(at(number)))
        assert found == {'energy': pytest.approx(float(expected), abs=1e-4)}
    answer = peer.call(Trigger, '/gru/reset')
    assert answer.success
    steps.publish(tensor_list(13, x=inputs[0]))
    assert read_tensors(results.wait_for(at(13))) == {
        'energy': pytest.approx(float(first), abs=1e-4)
    }
    # Played again: the stamps jump back, and the state is zero.
    steps.publish(tensor_list(5, x=inputs[0]))
    peer.wait_until(lambda: len(results.messages) == 14, 'the result after the jump')
    assert read_tensors(results.messages[-1]) == {'energy': pytest.approx(float(first), abs=1e-4)}
    assert node.change('deactivate')
    assert node.change('activate')
    peer.wait_until(steps.get_subscription_count, 'the node to subscribe again')
    steps.publish(tensor_list(6, x=inputs[0]))
    peer.wait_until(lambda: len(results.messages) == 15, 'the result after activation')
    assert read_tensors(results.messages[-1]) == {'energy': pytest.approx(float(first), abs=1e-4)}


def test_a_policy_samples_its_newest_inputs(start, peer, publisher, picture_of):
    """The clock is simulated: a sample is taken when it says so."""
    clock = peer.publisher(Clock, '/clock')
    node = start(
        'tensor',
        'policy',
        'policy',
        inputs=[
            'left=image:hand',
            'right=image:head?max_age=2.0',
            'joints=tensor:joint_tensors#positions?max_age=0.5',
        ],
        rate_hz=10.0,
        use_sim_time=True,
    )
    assert 'synchronization: newest messages, sampled at 10 Hz' in node.log
    hand, head = publisher(Image, '/hand'), publisher(Image, '/head')
    joints = publisher(TensorList, '/joint_tensors')
    results = peer.inbox(TensorList, '/policy/tensors')
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')
    status = partial(wait_for_values, inbox, 'policy: image')

    def has(key, value):
        return lambda: any(values_of(array).get(key) == value for array in inbox.messages)

    def tick(seconds, is_known):
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(round(seconds * 1e9), 10**9)
        # Messages of the clock may be lost.
        peer.wait_until(lambda: clock.publish(message) or is_known(), f'{seconds} s at the node')

    hand.publish(picture_of(RED, 100.0, 'hand'))
    head.publish(picture_of(GREEN, 99.0, 'head'))
    positions = np.array([[0.25, -0.5]], np.float32)
    joints.publish(tensor_list(100.0, other=positions * 9, positions=positions))
    status(**{f'{topic}: frames received': '1' for topic in ('hand', 'head', 'joint_tensors')})
    tick(100.2, lambda: results.messages)
    (found,) = results.messages
    assert at(100.0)(found) and found.header.frame_id == 'hand'
    assert read_tensors(found) == {'action': [pytest.approx([1, 0, 0, 0, 1, 0, 0.25, -0.5])]}
    # Sampled again, although nothing is new.
    tick(100.4, lambda: len(results.messages) == 2)
    joints.publish(tensor_list(100.05, positions=3 * positions))
    status(**{'joint_tensors: frames received': '2'})
    tick(100.6, has('joint_tensors: dropped: older than max_age', '1'))
    joints.publish(tensor_list(100.6, positions=2 * positions))
    status(**{'joint_tensors: frames received': '3'})
    tick(100.8, lambda: len(results.messages) == 3)
    assert read_tensors(results.messages[2])['action'][0][7] == -1
    joints.publish(tensor_list(100.7, positions=positions))
    status(**{'joint_tensors: frames received': '4'})
    # Time jumps back: all is forgotten.
    tick(50.0, has('joint_tensors: dropped: time jumped back', '1'))
    hand.publish(picture_of(BLACK, 50.4, 'hand'))
    head.publish(picture_of(BLACK, 50.4))
    joints.publish(tensor_list(50.4, positions=positions))
    status(**{f'{topic}: frames received': '2' for topic in ('hand', 'head')})
    status(**{'joint_tensors: frames received': '5'})
    tick(50.6, lambda: len(results.messages) > 3)
    assert all(at(50.4)(message) for message in results.messages[3:])


@ON_CPU
def test_multi_arrays_need_no_isaac_ros(start, peer, publisher):
    vector = peer.publisher(Float64MultiArray, '/arrays/tensors/x')
    node = start(
        'tensor',
        'arrays',
        'scaled',
        inputs=['*=tensor:arrays/tensors'],
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


@ON_CPU
def test_a_publisher_of_another_multi_array_is_followed(start, peer):
    node = start(
        'tensor',
        'late',
        'gru',
        inputs=['x=tensor:late_x', 'h=state:hn'],
        tensor_format='multiarray',
    )
    results = peer.inbox(Float32MultiArray, '/late/tensors/energy')
    first = peer.publisher(Float64MultiArray, '/late_x')
    node.wait_for_log('/late_x: subscribed to Float64MultiArray, which is published.')
    peer.wait_until(first.get_subscription_count, 'a subscription of float64')
    first.publish(Float64MultiArray(data=[1.0, 2.0, 3.0, 4.0]))
    results.wait_for()
    peer.run_on_executor(lambda: peer.node.destroy_publisher(first))
    second = peer.publisher(Int64MultiArray, '/late_x')
    node.wait_for_log('/late_x: subscribed to Int64MultiArray, which is published.')
    peer.wait_until(second.get_subscription_count, 'a subscription of int64')
    second.publish(Int64MultiArray(data=[1, 2, 3, 4]))
    peer.wait_until(lambda: len(results.messages) == 2, 'the second result')
    assert node.change('deactivate')


@ON_CPU
def test_a_topic_of_another_type_is_warned_about_once(start, peer):
    published = {'/lists': TensorList, '/states': JointState, '/pictures': Image}
    for topic, kind in published.items():
        peer.publisher(kind, topic)
    node = start(
        'tensor',
        'mistyped',
        'policy',
        inputs=['left=image:lists', 'right=image:states', 'joints=tensor:pictures'],
        rate_hz=10.0,
    )
    warnings = [
        '/lists is published as isaac_ros_tensor_list_interfaces/msg/TensorList, but this node '
        'subscribes to sensor_msgs/msg/Image: it receives nothing. Remedy: ',
        '/states is published as sensor_msgs/msg/JointState, but this node subscribes to '
        'sensor_msgs/msg/Image: it receives nothing. Remedy: choose a topic of this type, or the '
        'kind joints: in inputs.',
        '/pictures is published as sensor_msgs/msg/Image, but this node subscribes to '
        'isaac_ros_tensor_list_interfaces/msg/TensorList: it receives nothing. Remedy: ',
    ]
    for text in warnings:
        node.wait_for_log(text)
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    def statuses():
        found = [array.status[0] for array in inbox.messages]
        return [status for status in found if status.name == 'mistyped: image']

    def is_stale():
        return statuses() and statuses()[-1].level == DiagnosticStatus.STALE

    peer.wait_until(is_stale, 'the status of a silent topic')
    silent = ' on /lists: 1 publisher of type isaac_ros_tensor_list_interfaces'
    assert silent in statuses()[-1].message
    assert [node.log.count(text) for text in warnings] == [1, 1, 1]
