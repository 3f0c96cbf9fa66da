"""The runner without a graph, on a GPU that only seems to be there."""

import threading

from trt_ros.progress import Progress, Reporter
from trt_ros.regular_file import Blob
from trt_ros.runtime.gpu.tensor_runner import one_compiler


def test_nodes_compile_kernels_one_after_another_but_one_thread_for_several_networks(tmp_path):
    inside, told, order = threading.Event(), threading.Event(), []

    def compile_two() -> None:
        with one_compiler(tmp_path, Reporter()), one_compiler(tmp_path, Reporter()):
            inside.set()
            told.wait(60)
            order.append('first')

    thread = threading.Thread(target=compile_two)
    thread.start()
    assert inside.wait(60)
    with one_compiler(tmp_path, Reporter(lambda progress: told.set())):
        order.append('second')
    thread.join(60)
    assert order == ['first', 'second']


def test_kernels_that_are_in_the_cache_wait_for_nobody(network_of, engine, tmp_path):
    runner = network_of(engine, engine_cache_dir=str(tmp_path))
    runner.cache = Blob(tmp_path / 'kernels')
    waits = []

    def told(progress: Progress) -> None:
        waits.append(progress.phase)
        ending.set()

    ending, inside = threading.Event(), threading.Event()

    def hold() -> None:
        with one_compiler(tmp_path, Reporter()):
            inside.set()
            ending.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60)
    (tmp_path / 'kernels').touch()
    with runner.compiling(Reporter(told)):
        assert not waits
    (tmp_path / 'kernels').unlink()
    with runner.compiling(Reporter(told)):
        assert waits
    thread.join(60)
