"""Fixtures that start nodes and a peer in a ROS domain of this test run."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

from demo.domain import reserved_domain
import numpy as np
import pytest

from support.node_server import NodeServer
from support.ros_nodes import Lane, NodeProcess
from support.ros_peer import Peer
from support.waiting import DEADLINE_SECONDS

# Before any ROS context of this process; the processes it starts inherit it.
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'

#: Without ROS, no test of this folder is collected.
collect_ignore_glob = [] if find_spec('rclpy') and find_spec('vision_msgs') else ['*']

CHECKOUT = Path(__file__).parents[2]
NODES = CHECKOUT / 'test/support/nodes'


def python_path() -> str:
    paths = (str(CHECKOUT), str(CHECKOUT / 'test'), os.environ.get('PYTHONPATH'))
    return os.pathsep.join(filter(None, paths))


SERVER_PYTHON_PATH = python_path()  # Before a test changes the environment.


@pytest.fixture(params=['onnxruntime', pytest.param('tensorrt_rtx', marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str:
    """What really runs a network: on the CPU, and on a GPU."""
    from trt_ros.driver import nvidia_driver

    if request.param != 'onnxruntime' and nvidia_driver().problem:
        pytest.skip('no NVIDIA GPU')
    return str(request.param)


@pytest.fixture(scope='session')
def domain_id() -> Iterator[int]:
    with reserved_domain() as number:
        yield number


@pytest.fixture(scope='session')
def peer(domain_id: int) -> Iterator[Peer]:
    peer = Peer(domain_id)
    yield peer
    peer.close()


@pytest.fixture(scope='session')
def node_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeServer]:
    """Return what forks the processes of nodes; see `support.node_server`."""
    environment = {**os.environ, 'PYTHONPATH': SERVER_PYTHON_PATH}
    server = NodeServer(environment, tmp_path_factory.mktemp('node_server'))
    yield server
    server.close()


@pytest.fixture(scope='module')
def start_node(
    peer: Peer,
    domain_id: int,
    node_server: NodeServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., NodeProcess]]:
    """Start a node by its name, script or module, and parameters; ended with the test's module."""
    folder = tmp_path_factory.mktemp('nodes')
    path = python_path()
    started: list[NodeProcess] = []

    def start(name: str, program: str | Path, *ros_args: str, **parameters: Any) -> NodeProcess:

        if isinstance(program, Path):
            command = [str(program)]
        elif program.startswith('trt_ros.nodes.'):
            command = ['-m', 'trt_ros.executables', program.rpartition('.')[2]]
        else:
            command = ['-m', program]
        given = [f'{key}:={_as_yaml(value)}' for key, value in parameters.items()]
        command += [
            '--ros-args',
            '-r',
            f'__node:={name}',
            *ros_args,
            *(part for each in given for part in ('-p', each)),
        ]
        environment = {
            **os.environ,
            'PYTHONPATH': path,
            'ROS_DOMAIN_ID': str(domain_id),
            'ROS_LOG_DIR': str(folder),
        }
        # Components may shut down ROS: such a process ends as one that was not forked.
        starter = sys.executable if program == 'trt_ros.container' else node_server
        started.append(NodeProcess(peer, name, command, environment, folder, starter))
        return started[-1]

    start.nodes = started
    yield start
    for node in started:
        node.stop()
    peer.forget()


@pytest.fixture(autouse=True)
def stop_nodes_of_this_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the nodes that a test has started, since others take time to discover them."""
    nodes = []
    if 'start_node' in request.fixturenames:
        nodes = request.getfixturevalue('start_node').nodes
    before = len(nodes)
    yield
    while len(nodes) > before:
        nodes.pop().stop()


@pytest.fixture(scope='module')
def fake_detector(start_node: Callable[..., NodeProcess]) -> Callable[..., NodeProcess]:
    """Start the detector with a network that finds the bright rectangle and names its color."""

    def start(name: str, *ros_args: str, **parameters: Any) -> NodeProcess:
        return start_node(
            name,
            NODES / 'fake_detector.py',
            *ros_args,
            **{'qos_reliability': 'reliable', 'qos_depth': 50, **parameters},
        )

    return start


@pytest.fixture(scope='session')
def lane_of() -> type[Lane]:
    return Lane


@pytest.fixture(scope='session')
def picture() -> Callable[..., np.ndarray]:
    """Draw a rectangle of one color on black: (height, width, 3) uint8 RGB."""

    def draw(
        image_wh: tuple[int, int] = (128, 128),
        xyxy: tuple[int, ...] = (32, 16, 96, 64),
        rgb: tuple[int, int, int] = (255, 0, 0),
    ) -> np.ndarray:
        pixels = np.zeros((image_wh[1], image_wh[0], 3), np.uint8)
        left, top, right, bottom = xyxy
        pixels[top:bottom, left:right] = rgb
        return pixels

    return draw


@pytest.fixture(scope='session')
def as_image() -> Callable[..., Any]:
    """Make a sensor_msgs/Image; `step` defaults to no padding, `stamp` identifies the frame."""

    def make(
        pixels: np.ndarray,
        encoding: str,
        *,
        stamp: int = 0,
        size_wh: tuple = (),
        step: int = 0,
        is_bigendian: bool = False,
    ) -> Any:
        from builtin_interfaces.msg import Time
        from sensor_msgs.msg import Image
        from std_msgs.msg import Header

        rows = pixels.reshape(len(pixels), -1).view(np.uint8)
        width, height = size_wh or (pixels.shape[1], pixels.shape[0])
        if step:
            # Padding of a bright value: whoever reads it as pixels sees it.
            padding = np.full((len(rows), step - rows.shape[1]), 255, np.uint8)
            rows = np.hstack([rows, padding])
        return Image(
            header=Header(stamp=Time(sec=stamp, nanosec=7), frame_id='front_camera'),
            height=height,
            width=width,
            step=rows.shape[1],
            encoding=encoding,
            is_bigendian=int(is_bigendian),
            data=rows.tobytes(),
        )

    return make


@pytest.fixture(scope='session')
def two_minutes_of_soak(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[subprocess.Popen, Path]]:
    """The soak test's process, and what it says."""
    log = tmp_path_factory.mktemp('soak') / 'output'
    # Coverage keeps an object per thread, which would look like a leak.
    environment = {key: value for key, value in os.environ.items() if 'COV' not in key}
    with log.open('wb') as output:
        process = subprocess.Popen(
            [
                'nice',
                '-n',
                '5',
                sys.executable,
                str(Path(__file__).with_name('soak.py')),
                '120',
                '1',
            ],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    yield process, log
    if process.poll() is None:
        process.terminate()
        process.wait(DEADLINE_SECONDS)


@pytest.fixture(scope='session', autouse=True)
def soak_beside_the_others(request: pytest.FixtureRequest) -> None:
    """Start the soak process before the first test; pytest-xdist runs it beside others anyway."""
    if 'PYTEST_XDIST_WORKER' not in os.environ and any(
        'two_minutes_of_soak' in item.fixturenames for item in request.session.items
    ):
        request.getfixturevalue('two_minutes_of_soak')


def _as_yaml(value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, default_flow_style=True, width=10_000).splitlines()[0]
