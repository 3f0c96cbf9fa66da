"""NVTX ranges of `trt-ros bench` on a GPU, recorded by a stand-in for the package nvtx."""

import sys

import pytest

from support.fake_nvtx import nvtx
from trt_ros.cli import main

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize('is_graph', [True, False])
def test_bench_records_what_the_host_does(is_graph, gpu, small_detector, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'nvtx', nvtx)
    monkeypatch.setenv('NVTX_LOG', str(tmp_path / 'ranges.txt'))
    arguments = ['bench', str(small_detector()), '--device', str(gpu.index), '--profiling']
    arguments += ['--frames', '3', '--image-size', '160x120']
    assert main([*arguments, *([] if is_graph else ['--no-graph'])]) == 0
    (ranges,) = nvtx.read_ranges().values()
    names = [(depth, name.removeprefix('trt_ros: ')) for depth, name in ranges]
    outer = [name for depth, name in names if depth == 0]
    assert outer[-5:] == ['warm-up', 'graph alone', 'separate steps', 'frames', 'throughput']
    frames = names[: names.index((0, 'throughput'))]
    last = len(frames) - frames[::-1].index((1, 'frame')) - 1
    stages = ['copy in', 'preprocess', 'inference', 'copy out']
    assert frames[last:] == [
        (1, 'frame'),
        (2, 'copy'),
        (2, 'enqueue'),
        *((3, name) for name in stages if not is_graph),
        (2, 'wait'),
        (2, 'decode'),
    ]
