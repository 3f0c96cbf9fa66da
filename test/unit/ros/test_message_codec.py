"""Numbers of messages of any type, from their bytes."""

import numpy as np
import pytest

pytest.importorskip('rclpy')

from geometry_msgs.msg import (
    PoseStamped,
    Quaternion,
    Twist,
    TwistStamped,
    Vector3,
    Vector3Stamped,
    WrenchStamped,
)
from nav_msgs.msg import Odometry
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import CameraInfo, Imu, JointState, LaserScan, Range
from std_msgs.msg import Bool, Float64, Header, Int64

from support.ros_messages import serialized
from trt_ros.errors import BadFrameError, ParameterError, TensorMismatchError
from trt_ros.model.bindings import parse_bindings
from trt_ros.ros.codecs.message import MessageCodec
from trt_ros.tensors import TensorSpec

RANDOM = np.random.default_rng(3)


class Node:
    """What a codec asks of its node."""

    def __init__(self):
        self.lines = []

    def get_logger(self):
        return self

    def info(self, line):
        self.lines.append(line)

    def resolve_topic_name(self, name):
        return f'/{name}'


def header():
    found = Header(frame_id='base')
    found.stamp.sec, found.stamp.nanosec = 5, 7
    return found


def vector():
    return Vector3(x=RANDOM.normal(), y=RANDOM.normal(), z=RANDOM.normal())


def of(vector):
    return [vector.x, vector.y, vector.z]


def open_codec(*bindings, shape=(1, -1), node=None, kind=None):
    specs = [TensorSpec(each.input, shape, 'float32', 'input') for each in bindings]
    codec = MessageCodec(node or Node(), 'topic', list(zip(bindings, specs)))
    if kind is not None:
        assert kind in codec.message_types
        codec.message_type = kind
    return codec


def open_text(text, **settings):
    return open_codec(*parse_bindings((f'x={text}',)), **settings)


def read(text, message):
    return reader_of(text, message)(serialized(message))


def reader_of(text, message):
    kind = None if text.startswith('message') else type(message)
    return open_text(text, kind=kind).reader()


def joints():
    return JointState(
        header=header(),
        name=['hip', 'knee', 'ankle'],
        position=[1.0, 2.0, 3.0],
        velocity=[4.0, 5.0, 6.0],
        effort=[7.0, 8.0, 9.0],
    )


def imu():
    turn = Rotation.random(random_state=4).as_quat()
    return Imu(
        header=header(),
        orientation=Quaternion(**dict(zip('xyzw', map(float, turn)))),
        angular_velocity=vector(),
        linear_acceleration=vector(),
    )


def odometry():
    message = Odometry(header=header(), child_frame_id='body')
    pose, twist = message.pose.pose, message.twist.twist
    pose.position.x, pose.position.y, pose.position.z = RANDOM.normal(size=3)
    pose.orientation = imu().orientation
    twist.linear, twist.angular = vector(), vector()
    return message


def wrench():
    message = WrenchStamped(header=header())
    message.wrench.force, message.wrench.torque = vector(), vector()
    return message


def camera_info():
    return CameraInfo(
        header=header(),
        distortion_model='plumb_bob',
        d=RANDOM.normal(size=5),
        k=RANDOM.normal(size=9),
        p=RANDOM.normal(size=12),
    )


def quaternion(message, order='xyzw'):
    return [getattr(message, name) for name in order]


def gravity(turn):
    return Rotation.from_quat(quaternion(turn)).inv().apply([0, 0, -1])


