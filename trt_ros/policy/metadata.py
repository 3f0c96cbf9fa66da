"""Metadata of policies: joints, default pose, scale and gains, as exporters write them."""

from collections.abc import Mapping
import json
from typing import Any

from trt_ros.errors import ParameterError, printable

#: Keys of holosoma, mjlab, BeyondMimic and others, by parameter.
_KEYS = {
    'joints': ('dof_names', 'joint_names'),
    'action_scale': ('action_scale',),
    'action_offset': ('default_joint_pos', 'default_dof_angles'),
    'kp': ('kp', 'joint_stiffness'),
    'kd': ('kd', 'joint_damping'),
}


def commands_of(metadata: Mapping[str, str]) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """
    Return the key and the values of each parameter of the commands that the metadata has.

    >>> commands_of({'joint_names': 'hip, knee', 'kp': '[20, 10.5]'})
    {'joints': ('joint_names', ('hip', 'knee')), 'kp': ('kp', (20.0, 10.5))}

    :raises ParameterError: when a value cannot be read.
    """
    return {
        name: (key, _values(key, metadata[key], str if name == 'joints' else float))
        for name, keys in _KEYS.items()
        for key in [key for key in keys if key in metadata][:1]
    }


def _values(key: str, text: str, kind: type) -> tuple[Any, ...]:
    try:
        values = json.loads(text)
    except ValueError:
        values = [each.strip(' \'"') for each in text.strip(' []()').split(',')]
    values = values if isinstance(values, list) else [values]
    try:
        if not all(isinstance(each, (str, int, float)) and each != '' for each in values):
            raise TypeError('neither names nor numbers')
        return tuple(map(kind, values))
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f'The metadata {key} of the network cannot be read.',
            cause=printable(f'{error}: {text[:80]}'),
            remedy='Correct or remove it in the ONNX file.',
        ) from error
