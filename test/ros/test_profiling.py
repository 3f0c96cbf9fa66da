"""The node parameter `profiling`: which ranges a frame has."""

import os
from pathlib import Path

import pytest

from support.fake_nvtx.nvtx import read_ranges
from support.ros_messages import as_image, picture

FAKE_NVTX = Path(__file__).parents[1] / 'support/fake_nvtx'
STEPS = ['read', 'start', 'preprocess', 'network', 'decode', 'collect', 'publish']


@pytest.fixture(scope='module')
def profiled(request, tmp_path_factory):
    """A node in whose process nvtx writes the ranges to a file."""
    path = tmp_path_factory.mktemp('ranges') / 'ranges.txt'
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PYTHONPATH', str(FAKE_NVTX), prepend=os.pathsep)
        patch.setenv('NVTX_LOG', str(path))
        lane = request.getfixturevalue('start_lane')('profiled', profiling=True)
        lane.path = path
        yield lane


def test_each_frame_has_a_range_per_step_while_profiling_is_on(profiled):
    profiled.node.wait_for_log('profiling: NVTX ranges of the domain trt_ros')
    profiled.detect(as_image(picture(), 'rgb8'))
    profiled.status('frames published', '1')
    assert profiled.node.change('deactivate')  # Joins the threads: all ranges have ended.
    threads = read_ranges(profiled.path).values()
    (worker,) = [ranges for ranges in threads if (0, 'trt_ros: publish') in ranges]
    assert worker[-7:] == [
        (depth, f'trt_ros: {name}') for depth, name in zip((0, 0, 1, 1, 1, 0, 0), STEPS)
    ]
    assert any((0, 'trt_ros: take') in ranges for ranges in threads)

    assert profiled.node.change('cleanup')
    assert profiled.node.set(profiling=False) == ''
    size = profiled.path.stat().st_size
    for label in ('configure', 'activate'):
        assert profiled.node.change(label), profiled.node.log
    profiled.detect(as_image(picture(), 'rgb8'))
    assert profiled.path.stat().st_size == size