#: Fields, a message, and what they get of it.
CASES = {
    'joints:t#position[ankle,hip]': (joints, lambda m: [3, 1]),
    'joints:t#velocity[hip,knee],effort[knee]': (joints, lambda m: [4, 5, 8]),
    'imu:t#orientation[w,x,y,z]': (imu, lambda m: quaternion(m.orientation, 'wxyz')),
    'imu:t#orientation': (imu, lambda m: quaternion(m.orientation)),
    'imu:t#angular_velocity,linear_acceleration[z]': (
        imu,
        lambda m: [*of(m.angular_velocity), m.linear_acceleration.z],
    ),
    'imu:t#gravity': (imu, lambda m: gravity(m.orientation)),
    'odometry:t#position,orientation': (
        odometry,
        lambda m: [*of(m.pose.pose.position), *quaternion(m.pose.pose.orientation)],
    ),
    'odometry:t#linear,twist.twist.angular[z],gravity': (
        odometry,
        lambda m: [
            *of(m.twist.twist.linear),
            m.twist.twist.angular.z,
            *gravity(m.pose.pose.orientation),
        ],
    ),
    'pose:t': (
        lambda: PoseStamped(header=header(), pose=odometry().pose.pose),
        lambda m: [*of(m.pose.position), *quaternion(m.pose.orientation)],
    ),
    'twist:t#linear[x,y],angular[z]': (
        lambda: Twist(linear=vector(), angular=vector()),
        lambda m: [m.linear.x, m.linear.y, m.angular.z],
    ),
    'twist:t': (
        lambda: TwistStamped(header=header(), twist=Twist(linear=vector(), angular=vector())),
        lambda m: [*of(m.twist.linear), *of(m.twist.angular)],
    ),
    'vector:t': (lambda: Vector3Stamped(header=header(), vector=vector()), lambda m: of(m.vector)),
    'wrench:t#torque,force': (wrench, lambda m: [*of(m.wrench.torque), *of(m.wrench.force)]),
    'camera_info:t#k[0,4,2,5],d': (camera_info, lambda m: [*m.k[[0, 4, 2, 5]], *m.d]),
    'camera_info:t#p': (camera_info, lambda m: m.p),
    'camera_info:t#d[4,0]': (camera_info, lambda m: [m.d[4], m.d[0]]),
    'range:t#range,min_range': (
        lambda: Range(header=header(), range=2.5, min_range=0.5),
        lambda m: [2.5, 0.5],
    ),
    'scan:t#ranges': (
        lambda: LaserScan(header=header(), ranges=[1.0, float('inf')]),
        lambda m: [1, np.inf],
    ),
    'number:t': (lambda: Bool(data=True), lambda m: [1]),
    'number:t#data': (lambda: Float64(data=2.5), lambda m: [2.5]),
    'number: t # data ': (lambda: Int64(data=-3), lambda m: [-3]),
    'message:t#pose.position[z]?type=geometry_msgs/msg/PoseStamped': (
        lambda: PoseStamped(header=header(), pose=odometry().pose.pose),
        lambda m: [m.pose.position.z],
    ),
}


@pytest.mark.parametrize('text', CASES)
def test_fields_of_messages_become_arrays(text):
    make, expected = CASES[text]
    message = make()
    content = read(text, message)
    (value,) = content.value.values()
    np.testing.assert_allclose(value, expected(message), rtol=1e-12)
    if hasattr(message, 'header'):
        assert (content.frame_id, content.stamp) == ('base', (5, 7))


@pytest.mark.parametrize('text', CASES)
def test_damaged_messages_are_refused(text):
    """Cut at each byte, with each byte changed: read, or refused by cause; nothing else."""
    message = CASES[text][0]()
    reader, whole = reader_of(text, message), serialized(message)
    causes = set()
    damaged = [whole[:size].copy() for size in range(len(whole))]
    for at in range(4, len(whole)):
        for value in (0, 1, 0x7F, 0xFF):
            damaged.append(whole.copy())
            damaged[-1][at] = value
    for each in damaged:
        try:
            reader(each)
        except BadFrameError as error:
            causes.add(error.kind)
    assert 'bad CDR' in causes
    known = {'bad CDR', 'missing joint', 'repeated joint', 'missing tensor', 'bad orientation'}
    assert causes <= known


def test_big_endian_messages_are_read():
    stamp_and_frame = np.array([5, 7, 2], '>u4').tobytes() + b'a\0\0\0'
    body = np.array([1.5, 2.5, 3.5], '>f8').tobytes()
    message = np.frombuffer(b'\0\0\0\0' + stamp_and_frame + body, np.uint8)
    content = open_text('vector:t').reader()(message)
    assert (content.frame_id, content.stamp) == ('a', (5, 7))
    assert content.value['x'].tolist() == [1.5, 2.5, 3.5]


