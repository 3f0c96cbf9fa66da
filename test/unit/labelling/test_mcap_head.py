"""Definitions of the messages of results, which readers without ROS parse."""

import pytest
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from trt_ros.labelling.mcap_head import definition_of

STORE = get_typestore(Stores.ROS2_JAZZY)


@pytest.mark.parametrize(
    'name',
    [
        'vision_msgs/msg/Detection2DArray',
        'vision_msgs/msg/Classification',
        'sensor_msgs/msg/Image',
    ],
)
def test_a_definition_has_all_its_parts(name):
    types = get_types_from_msg(definition_of(name).decode(), name)
    nested = {
        argument if isinstance(argument, str) else argument[0][1]
        for _, fields in types.values()
        for _, (_, argument) in fields
    }
    assert {each for each in nested if '/' in each} <= types.keys()
    known = {each: fields for each, (_, fields) in types.items() if each in STORE.fielddefs}
    assert known == {each: STORE.fielddefs[each][1] for each in known}
    assert 'std_msgs/msg/Header' in known
