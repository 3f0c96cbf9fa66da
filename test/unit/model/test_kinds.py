"""Messages of the kinds of bundles."""

import pytest

from trt_ros.errors import ParameterError
from trt_ros.model.bindings import parse_bindings
from trt_ros.model.kinds import BINDINGS, binding_of, field_of


@pytest.mark.parametrize(
    ('kind', 'elements', 'binding'),
    [
        ('state/joint/velocity', ['b', 'a'], 'joints:joint_states#velocity[b,a]'),
        ('state/body/rotation', (), 'imu:imu#orientation[w,x,y,z]'),
        ('state/body/rotation', 'xyzw', 'imu:imu#orientation[x,y,z,w]'),
        ('state/body/linear_velocity', (), 'odometry:odom#linear[x,y,z]'),
        ('state/camera/image', (), 'image:image?channel_order=rgb&resize=stretch&scale=1'),
        ('command/body/target_position', 'xyz', 'pose:target_pose#position[x,y,z]?held=true'),
    ],
)
def test_kinds_and_elements_are_bindings(kind, elements, binding):
    assert binding_of('x{}', kind, elements) == f'x{{}}={binding}'


def test_every_kind_is_a_valid_binding_and_outputs_are_fields():
    for kind in BINDINGS:
        elements = ['hip', 'knee'] if '/joint/' in kind else ()
        (parsed,) = parse_bindings((binding_of('x', kind, elements),))
        assert parsed.topics
    assert [field_of('a', kind) for kind in ('target/joint/torques', 'kp')] == ['effort', 'kp']
    with pytest.raises(ParameterError, match='is no command'):
        field_of('a', 'state/joint/position')


@pytest.mark.parametrize(
    ('kind', 'elements'),
    [
        ('', ()),
        ('state/joint/torque', ['a']),
        ('state/joint/position', ()),
        ('state/body/rotation', ['roll']),
    ],
)
def test_unknown_kinds_and_elements_are_tensors(kind, elements):
    assert binding_of('x', kind, elements) == 'x=tensor:tensors#x'
