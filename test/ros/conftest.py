"""Node processes and a peer that talks to them, over loopback in a ROS domain of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import fcntl
import os
from pathlib import Path
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import numpy as np
import pytest

# Before any ROS context of this process; the processes it starts inherit it.
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'

DEADLINE_SECONDS = 60.0
CHECKOUT = Path(__file__).parents[2]


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until `condition` returns something true, and return that."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    never = threading.Event()
    while not (result := condition()):
        assert time.monotonic() < deadline, f'waited in vain for {what}'
        never.wait(0.01)
    return result


def shared_memory_of(pid: int) -> set[str]:
    """Fast DDS's files that a process has mapped; not its ports, which it shares with others."""
    try:
        maps = Path(f'/proc/{pid}/maps').read_text()
    except OSError:  # Gone, or another user's.
        return set()
    return set(re.findall(r'/dev/shm/fastrtps_(?!port)\S+', maps))


class Inbox:
    """The messages of one topic, in the order of their coming."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.subscription: Any = None
        self._grown = threading.Condition()

    def put(self, message: Any) -> None:
        with self._grown:
            self.messages.append(message)
            self._grown.notify_all()

    def wait_for(
        self, matches: Callable[[Any], bool] = lambda message: True, what: str = 'a message'
    ) -> Any:
        """Wait for a message that matches, also among those that came already."""

        def first() -> Any:
            return next((message for message in self.messages if matches(message)), None)

        with self._grown:
            assert self._grown.wait_for(lambda: first() is not None, DEADLINE_SECONDS), (
                f'waited in vain for {what}; last of {len(self.messages)}: {self.messages[-1:]}'
            )
            return first()


class Peer:
    """Another program in the domain: calls services, publishes, subscribes."""

    def __init__(self, domain_id: int) -> None:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain_id)
        self.node = rclpy.create_node(
            'peer', context=self.context, start_parameter_services=False, enable_rosout=False
        )
        self._clients: dict[str, Any] = {}
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def _spin(self) -> None:
        while not self._ending.is_set():
            self._executor.spin_once()

    def between_callbacks(self, work: Callable[[], Any]) -> Any:
        """Change the node's entities while nothing waits for them."""
        done, result = threading.Event(), []
        self._executor.create_task(lambda: (result.append(work()), done.set()))
        assert done.wait(DEADLINE_SECONDS)
        return result[0]

    #: For tests, which cannot import from here.
    wait_until = staticmethod(wait_until)

    def close(self) -> None:
        import rclpy

        self._ending.set()
        self._executor.create_task(lambda: None)  # wake() alone does not end a spin_once().
        self._thread.join()
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)

    def ask(self, kind: type, service: str, **fields: Any) -> Any:
        """Send a request, return the future of its answer."""
        if service not in self._clients:
            self._clients[service] = self.between_callbacks(
                lambda: self.node.create_client(kind, service)
            )
            wait_until(self._clients[service].service_is_ready, service)
        return self._clients[service].call_async(kind.Request(**fields))

    def call(self, kind: type, service: str, **fields: Any) -> Any:
        """
        Send a request that may be repeated, and return the answer.

        The first answer to a new client is lost when the server has not discovered it yet.
        """
        return self._repeat(lambda: self.ask(kind, service, **fields), service)

    def _repeat(self, ask: Callable[[], Any], service: str) -> Any:
        """Ask again and again until there is an answer."""

        def answered() -> Any:
            deadline, asked = time.monotonic() + 2.0, ask()
            while time.monotonic() < deadline and not asked.done():
                threading.Event().wait(0.002)
            return asked.result()

        return wait_until(answered, f'an answer of {service}')

    def wait(self, answered: Any, what: str = 'an answer') -> Any:
        """Wait for the future of an answer."""
        wait_until(answered.done, what)
        return answered.result()

    def inbox(self, kind: type, topic: str, qos: Any = 100) -> Inbox:
        """Subscribe, and wait until the publisher is there."""
        box = Inbox()
        subscription = self.between_callbacks(
            lambda: self.node.create_subscription(kind, topic, box.put, qos)
        )
        wait_until(subscription.get_publisher_count, f'a publisher of {topic}')
        self._become_known_to_publishers(topic)
        box.subscription = subscription
        return box

    def _become_known_to_publishers(self, topic: str) -> None:
        """
        Wait until the nodes that publish a topic have discovered all that was made here so far.

        What they publish before that is lost. They discover in the order of making: who answers
        a client that is made now knows the rest.
        """
        from rcl_interfaces.srv import GetParameters

        def publishers() -> list[Any]:
            found = self.node.get_publishers_info_by_topic(topic)
            return [] if any('UNKNOWN' in each.node_name for each in found) else found

        for each in wait_until(publishers, f'the names of the nodes that publish {topic}'):
            name = f'{each.node_namespace.rstrip("/")}/{each.node_name}'
            if f'{name}/get_parameters' not in (
                service for service, _ in self.node.get_service_names_and_types()
            ):
                continue
            client = self.between_callbacks(
                lambda name=name: self.node.create_client(GetParameters, f'{name}/get_parameters')
            )
            wait_until(client.service_is_ready, f'{name}/get_parameters')
            self._repeat(lambda client=client: client.call_async(GetParameters.Request()), name)
            self.between_callbacks(lambda client=client: self.node.destroy_client(client))

    def close_inbox(self, box: Inbox) -> None:
        self.between_callbacks(lambda: self.node.destroy_subscription(box.subscription))

    def publisher(self, kind: type, topic: str, qos: Any = 100) -> Any:
        return self.between_callbacks(lambda: self.node.create_publisher(kind, topic, qos))


