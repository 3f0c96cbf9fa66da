"""Metadata of policies, as exporters write them and as they are damaged."""

import pytest

from trt_ros.errors import ParameterError
from trt_ros.policy.metadata import commands_of


@pytest.mark.parametrize('text', ['a,b', '["a", "b"]', "['a', 'b']", "('a', 'b')"])
def test_names_are_read_as_json_python_and_text(text):
    assert commands_of({'dof_names': text}) == {'joints': ('dof_names', ('a', 'b'))}


@pytest.mark.parametrize('text', ['', 'null', '{"a": 1}', '[["a", "b"]]', 'a,'])
def test_what_is_no_list_of_names_is_refused(text):
    with pytest.raises(ParameterError, match='dof_names of the network cannot be read'):
        commands_of({'dof_names': text})
