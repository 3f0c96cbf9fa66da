"""Pipelines of one process that open the same model share one engine and its weights."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.save_network import save_network
from support.scripts import run_script
from trt_ros.errors import GpuFailedError
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame

pytestmark = pytest.mark.gpu

SHARED = 'engine shared by (pipelines)'


def picture(width: int) -> Frame:
    rng = np.random.default_rng(width)
    return Frame.from_pixels(rng.integers(0, 256, (120, width, 3), dtype=np.uint8))


def assert_same(one: Any, other: Any) -> None:
    assert len(one) == len(other) > 0
    np.testing.assert_allclose(np.sort(one.scores), np.sort(other.scores), atol=1e-5)


@pytest.fixture
def open_one(gpu, small_detector):
    """Open a pipeline of the small detector; all are closed at the end."""
    path = str(small_detector())
    with ExitStack() as opened:

        def make(cache_dir: str = '') -> Pipeline[Any]:
            options = {'engine_cache_dir': cache_dir, 'device': gpu.index, 'decoder': 'yolov8'}
            return opened.enter_context(closing(Pipeline.open(path, **options)))

        yield make


@pytest.mark.usefixtures('nothing_left')
def test_results_of_two_pipelines_are_equal_and_closing_one_leaves_the_other(open_one):
    first, second = open_one(), open_one()
    shared = [pipeline.shared.contexts.engine.handle for pipeline in (first, second)]
    assert shared[0] is shared[1]
    del shared
    assert [each.diagnostics()[SHARED] for each in (first, second)] == ['2', '2']
    assert any('shared by 2 pipelines of this process' in line for line in second.log_lines)
    wants = {width: first.infer(picture(width)) for width in (160, 200, 320)}

    def serve(pipeline: Pipeline[Any]) -> None:
        for _ in range(50):
            for width, want in wants.items():
                assert_same(pipeline.infer(picture(width)), want)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(serve, (first, second)))
    first.close()
    assert second.diagnostics()[SHARED] == '1'
    serve(second)


@pytest.mark.usefixtures('nothing_left')
def test_pipelines_that_are_opened_at_once_build_and_load_one_engine(open_one, tmp_path):
    with ThreadPoolExecutor(3) as threads:
        opened = list(threads.map(open_one, [str(tmp_path)] * 3))
    assert [each.diagnostics()[SHARED] for each in opened] == ['3', '3', '3']
    origins = [next(line for line in each.log_lines if '.engine' in line) for each in opened]
    assert sum('built (' in line for line in origins) == 1, origins


@pytest.mark.usefixtures('nothing_left')
def test_a_pipeline_that_is_opened_after_a_timeout_loads_the_engine_again(open_one):
    first, second = open_one(), open_one()
    want = second.infer(picture(160))
    first.faults.fail(GpuFailedError('The GPU has not responded for 10.0 s.'))
    third = open_one()
    assert [each.diagnostics()[SHARED] for each in (second, third)] == ['2', '1']
    first.close()
    assert second.diagnostics()[SHARED] == '1'
    for pipeline in (second, third):
        assert_same(pipeline.infer(picture(160)), want)
    assert_same(open_one().infer(picture(160)), want)
    assert third.diagnostics()[SHARED] == '2'


@pytest.fixture
def heavy_network(tmp_path) -> Path:
    """Write a network of one matrix of 4096 × 8192 float32, 134 MB."""
    weights = np.random.default_rng(0).normal(0, 1, (4096, 8192)).astype(np.float32)
    nodes = 'y = MatMul(x, weights)'
    shapes = {'x': (1, 4096)}, {'y': (1, 8192)}
    path = tmp_path / 'heavy.onnx'
    return Path(save_network(path, nodes, *shapes, constants={'weights': weights}))


@pytest.mark.usefixtures('used_nbytes')
def test_the_second_pipeline_takes_the_memory_of_the_weights_less(gpu, heavy_network):
    """Compared with a third that loads the engine anew."""
    done = run_script(
        """
            import sys
            from cuda.core import system
            import numpy as np
            from trt_ros.cuda.calls import live
            from trt_ros.cuda.device import open_gpu
            from trt_ros.cuda.memory import process_nbytes
            from trt_ros.progress import Reporter
            from trt_ros.runtime.backends import open_network
            from trt_ros.runtime.options import PipelineOptions

            gpu = open_gpu(int(sys.argv[2]))
            gpu.synchronize()  # Makes its context.
            nvml = system.Device(pci_bus_id=gpu.pci_bus_id)
            x = np.random.default_rng(1).random((1, 4096), np.float32)

            def used():
                return process_nbytes(nvml) or nvml.memory_info.used

            def open_one():
                before = used()
                runner = open_network(
                    PipelineOptions(model_path=sys.argv[1], device=gpu.index), Reporter())[0]
                y = runner.infer({'x': x})['y'].copy()
                return runner, y, used() - before

            first, second = open_one(), open_one()
            assert second[0].engine.users == 2
            second[0].engine.retire()
            third = open_one()
            assert third[0].engine.users == 1
            np.testing.assert_array_equal(first[1], second[1])
            np.testing.assert_allclose(first[1], third[1], rtol=1e-3, atol=1e-1)
            taken = [each[2] / 1e6 for each in (first, second, third)]
            print('MB taken by first, shared, loaded again:', taken)
            assert taken[2] - taken[1] > 0.8 * 4096 * 8192 * 4 / 1e6, taken
            for runner, _, _ in (first, second, third):
                runner.close()
            assert not live(), live()
            print('done')
            """,
        heavy_network,
        gpu.index,
        check=False,
    )
    print(done.stdout)
    assert done.stdout.endswith('done\n'), done.stderr


def test_a_sticky_error_ends_the_sharing_and_all_pipelines_close(gpu, small_detector):
    done = run_script(
        """
        import sys
        import numpy as np
        from trt_ros.cuda.calls import live
        from trt_ros.engine import engine
        from trt_ros.errors import GpuFailedError
        from trt_ros.runtime.gpu import preprocess as steps
        from trt_ros.runtime.options import LabeledOptions
        from trt_ros.runtime.pipeline import Pipeline
        from trt_ros.vision.frame import Frame
        from trt_ros.vision.letterbox import Preprocess

        options = LabeledOptions(
            model_path=sys.argv[1], device=int(sys.argv[2]), decoder='yolov8')
        pipelines, faults = [Pipeline.open(options) for _ in range(2)], []
        pipelines[0].device.on_fault(faults.append)
        assert len(engine._shared) == 1
        frame = Frame.from_pixels(np.zeros((50, 50, 3), np.uint8))
        for pipeline in pipelines:
            pipeline.infer(frame)
        # A kernel that reads where nothing is.
        first = pipelines[0]
        (args,) = steps.preprocess_args(Preprocess((64, 96)), [steps.Geometry.of(frame)], [64], 64)
        with first.gpu.context:
            steps.launch_preprocess(
                first.shared.preprocess_kernels, args, first.slots.all[0].stream.handle)
        for pipeline in (*pipelines, first):
            try:
                pipeline.infer(frame)
            except GpuFailedError as error:
                print('FAILED', str(error).replace(chr(10), ' '))
        print('FAULTS', len(faults), 'SHARED', len(engine._shared))
        for pipeline in pipelines:
            pipeline.close()
        print('LEFT', live())
        """,
        small_detector(),
        gpu.index,
        check=False,
    )
    found = done.stdout.splitlines()
    failed = [line for line in found if line.startswith('FAILED')]
    assert len(failed) == 3 and 'cudaErrorIllegalAddress' in failed[0], done
    assert 'restart the process' in failed[0], done
    assert found[-2:] == ['FAULTS 1 SHARED 0', 'LEFT {}'], done
