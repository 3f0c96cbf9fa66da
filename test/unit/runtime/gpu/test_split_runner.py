"""Networks of outputs whose shape depends on the data, in two parts."""

from pathlib import Path

import numpy as np
import onnx
from onnx import parser
import pytest

from support.builds import build_here
from support.save_network import save_text
from support.selections import NETWORKS, write
from trt_ros import Pipeline
from trt_ros.child import Events
from trt_ros.engine.builder.model_file import DATA_DEPENDENT, file_mentions
from trt_ros.engine.builder.onnx_split import split_model
from trt_ros.errors import ModelError
from trt_ros.progress import Reporter
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.gpu.split_runner import SplitRunner, open_split
from trt_ros.runtime.options import ModelOptions
from trt_ros.runtime.runner import CopyingRunner
from trt_ros.trt import installed, load_trt

X = {'x': np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}


class NoEvents(Events):
    def __init__(self):
        pass


def split(path: Path) -> dict:
    files = {name: str(path.with_name(f'{name}.onnx')) for name in ('head', 'tail')}
    return split_model({'path': str(path), **files}, NoEvents())


@pytest.mark.parametrize('name', NETWORKS)
def test_both_parts_compute_what_the_network_does(name, tmp_path):
    path = write(tmp_path / 'net.onnx', name)
    assert file_mentions(path, *DATA_DEPENDENT)
    found = split(path)
    whole, head, tail = (
        OnnxRuntimeRunner.open(tmp_path / f'{each}.onnx') for each in ('net', 'head', 'tail')
    )
    ops = {node.op_type for node in onnx.load(tmp_path / 'head.onnx').graph.node}
    assert 'Conv' in ops and not ops & {'NonZero', 'Compress', 'NonMaxSuppression'}
    assert 'operators run on the CPU, behind the engine' in found['line']
    runner = SplitRunner(head, tail, whole.inputs, whole.outputs, (found['line'],))
    assert runner.metadata == {'names': 'of classes'}
    for x in (X['x'], -X['x'], X['x'] - 9.0):  # Of the last, nothing is selected.
        want = whole.infer({'x': x})
        got = runner.infer({'x': x})
        assert list(got) == list(want)
        for key, value in want.items():
            np.testing.assert_array_equal(got[key], value)
    runner.close()


class Reusing(CopyingRunner):
    """A runner that reuses the memory of its outputs, as that of TensorRT."""

    def infer(self, tensors):
        found = super().infer(tensors)
        kept = self.__dict__.setdefault('kept', found)
        for name, value in found.items():
            kept[name][...] = value
        return kept


def test_results_stay_valid_where_the_head_reuses_its_memory(tmp_path):
    text = '(float[2] x) => (float[2] y, int64[1,n] z) { y = Relu(x)  z = NonZero(y) }'
    split(save_text(tmp_path / 'net.onnx', text))
    whole, head, tail = (
        OnnxRuntimeRunner.open(tmp_path / f'{each}.onnx') for each in ('net', 'head', 'tail')
    )
    runner = SplitRunner(Reusing(head), tail, whole.inputs, whole.outputs)
    first, second = (runner.infer({'x': np.array(x, np.float32)}) for x in ([1, 0], [2, 3]))
    assert (first['y'].tolist(), first['z'].tolist()) == ([1, 0], [[0]])
    assert (second['y'].tolist(), second['z'].tolist()) == ([2, 3], [[0, 1]])


@pytest.mark.slow
@pytest.mark.skipif(not installed('tensorrt_rtx'), reason='no tensorrt_rtx')
@pytest.mark.parametrize('name', NETWORKS)
def test_tensorrt_builds_the_head(name, tmp_path):
    split(write(tmp_path / 'net.onnx', name))
    rtx = load_trt('tensorrt_rtx')
    report, _ = build_here(tmp_path / 'head.onnx', rtx)
    types = {each['dtype'] for each in report['outputs']}
    assert types <= {'float32', 'bool'}  # No shapes, which TensorRT has in host memory.


def test_networks_of_fixed_shapes_stay_whole(tmp_path):
    path = save_text(tmp_path / 'net.onnx', '(float[2] x) => (float[2] y) { y = Relu(x) }')
    assert not file_mentions(path, *DATA_DEPENDENT) and split(path) == {}


def test_a_selection_inside_a_function_is_found(tmp_path):
    path = write(tmp_path / 'net.onnx', 'indices')
    model = onnx.load(path)
    head, body = '<domain: "d", opset_import: ["": 18]>', 'm = Greater(c, half)  w = NonZero(m)'
    model.functions.append(parser.parse_function(f'{head} f (c, half) => (w) {{{body}}}'))
    del model.graph.node[1:]
    model.graph.node.append(onnx.helper.make_node('f', ['c', 'half'], ['where'], domain='d'))
    model.opset_import.append(onnx.helper.make_opsetid('d', 1))
    onnx.save(model, path)
    assert split(path)['operators'] == 1


def test_a_network_that_begins_with_a_selection_is_refused(tmp_path):
    path = save_text(tmp_path / 'net.onnx', '(float[2] x) => (int64[1,n] y) { y = NonZero(x) }')
    with pytest.raises(ModelError, match=r'cannot be split before NonZero'):
        split(path)


@pytest.mark.slow
def test_a_pipeline_runs_the_parts(tmp_path):
    """Its head runs on the CPU here, too."""

    path = write(tmp_path / 'net.onnx', 'shapes')
    cache = tmp_path / 'cache'
    options = ModelOptions(
        str(path), decoder='tensor', inputs=('x=tensor:x',), engine_cache_dir=str(cache)
    )
    phases = []
    report = Reporter(lambda progress: phases.append(progress.phase))
    open_split(options, report, OnnxRuntimeRunner.open).close()
    assert {*phases} == {'splitting the model'}
    phases.clear()
    runner = open_split(options, report, OnnxRuntimeRunner.open)
    assert not phases  # The parts are in the cache.
    assert 'operators run on the CPU' in runner.log_lines[-1]
    with (
        Pipeline.open(options, runner=OnnxRuntimeRunner.open(path)) as whole,
        Pipeline.open(options, runner=runner) as parts,
    ):
        want, got = whole.infer(X), parts.infer(X)
        assert list(got) == list(want)
        assert all(np.array_equal(got[key], want[key]) for key in want)
