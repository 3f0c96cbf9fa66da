"""Nodes under test in other processes, and the requests a test makes to them."""

from contextlib import suppress
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
from typing import Any

from support.node_server import ForkedProcess, NodeServer
from support.ros_peer import Peer
from support.waiting import DEADLINE_SECONDS, wait_until


def shared_memory_of(pid: int | str, *, with_ports: bool = False) -> set[str]:
    """
    Return Fast DDS's files that a process has mapped.

    :param with_ports: also its ports, which it shares with others, and the files that are open.
    """
    with suppress(OSError):  # Gone, or another user's.
        used = Path(f'/proc/{pid}/maps').read_text()
        if with_ports:
            opened = [os.readlink(each) for each in Path(f'/proc/{pid}/fd').iterdir()]
            used = '\n'.join([used, *opened])
        return set(re.findall(rf'/dev/shm/fastrtps_{"" if with_ports else "(?!port)"}\S+', used))
    return set()


def own_topics(name: str, *topics: str) -> list[str]:
    """Return the arguments of a node whose topics are /NAME/TOPIC."""
    return [part for topic in topics for part in ('-r', f'{topic}:=/{name}/{topic}')]


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
        self,
        peer: Peer,
        name: str,
        command: list[str],
        environment: dict[str, str],
        folder: Path,
        program: str | NodeServer = sys.executable,
    ) -> None:
        super().__init__(peer, name)
        self._exit_code = 0
        self._log_path = folder / f'{name}.log'
        self._log_path.write_text('')  # Before it starts; an earlier one may still append.
        self.process: subprocess.Popen | ForkedProcess
        if isinstance(program, NodeServer):
            self.process = program.start(command, environment, self._log_path)
            return
        with self._log_path.open('ab') as log:
            self.process = subprocess.Popen(
                [program, *command], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors='replace')

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log or self.process.poll() is not None, f'{text!r}')
        assert text in self.log, self.log

    def wait_for_failed_start(self) -> None:
        """Wait until the process has exited with 1, since its autostart failed."""
        self._exit_code = 1
        self.wait_for_log('Startup failed: see the error above.')
        assert self.process.wait(DEADLINE_SECONDS) == 1, self.log

    def kill(self) -> None:
        """End the process as the kernel does when memory runs out."""
        self.process.send_signal(signal.SIGKILL)
        self._exit_code = self.process.wait(DEADLINE_SECONDS)

    def stop(self) -> None:
        """End the process as Ctrl-C does: it leaves nothing behind and exits with 0."""
        if self.process.poll() is None:
            mapped = shared_memory_of(self.process.pid)
            self.process.send_signal(signal.SIGINT)
            code = self.process.wait(DEADLINE_SECONDS)
            assert code == 0, f'exit code {code}: {self.log}'
            # It had also mapped what belongs to processes that are still there.
            left = {name for name in mapped if Path(name).exists()} - shared_memory_of('self')
            if left:
                others = (shared_memory_of(path.name) for path in Path('/proc').glob('[0-9]*'))
                left.difference_update(*others)
            assert not left, f'{self.name} left {left}'
        else:
            assert self.process.returncode == self._exit_code, self.log
        self.peer.forget_services(self.name)


class Lane:
    """The way through one active detector: images in, detections and diagnostics out."""

    def __init__(self, node: NodeProcess, kind: type | None = None, topic: str = '/image') -> None:
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
        from support.ros_messages import wait_for_values  # Imports rclpy.

        name = f'{self.node.name}: image'
        status = wait_for_values(self.diagnostics, name, **{key: value})
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
