"""The headers of the installed ROS declare what is bound; a changed layout is noticed."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
import os
from pathlib import Path
import shutil

import pytest

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def tool():
    spec = spec_from_file_location('rcl_headers', CHECKOUT / 'tools/rcl_headers.py')
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def headers():
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(':')
    folders = [
        Path(each) / 'include' for each in prefixes if (Path(each) / 'include/rcl').is_dir()
    ]
    if not folders:
        pytest.skip('the headers of rcl are not installed')
    return folders


def test_headers_declare_what_is_bound(tool, headers):
    assert tool.differences(headers) == []


@pytest.mark.parametrize(
    ('header', 'old', 'new'),
    [
        ('rcutils/types/uint8_array.h', 'size_t buffer_length;', 'uint32_t buffer_length;'),
        ('rmw/types.h', 'uint8_t data[', 'uint64_t stamp; uint8_t data['),
        ('rcl/subscription.h', 'rmw_message_info_t * message_info,', ''),
    ],
)
def test_another_layout_is_reported(tool, headers, tmp_path, header, old, new):
    for name in tool.BOUND:
        path = next(path for folder in headers for path in sorted(folder.rglob(name)))
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / name)
    assert tool.differences([tmp_path]) == []
    text = (tmp_path / header).read_text()
    assert old in text
    (tmp_path / header).write_text(text.replace(old, new))
    [problem] = tool.differences([tmp_path])[:1]
    assert header in problem
