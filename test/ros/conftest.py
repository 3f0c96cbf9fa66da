"""Fixtures that start nodes and a peer in a ROS domain of this test run."""

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

from demo.domain import reserved_domain
import pytest

from support.node_server import NodeServer
from support.ros_nodes import Lane, NodeProcess
from support.ros_peer import Peer
from support.waiting import DEADLINE_SECONDS
from trt_ros.nodes import NODES

# Before any ROS context of this process; the processes it starts inherit it.
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'

#: Without ROS, no test of this folder is collected.
collect_ignore_glob = [] if find_spec('rclpy') and find_spec('vision_msgs') else ['*']

CHECKOUT = Path(__file__).parents[2]
SCRIPTS = CHECKOUT / 'test/support/nodes'


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
    peer: Peer, domain_id: int, node_server: NodeServer, tmp_path_factory: pytest.TempPathFactory
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
        started.append(NodeProcess(peer, name, command, environment, folder, node_server))
        return started[-1]

    start.nodes = started
    yield start
    for node in started:
        node.stop()
    peer.forget_topics()


@pytest.fixture(autouse=True)
def end_what_this_test_started(request: pytest.FixtureRequest) -> Iterator[None]:
    """End nodes and topics that a test has started, since others take time to discover them."""
    if 'start_node' not in request.fixturenames:
        yield
        return
    nodes, peer = request.getfixturevalue('start_node').nodes, request.getfixturevalue('peer')
    node_count, topic_count = len(nodes), peer.topic_count
    yield
    while len(nodes) > node_count:
        nodes.pop().stop()
    peer.forget_topics(topic_count)


@pytest.fixture(scope='module')
def fake_detector(start_node: Callable[..., NodeProcess]) -> Callable[..., NodeProcess]:
    """Start the detector with a network that finds the bright rectangle and names its color."""

    def start(name: str, *ros_args: str, **parameters: Any) -> NodeProcess:
        return start_node(
            name,
            SCRIPTS / 'fake_detector.py',
            *ros_args,
            **{'qos_reliability': 'reliable', 'qos_depth': 50, **parameters},
        )

    return start


@pytest.fixture(scope='module')
def nodes_here() -> Iterator[dict[str, Any]]:
    """Return the nodes of this process by kind."""
    nodes: dict[str, Any] = {}
    yield nodes
    for node in nodes.values():
        node.destroy_node()


@pytest.fixture
def configure(
    peer: Peer, nodes_here: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return a function that configures a node in this process; it returns the log if it fails."""
    from rclpy.parameter import Parameter

    def configure(kind: str, **parameters: Any) -> str:
        if kind not in nodes_here:
            cls = getattr(import_module(f'trt_ros.nodes.{kind}'), NODES[kind])
            nodes_here[kind] = cls(context=peer.context)
        node = nodes_here[kind]
        before = [node.get_parameter(name) for name in parameters]
        given = [Parameter(name, value=value) for name, value in parameters.items()]
        result = node.set_parameters_atomically(given)
        assert result.successful, result.reason
        node.trigger_configure()
        log = str(capfd.readouterr().err)
        if node.state_label == 'inactive':
            log = ''
            node.trigger_cleanup()
        assert node.state_label == 'unconfigured'
        assert node.set_parameters_atomically(before).successful
        return log

    return configure


@pytest.fixture(scope='module')
def start_lane(
    start_node: Callable[..., NodeProcess], fake_detector: Callable[..., NodeProcess]
) -> Callable[..., Lane]:
    """Start a detector of the topic /NAME: that of `fake_detector`, or one with a backend."""

    def start(name: str, **parameters: Any) -> Lane:
        remap = ('-r', f'image:=/{name}')
        if 'backend' in parameters:
            given = {'qos_reliability': 'reliable', **parameters}
            node = start_node(name, 'trt_ros.nodes.detector', *remap, autostart=True, **given)
        else:
            node = fake_detector(name, *remap, autostart=True, **parameters)
        return Lane(node, topic=f'/{name}')

    return start


@pytest.fixture(scope='module')
def start_active(start_node: Callable[..., NodeProcess]) -> Callable[..., NodeProcess]:
    """Start a node of a network, whose images may not get lost, and wait until it is active."""

    def start(
        name: str, kind: str, model: str | Path, *ros_args: str, **given: Any
    ) -> NodeProcess:
        given = {
            'autostart': True,
            'backend': 'onnxruntime',
            'model_path': str(model),
            'qos_reliability': 'reliable',
            'qos_depth': 50,
            **given,
        }
        node = start_node(name, f'trt_ros.nodes.{kind}', *ros_args, **given)
        node.wait_for_log('Started: active.')
        return node

    return start


@pytest.fixture(scope='session')
def two_minutes_of_soak(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[subprocess.Popen, Path]]:
    """The soak test's process, and what it says."""
    log = tmp_path_factory.mktemp('soak') / 'output'
    # Coverage keeps an object per thread, which would look like a leak.
    environment = {key: value for key, value in os.environ.items() if 'COV' not in key}
    program = str(Path(__file__).with_name('soak.py'))
    with log.open('wb') as output:
        process = subprocess.Popen(
            ['nice', '-n', '5', sys.executable, program, '120', '1'],
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