class RemoteNode:
    """A lifecycle node that runs somewhere, and the requests one makes to it."""

    log = ''  # What an assertion shows.

    def __init__(self, peer: Peer, name: str) -> None:
        self.peer, self.name, self._is_known = peer, name, False

    def ask_transition(self, label: str = '', id: int = 0) -> Any:
        from lifecycle_msgs.msg import Transition
        from lifecycle_msgs.srv import ChangeState

        service = f'/{self.name}/change_state'
        if not self._is_known:
            # Refused in every state; once it is answered, no answer gets lost.
            self.peer.call(ChangeState, service, transition=Transition(label='hello'))
            self._is_known = True
        return self.peer.ask(ChangeState, service, transition=Transition(id=id, label=label))

    def change(self, label: str = '', id: int = 0) -> bool:
        """Make a transition; tell whether it succeeded."""
        return self.peer.wait(self.ask_transition(label, id), label).success

    @property
    def state(self) -> str:
        from lifecycle_msgs.srv import GetState

        return self.peer.call(GetState, f'/{self.name}/get_state').current_state.label

    def set(self, **values: Any) -> str:
        """Set parameters all at once; return the reason why not, '' where they were set."""
        from rcl_interfaces.srv import SetParametersAtomically
        from rclpy.parameter import Parameter

        return self.peer.call(
            SetParametersAtomically,
            f'/{self.name}/set_parameters_atomically',
            parameters=[
                value.to_parameter_msg()
                if isinstance(value, Parameter)
                else Parameter(name, value=value).to_parameter_msg()
                for name, value in values.items()
            ],
        ).result.reason

    def get(self, name: str) -> Any:
        from rcl_interfaces.srv import GetParameters
        from rclpy.parameter import parameter_value_to_python

        answer = self.peer.call(GetParameters, f'/{self.name}/get_parameters', names=[name])
        return parameter_value_to_python(answer.values[0])

    def back_to_unconfigured(self) -> None:
        for state, label in (('active', 'deactivate'), ('inactive', 'cleanup')):
            if self.state == state:
                assert self.change(label), self.log


class NodeProcess(RemoteNode):
    """A node in a process of its own."""

    def __init__(
        self, peer: Peer, name: str, command: list[str], environment: dict[str, str], folder: Path
    ) -> None:
        super().__init__(peer, name)
        self._log_path = folder / f'{name}.log'
        with self._log_path.open('wb') as log:
            self.process = subprocess.Popen(
                [sys.executable, *command], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors='replace')

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log or self.process.poll() is not None, f'{text!r}')
        assert text in self.log, self.log

    def stop(self) -> None:
        """End the process as Ctrl-C does: it leaves nothing behind and exits with 0."""
        if self.process.poll() is None:
            mapped = shared_memory_of(self.process.pid)
            self.process.send_signal(signal.SIGINT)
            assert self.process.wait(DEADLINE_SECONDS) == 0, self.log
            # It had also mapped what belongs to processes that are still there.
            left = {name for name in mapped if Path(name).exists()}.difference(
                *(shared_memory_of(int(path.name)) for path in Path('/proc').glob('[0-9]*'))
            )
            assert not left, f'{self.name} left {left}'
        else:
            assert self.process.returncode == 0, self.log


