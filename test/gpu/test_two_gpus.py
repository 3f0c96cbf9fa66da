"""Pipelines and runners on two GPUs of one process, in one thread and in several."""

from collections.abc import Callable
import textwrap

import pytest

from support.scripts import run_script
from trt_ros.driver import nvidia_driver

pytestmark = pytest.mark.gpu

# In a process of its own: the contexts that it makes stay.
OPENED = """
import sys
import threading
import numpy as np
from trt_ros.cuda.calls import check, driver, live
from trt_ros.cuda.device import open_gpu
from trt_ros.cuda.memory import gpu_memory
from trt_ros.driver import nvidia_driver
from trt_ros.progress import Reporter
from trt_ros.runtime.backends import open_network
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame

def options(device):
    return LabeledOptions(model_path=sys.argv[1], engine_cache_dir=sys.argv[2], device=device,
                           decoder='yolov8')

def picture(width, height=120):
    rng = np.random.default_rng(width)
    return Frame.from_pixels(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))

def used():
    return [index for index in range(len(nvidia_driver().gpus)) if check(
        driver().cuDevicePrimaryCtxGetState(index), 'ask whether a GPU is used')[1]]

def in_thread(work):
    errors = []
    def run():
        try:
            work()
        except BaseException as error:
            errors.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]

def same(one, other):
    assert len(one) == len(other) > 0
    np.testing.assert_allclose(np.sort(one.scores), np.sort(other.scores), atol=1e-3)
"""

ENDED = """
assert not live(), live()
print('done')
"""


@pytest.fixture
def run(small_detector, tmp_path) -> Callable[..., None]:
    """Run code between OPENED and ENDED; its arguments are a network, a folder and those given."""

    def run(script: str, *args: object) -> None:
        code = OPENED + textwrap.dedent(script) + ENDED
        assert run_script(code, small_detector(), tmp_path, *args).stdout.endswith('done\n')

    return run


@pytest.fixture(scope='module', autouse=True)
def two_gpus(gpu) -> None:
    if len(nvidia_driver().gpus) < 2:
        pytest.skip('needs two NVIDIA GPUs')


@pytest.mark.parametrize('device', [0, 1])
def test_a_node_that_is_activated_again_and_sees_new_sizes_stays_on_its_gpu(device, run):
    """Each activation has a thread of its own, which may get the id of the one before."""
    run(
        """
        device = int(sys.argv[3])
        pipeline = Pipeline.open(options(device))
        want = pipeline.infer(picture(160))
        ring = np.zeros(1 << 20, np.uint8)
        idents = set()
        for width in (160, 200, 320, 640, 160):
            def activation():
                idents.add(threading.get_ident())
                pipeline.device.register(ring)
                for _ in range(5):
                    got = pipeline.infer(picture(width))
                if width == 160:
                    same(got, want)
                assert pipeline.diagnostics()['zero-copy frames'].startswith('0 of')
                frame = picture(width)
                ring[:frame.nbytes] = frame.data[:frame.nbytes]
                pipeline.infer(Frame(ring[:frame.nbytes], frame.width, frame.height, frame.step,
                                     frame.encoding))
                pipeline.device.unregister(ring)
            in_thread(lambda: None)
            pipeline.zero_copy_frames = 0
            in_thread(activation)
            assert pipeline.zero_copy_frames == 1
        assert len(idents) < 5, 'no id was reused'
        assert used() == [device], used()
        in_thread(pipeline.close)
        assert used() == [device], used()
    """,
        device,
    )


@pytest.mark.alone
@pytest.mark.parametrize('order', ['01', '10'])
def test_one_thread_serves_two_gpus(order, run):
    run(
        """
        pipelines = [Pipeline.open(options(int(device))) for device in sys.argv[3]]
        for pipeline in pipelines:  # Until nothing needs more memory.
            for width in (160, 640, 200):
                for _ in range(3):
                    pipeline.infer(picture(width))
        gpus = [open_gpu(index) for index in range(2)]
        for number, pipeline in enumerate(pipelines):
            other, = (gpu for gpu in gpus if gpu.index != pipeline.gpu.index)
            with other.context:
                free = gpu_memory()
            for width in range(202, 260, 2):
                pipeline.infer(picture(width))
            with other.context:
                assert gpu_memory() == free, (free, gpu_memory())
        for width in (160, 200, 640):
            same(*(pipeline.infer(picture(width)) for pipeline in pipelines))
        facts = [pipeline.diagnostics()['GPU'] for pipeline in pipelines]
        assert [fact.split('device ')[1][0] for fact in facts] == list(sys.argv[3]), facts
        for pipeline in pipelines:
            pipeline.close()
        assert not int(check(driver().cuCtxGetCurrent(), 'ask for the current GPU'))
    """,
        order,
    )


def test_device_auto_spreads_pipelines_that_are_opened_at_once(run):
    run(
        """
        opened = []
        threads = [
            threading.Thread(target=lambda: opened.append(Pipeline.open(options('auto'))))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first, second = opened
        assert first.gpu.index != second.gpu.index
        assert sum('chosen: ' in line for line in first.log_lines) == len(nvidia_driver().gpus)
        same(first.infer(picture(160)), second.infer(picture(160)))
        second.close()
        left = first.gpu.index
        third = Pipeline.open(options('auto'))
        assert third.gpu.index != left
        for pipeline in (first, third):
            pipeline.close()
    """
    )


@pytest.mark.parametrize('order', ['01', '10'])
def test_several_threads_serve_two_gpus(order, run):
    run(
        """
        pipelines = [Pipeline.open(options(int(device))) for device in sys.argv[3]]
        wants = {width: pipelines[0].infer(picture(width)) for width in (160, 200, 240, 280)}
        errors = []

        def serve(first):
            try:
                for round in range(20):
                    for width, want in wants.items():
                        same(pipelines[(first + round) % 2].infer(picture(width)), want)
            except BaseException as error:
                errors.append(error)
        for _ in range(3):
            threads = [threading.Thread(target=serve, args=(first,)) for first in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not errors, errors
        for pipeline in pipelines:
            in_thread(pipeline.close)
    """,
        order,
    )


@pytest.mark.parametrize('order', ['01', '10'])
def test_tensors_on_two_gpus(order, run):
    run(
        """
        runners = [open_network(options(int(device)), Reporter())[0] for device in sys.argv[3]]
        tensor = np.random.default_rng(0).random((1, 3, 64, 96), np.float32)
        outputs = []
        for _ in range(3):
            for runner in runners:
                def infer():
                    outputs.append(runner.infer({'images': tensor})['output0'].copy())
                in_thread(infer)
                infer()
        for output in outputs[1:]:
            np.testing.assert_allclose(output, outputs[0], atol=1e-3)
        for runner in runners:
            in_thread(runner.close)
    """,
        order,
    )
