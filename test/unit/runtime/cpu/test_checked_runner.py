"""Models that crash, hang or fill the memory: an error, and the process goes on."""

from itertools import groupby
from pathlib import Path
import threading

import numpy as np
from onnx import helper
import pytest

from fuzz import attributes, control_flow, graphs, tensors
from support.save_network import save_network
from trt_ros.errors import ClosedError, MemoryLimitError, ModelError, TimeLimitError
from trt_ros.progress import CancelledError, Reporter
from trt_ros.runtime.cpu.checked_runner import CheckedRunner
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline

pytestmark = pytest.mark.slow


@pytest.fixture
def write(tmp_path):
    """Write a model and give its path."""

    def make(model) -> Path:
        path = tmp_path / 'model.onnx'
        path.write_bytes(model.SerializeToString())
        return path

    return make


@pytest.fixture
def cache(tmp_path) -> str:
    return str(tmp_path / 'cache')


@pytest.fixture
def phases() -> list[str]:
    """The phases that were reported, again and again where the machine is slow."""
    return []


@pytest.fixture
def report(phases) -> Reporter:
    return Reporter(lambda progress: phases.append(progress.phase))


def open_model(path, cache, **more) -> Pipeline:
    options = LabeledOptions(str(path), backend='onnxruntime', engine_cache_dir=cache)
    return Pipeline.open(options, **more)


def starts(phases) -> int:
    """Return the number of runs in checking processes."""
    return [phase for phase, _ in groupby(phases)].count('running the model once')


def picture(shape=(1, 3, 64, 64)):
    return {'images': np.zeros(shape, np.float32)}


def test_a_model_is_checked_once_on_a_machine(write, cache, phases, report):
    path, answers = write(graphs.detector()), []
    for _ in range(2):
        runner = CheckedRunner.open(path, report=report, engine_cache_dir=cache)
        assert [spec.shape for spec in runner.inputs] == [(1, 3, 64, 64)]
        assert [spec.shape for spec in runner.outputs] == [(1, 7, 84)]
        assert runner.metadata['names'] == "['a', 'b', 'c']"
        answers.append(runner.infer(picture())['output0'])
        runner.infer(picture())
        runner.close()
    assert starts(phases) == 1
    assert {*phases} == {'loading the model', 'running the model once'}
    assert np.array_equal(*answers)


def test_another_content_or_other_shapes_are_checked_again(write, cache, phases, report):
    def run(model, shape):
        runner = CheckedRunner.open(write(model), report=report, engine_cache_dir=cache)
        runner.infer(picture(shape))
        runner.close()

    dynamic = graphs.averaged(image=(1, 3, 'h', 'w'))
    run(dynamic, (1, 3, 8, 8))
    run(dynamic, (1, 3, 16, 16))
    run(dynamic, (1, 3, 8, 8))
    assert starts(phases) == 2
    run(graphs.detector(), (1, 3, 64, 64))
    assert starts(phases) == 3


def test_checks_at_each_start_without_writable_cache(write, tmp_path, phases, report):
    (tmp_path / 'file').touch()
    for _ in range(2):
        runner = CheckedRunner.open(
            write(graphs.detector()), report=report, engine_cache_dir=str(tmp_path / 'file')
        )
        assert runner.infer(picture())['output0'].shape == (1, 7, 84)
        runner.close()
    assert starts(phases) == 2


def test_model_that_crashes_fails_each_time(write, cache):
    path = write(graphs.detector(strides=[0, 0]))
    # ONNX Runtime 1.32 refuses what crashes older ones.
    problem = r'The check of .*model\.onnx crashed with SIGFPE|Attribute strides must'
    for _ in range(2):
        with pytest.raises(ModelError, match=problem):
            open_model(path, cache)


@pytest.mark.parametrize('name', ['range_33', 'tile_36'])
def test_a_memory_bomb_is_an_error(write, cache, name):
    path = write(dict(attributes.memory())[name])
    # ONNX Runtime 1.32 has a limit of its own for the output of Tile.
    problem = r'model\.onnx needs more than .* GiB of memory|Tile output tensor would require more'
    with pytest.raises(ModelError, match=problem) as caught:
        open_model(path, cache)
    assert isinstance(caught.value, MemoryLimitError) or 'Tile' in caught.value.cause


@pytest.fixture
def endless(write) -> Path:
    """A model that loads and never answers."""
    return write(dict(control_flow.control())['loop_2'])


@pytest.mark.nightly
def test_a_model_that_hangs_is_stopped(endless, cache, set_constants):
    set_constants(CHECK_SECONDS=4.0)
    runner = CheckedRunner.open(endless, engine_cache_dir=cache)
    with pytest.raises(TimeLimitError, match='during: running the model once'):
        runner.infer(picture())
    runner.close()


def test_a_model_that_hangs_can_be_cancelled(endless, cache):
    cancelled = threading.Event()

    def cancel_when_running(progress):
        if progress.phase == 'running the model once':
            cancelled.set()

    with pytest.raises(CancelledError):
        open_model(endless, cache, on_progress=cancel_when_running, cancelled=cancelled)


def test_check_outlives_the_thread_that_started_it(write, cache):
    opened: list[CheckedRunner] = []
    path = write(graphs.detector())
    thread = threading.Thread(
        target=lambda: opened.append(CheckedRunner.open(path, engine_cache_dir=cache))
    )
    thread.start()
    thread.join()
    (runner,) = opened
    assert runner.infer(picture())['output0'].shape == (1, 7, 84)
    runner.close()
    runner.close()
    with pytest.raises(ClosedError, match=r'model\.onnx is closed'):
        runner.infer(picture())


def test_accepts_tensor_names_reserved_by_numpy(tmp_path, cache):
    names = ['file', 'a/b', 'allow_pickle']
    nodes = [helper.make_node('Sum', names, ['y'])]
    path = save_network(tmp_path / 'sum.onnx', nodes, dict.fromkeys(names, (2,)), {'y': (2,)})
    runner = CheckedRunner.open(path, engine_cache_dir=cache)
    assert runner.infer({name: np.ones(2, np.float32) for name in names})['y'].tolist() == [3, 3]
    runner.close()


@pytest.mark.parametrize('name', ['image_8', 'imgsz_0'])
def test_an_input_that_cannot_be_allocated_is_refused(write, cache, name):
    path = write(dict(tensors.shapes())[name])
    with pytest.raises(ModelError, match=r'The input images .* is too large') as caught:
        open_model(path, cache)
    assert 'input_size' in caught.value.remedy


def test_metadata_that_is_not_utf8_is_an_error(tmp_path, cache):
    path = tmp_path / 'model.onnx'
    content = graphs.averaged(metadata={'names': 'REPLACED!!'}).SerializeToString()
    path.write_bytes(content.replace(b'REPLACED!!', b'\xff\xfe\xed\xa0\x80abcde'))
    with pytest.raises(ModelError, match='are not UTF-8'):
        CheckedRunner.open(path, engine_cache_dir=cache)