@pytest.fixture(params=['onnxruntime', pytest.param('tensorrt_rtx', marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str:
    """What really runs a network: on the CPU, and on a GPU."""
    from trt_ros.cuda.device import gpu_count

    if request.param != 'onnxruntime' and not gpu_count():
        pytest.skip('no NVIDIA GPU')
    return str(request.param)


class Lane:
    """The way through one active detector: images in, detections and diagnostics out."""

    def __init__(
        self,
        node: NodeProcess,
        kind: type | None = None,
        topic: str = '/image',
    ) -> None:
        from diagnostic_msgs.msg import DiagnosticArray
        from sensor_msgs.msg import Image
        from vision_msgs.msg import Detection2DArray

        self.node = node
        node.wait_for_log('Started: active.')
        self.images = node.peer.publisher(kind or Image, topic)
        self.detections = node.peer.inbox(Detection2DArray, f'/{node.name}/detections')
        self.diagnostics = node.peer.inbox(DiagnosticArray, '/diagnostics')
        wait_until(self.images.get_subscription_count, 'the detector to subscribe')
        self.last_stamp = 0

    def publish(self, image: Any) -> int:
        """Publish an image under a stamp of its own, return the stamp."""
        self.last_stamp += 1
        image.header.stamp.sec = self.last_stamp
        self.images.publish(image)
        return self.last_stamp

    def detect(self, image: Any) -> Any:
        """Publish an image and return what was found in it."""
        stamp = self.publish(image)
        return self.detections.wait_for(
            lambda found: found.header.stamp.sec == stamp, f'detections of image {stamp}'
        )

    def status(self, key: str, value: str) -> tuple[bytes, str]:
        """Wait until the detector's diagnostics have this value, return level and message."""

        def matches(array: Any) -> bool:
            return array.status[0].name == f'{self.node.name}: image' and any(
                entry.key == key and entry.value == value for entry in array.status[0].values
            )

        status = self.diagnostics.wait_for(matches, f'{key}: {value}').status[0]
        return status.level, status.message

    @staticmethod
    def boxes(found: Any) -> list[tuple[str, float, list[float]]]:
        """(class, score, [x1, y1, x2, y2]) of each detection, in the order published."""
        return [
            (
                detection.results[0].hypothesis.class_id,
                round(detection.results[0].hypothesis.score, 3),
                [
                    detection.bbox.center.position.x - detection.bbox.size_x / 2,
                    detection.bbox.center.position.y - detection.bbox.size_y / 2,
                    detection.bbox.center.position.x + detection.bbox.size_x / 2,
                    detection.bbox.center.position.y + detection.bbox.size_y / 2,
                ],
            )
            for detection in found.detections
        ]


@contextmanager
def reserved_domain() -> Iterator[int]:
    """Hold a ROS domain that no other test run on this machine uses at this time."""
    for number in random.sample(range(1, 101), 100):
        path = Path(tempfile.gettempdir()) / f'trt_ros_test_domain_{number}.lock'
        try:
            lock = path.open('w')
        except PermissionError:  # Another user's.
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield number
            path.unlink(missing_ok=True)
            return
    pytest.fail('All ROS domains are in use.')


@pytest.fixture(scope='session')
def domain_id() -> Iterator[int]:
    with reserved_domain() as number:
        yield number


@pytest.fixture(scope='session')
def peer(domain_id: int) -> Iterator[Peer]:
    pytest.importorskip('rclpy')
    pytest.importorskip('vision_msgs')
    peer = Peer(domain_id)
    yield peer
    peer.close()


@pytest.fixture(scope='module')
def start_node(
    peer: Peer, domain_id: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., NodeProcess]]:
    """Start a node by its name, script or module, and parameters; ended with the test's module."""
    folder = tmp_path_factory.mktemp('nodes')
    python_path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get('PYTHONPATH'))))
    started: list[NodeProcess] = []

    def start(name: str, program: str | Path, *ros_args: str, **parameters: Any) -> NodeProcess:
        import yaml

        command = [str(program)] if isinstance(program, Path) else ['-m', program]
        given = [
            f'{key}:={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}'
            for key, value in parameters.items()
        ]
        command += [
            '--ros-args',
            '-r',
            f'__node:={name}',
            *ros_args,
            *(part for each in given for part in ('-p', each)),
        ]
        environment = {
            **os.environ,
            'PYTHONPATH': python_path,
            'ROS_DOMAIN_ID': str(domain_id),
            'ROS_LOG_DIR': str(folder),
        }
        started.append(NodeProcess(peer, name, command, environment, folder))
        return started[-1]

    yield start
    for node in started:
        node.stop()


@pytest.fixture(scope='module')
def fake_detector(start_node: Callable[..., NodeProcess]) -> Callable[..., NodeProcess]:
    """Start the detector with a network that finds the bright rectangle and names its colour."""

    def start(name: str, *ros_args: str, **parameters: Any) -> NodeProcess:
        return start_node(
            name,
            Path(__file__).with_name('fake_detector.py'),
            *ros_args,
            **{'qos_reliability': 'reliable', 'qos_depth': 50, **parameters},
        )

    return start


@pytest.fixture(scope='session')
def lane_of() -> type[Lane]:
    return Lane


@pytest.fixture(scope='session')
def picture() -> Callable[..., np.ndarray]:
    """Draw a rectangle of one colour on black: (height, width, 3) uint8 RGB."""

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
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    yield process, log
    if process.poll() is None:
        process.terminate()
        process.wait(DEADLINE_SECONDS)


@pytest.fixture(scope='session', autouse=True)
def soak_beside_the_others(request: pytest.FixtureRequest) -> None:
    """Start it before the first test, when it is among them: so it costs no time of its own."""
    if any('two_minutes_of_soak' in item.fixturenames for item in request.session.items):
        request.getfixturevalue('two_minutes_of_soak')
