"""What tests of several parts share."""

from collections.abc import Callable
import gc
import os
from pathlib import Path
import signal
from typing import Any

import numpy as np
import pytest

from support.data import DATA
from support.frozen import freeze_present_objects

TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # Before those that `-m` leaves out are gone.
def pytest_collection_modifyitems(items):
    for item in items:
        if ' at 0x' in item.name:
            raise pytest.UsageError(
                f'{item.nodeid} has an address in its name.\n'
                'Cause: A parameter is a function or object; pytest-xdist needs the same names in '
                'all processes.\n'
                'Remedy: Give it a name with `ids`.'
            )
        if item.path.relative_to(TESTS).parts[0] in ('ros', 'launch'):
            item.add_marker('ros')
    if 'PYTEST_XDIST_WORKER' in os.environ:
        interleave(items)


def interleave(items):
    """Sort files so that those with nodes, which mostly wait, run beside those that compute."""
    files = dict.fromkeys((bool(item.get_closest_marker('ros')), item.path) for item in items)
    places = {}
    for kind, length in ((True, 0.9), (False, 1.0)):  # The longest files have nodes: not last.
        paths = [path for is_ros, path in files if is_ros == kind]
        places.update((path, length * index / len(paths)) for index, path in enumerate(paths))
    items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect the tests without the garbage collector, which does not visit them later either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        freeze_present_objects()


@pytest.fixture(scope='session', autouse=True)
def own_cache(tmp_path_factory):
    """Keep engines, kernels and passed checks out of the user's cache; share them in this run."""
    folder = tmp_path_factory.getbasetemp()
    if 'PYTEST_XDIST_WORKER' in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_CACHE_HOME', str(folder / 'cache'))
        yield


@pytest.fixture(scope='session', autouse=True)
def signals_end_processes():
    """Restore what nohup and a background job of a shell take from all that they start."""
    handlers = {signal.SIGHUP: signal.SIG_DFL}
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        handlers[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


#: Values that no user can set, by the name of the constant or function.
CONSTANTS = {
    'CHECK_SECONDS': 'trt_ros.runtime.cpu.checked_runner.BASE_SECONDS',
    'CHUNK_NBYTES': 'trt_ros.runtime.gpu.frame_slot.CHUNK_NBYTES',
    'COPY_THREADS': 'trt_ros.runtime.gpu.shared_resources.COPY_THREADS',
    'MAX_GRAPHS': 'trt_ros.runtime.gpu.frame_slot.MAX_GRAPHS',
    'gpu_decoder': 'trt_ros.runtime.gpu.shared_resources.gpu_decoder',
    'kernel_folder': 'trt_ros.runtime.gpu.shared_resources.kernel_folder',
    'MAX_RESULT_NBYTES': 'trt_ros.child.MAX_RESULT_NBYTES',
    'RCL': 'trt_ros.ros.dds.rcl.RCL',
    'TIMES_WINDOW_SECONDS': 'trt_ros.ros.diagnostics.TIMES_WINDOW_SECONDS',
    'TRANSPORT_SECONDS': 'trt_ros.ros.dds.transport.CHECK_TIMEOUT_SECONDS',
    'TOOL_SECONDS': 'trt_ros.cli._doctor_gpu.TOOL_SECONDS',
}


@pytest.fixture
def set_constants(monkeypatch) -> Callable[..., None]:
    """Return a function that sets some of CONSTANTS until the end of the test."""

    def set_constants(**values: Any) -> None:
        for name, value in values.items():
            monkeypatch.setattr(CONSTANTS[name], value)

    return set_constants


@pytest.fixture(scope='session')
def weeds() -> Path:
    """Return the folder of a real detector, photographs and its results (expected.json)."""
    return data_folder('weeds')


@pytest.fixture(scope='session')
def policies() -> Path:
    """Return the folder of real policies: `go1`, a network, and `franka`, a bundle."""
    return data_folder('policies')


def data_folder(name: str) -> Path:
    """
    Return a folder of data that is too large for the repository; skip the test without it.

    It lies in the folder that TRT_ROS_TEST_DATA names, or in shared/data beside the checkout.
    """
    if not (DATA / name).is_dir():
        pytest.skip(f'no {name} in {DATA}: TRT_ROS_TEST_DATA names the folder to look in')
    return DATA / name


@pytest.fixture(scope='session')
def assert_finds() -> Callable[..., None]:
    """
    Compare (label, score, x1 y1 x2 y2) of one image with its detections in expected.json.

    Two candidates of one plant score within 0.001 of each other in field_1.jpg: which one wins
    depends on the last digits of the network's products, and their IoU is 0.93.
    """
    from trt_ros.vision.nms import iou

    def check(found, expected, min_iou=0.95) -> None:
        assert len(found) == len(expected)
        for want in expected:
            best = max(found, key=lambda one: iou(np.array(one[2]), np.array(want['xyxy'])))
            assert best[0] == want['label']
            assert best[1] == pytest.approx(want['score'], abs=0.03)
            assert iou(np.array(best[2]), np.array(want['xyxy'])) >= min_iou

    return check
