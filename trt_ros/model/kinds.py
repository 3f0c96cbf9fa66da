"""Kinds of LEAPP bundles: the messages that feed an input, and what an output commands."""

from collections.abc import Mapping, Sequence

from trt_ros.errors import ParameterError, meant, printable

#: Binding of an input without its elements, by kind; {} stands for the elements in brackets.
BINDINGS: Mapping[str, str] = {
    'state/joint/position': 'joints:joint_states#position{}',
    'state/joint/velocity': 'joints:joint_states#velocity{}',
    'state/joint/effort': 'joints:joint_states#effort{}',
    'state/body/rotation': 'imu:imu#orientation{}',
    'state/body/angular_velocity': 'imu:imu#angular_velocity{}',
    'state/body/linear_velocity': 'odometry:odom#linear{}',
    'state/body/position': 'odometry:odom#position{}',
    'state/body/pose': 'odometry:odom#position[x,y,z],orientation[w,x,y,z]',
    'state/camera/image': 'image:image?channel_order=rgb&resize=stretch&scale=1',
    'command/body/velocity': 'twist:cmd_vel#linear[x,y],angular[z]?held=true&initial=0',
    'command/body/target_position': 'pose:target_pose#position{}?held=true',
    'command/body/target_rotation': 'pose:target_pose#orientation{}?held=true',
    'command/body/rotation': 'pose:target_pose#orientation{}?held=true',
    'command/joint/position': 'joints:joint_commands#position{}?held=true',
    'command/joint/velocity': 'joints:joint_commands#velocity{}?held=true',
}
#: Elements of a kind whose names are those of the message, in the order without names.
_ELEMENTS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(
        (
            'state/body/angular_velocity',
            'state/body/linear_velocity',
            'state/body/position',
            'command/body/target_position',
        ),
        'xyz',
    ),
    **dict.fromkeys(
        ('state/body/rotation', 'command/body/target_rotation', 'command/body/rotation'), 'wxyz'
    ),
}
#: What an output commands, by kind.
FIELDS: Mapping[str, str] = {
    'target/joint/position': 'position',
    'target/joint/velocity': 'velocity',
    'target/joint/effort': 'effort',
    'target/joint/torques': 'effort',
    'target/body/velocity': 'twist',
    'kp': 'kp',
    'kd': 'kd',
}


def binding_of(name: str, kind: str, element_names: Sequence[str] = ()) -> str:
    """
    Return the binding of a bundle's outside input: that of its kind, else of a tensor.

    >>> binding_of('q', 'state/joint/position', ['hip', 'knee'])
    'q=joints:joint_states#position[hip,knee]'

    :param element_names: of the last axis; () where the bundle has none.
    """
    form, known = BINDINGS.get(kind), _ELEMENTS.get(kind, ())
    elements = [*element_names] or [*known]
    is_unnamed = '/joint/' in kind and not elements
    if form is None or is_unnamed or (known and set(elements) - set(known)):
        return f'{name}=tensor:tensors#{name}'
    return f'{name}=' + form.format(f'[{",".join(elements)}]')


def field_of(name: str, kind: str) -> str:
    """Return what a bundle's outside output commands, one of FIELDS, or raise ParameterError."""
    if kind not in FIELDS:
        raise ParameterError(
            printable(f'The output {name!r} of kind {kind!r} is no command.'),
            cause=printable(f'{meant(kind, FIELDS)}The kinds are {", ".join(FIELDS)}.'),
            remedy='Set outputs and output_fields.',
        )
    return FIELDS[kind]