@pytest.mark.parametrize(
    ('text', 'change', 'kind', 'words'),
    [
        ('joints:t#position[hip,foot]', {}, 'missing joint', "no joint 'foot'"),
        ('joints:t#position[hip,kne]', {}, 'missing joint', "Did you mean 'knee'"),
        ('joints:t#position[hip]', {'name': ['hip', 'knee', 'hip']}, 'repeated joint', "'hip'"),
        ('joints:t#effort[hip]', {'effort': []}, 'missing tensor', 'has 0 elements, but 3'),
        ('imu:t#gravity', {'orientation': Quaternion(w=0.0)}, 'bad orientation', 'zeros'),
        ('imu:t#gravity', {'orientation_covariance': [-1.0] + [0.0] * 8}, 'not measured', 'Imu'),
        (
            'imu:t#angular_velocity',
            {'angular_velocity_covariance': [-1.0] + [0.0] * 8},
            'not measured',
            'angular_velocity',
        ),
        ('camera_info:t#d[5]', {}, 'missing tensor', 'has 5 elements, but 6'),
    ],
)
def test_messages_without_the_values_are_refused_by_cause(text, change, kind, words):
    makers = {'joints': joints, 'imu': imu, 'camera_info': camera_info}
    message = makers[text.partition(':')[0]]()
    for name, value in change.items():
        setattr(message, name, value)
    with pytest.raises(BadFrameError, match=words) as refused:
        read(text, message)
    assert refused.value.kind == kind


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('joints:t#positon[hip]', "no field 'positon'.*Did you mean 'position'"),
        ('joints:t#position', 'position.*bound without names'),
        ('joints:t', "field 'name' of JointState is a sequence"),
        ('imu:t#angular_velocity[x,w]', "no element 'w'.*x, y, z"),
        ('imu:t#angular', "no field 'angular'"),
        ('odometry:t#covariance', "several fields 'covariance': pose.covariance"),
        ('odometry:t#child_frame_id', "no field 'child_frame_id' of numbers"),
        ('scan:t#ranges[a]', 'no numbers'),
        ('message:t#data', 'no message types'),
        ('message:t#data?type=std_msgs/msg/Float', 'not installed'),
        ('message:t#data?type=Float32', "'Float32' is no message type"),
        ('message:t#data?type=os/path/join', 'is no message type'),
        ('message:t?type=std_msgs/msg/String', "field 'data' of String is no number"),
        ('scan:t', "field 'ranges' of LaserScan is a sequence"),
        ('camera_info:t', 'Name the fields'),
        ('number:t?type=std_msgs/msg/Float32', 'type is for the kind message'),
        ('message:t#transforms?type=sensor_msgs/msg/PointCloud2', "no field 'transforms'"),
        ('message:t#data?type=sensor_msgs/msg/PointCloud2', 'behind lists of messages'),
    ],
)
def test_fields_that_messages_lack_are_refused(text, words):
    with pytest.raises(ParameterError, match=f'(?s){words}'):
        open_text(text)


@pytest.mark.parametrize(
    'text',
    [
        't#position[a',
        't#position[a,]',
        't#a,',
        't#a, ',
        't#[a]',
        't#a b',
        't#a]',
        't#a[b][c]',
        't#',
        't#a[b,c,b]',
    ],
)
def test_malformed_fields_are_refused(text):
    with pytest.raises(ParameterError, match=r'Invalid fields|empty tensor name|a twice'):
        parse_bindings((f'x=joints:{text}',))


def test_another_number_of_elements_than_the_input_has_is_refused():
    with pytest.raises(TensorMismatchError, match='but its binding has 2 numbers'):
        open_text('twist:t#linear[x,y]', shape=(1, 3))


def test_two_inputs_share_a_message_whose_type_decides_whether_it_has_a_stamp():
    bindings = parse_bindings(('a=joints:t#position[hip]', 'b=joints:t#velocity[knee]'))
    found = open_codec(*bindings).reader()(serialized(joints())).value
    assert {name: value.tolist() for name, value in found.items()} == {
        'position[hip]': [1],
        'velocity[knee]': [5],
    }
    assert not open_text('twist:t', kind=Twist).has_stamp
    assert open_text('twist:t', kind=TwistStamped).has_stamp


def test_messages_that_differ_by_more_than_numbers_are_read_anew():
    node = Node()
    read = open_text('joints:t#position[a,b]', node=node).reader()
    messages = [
        ('abd', 'x'),
        ('abd', 'x'),
        ('bca', 'x'),
        ('bca', 'x'),
        ('abd', 'x'),
        ('abcd', 'y'),
    ]
    for number, (names, frame) in enumerate(messages):
        head = Header(frame_id=frame)
        head.stamp.sec = number
        values = [float(number + 10 * place) for place in range(len(names))]
        found = read(serialized(JointState(header=head, name=list(names), position=values)))
        wanted = [values[names.index(name)] for name in 'ab']
        assert found.value['position[a,b]'].tolist() == wanted
        assert (found.frame_id, found.stamp) == (frame, (number, 0))
    assert [line.rpartition(' ')[2] for line in node.lines] == ['d', 'c', 'd']
