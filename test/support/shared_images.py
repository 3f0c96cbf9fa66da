"""A process that publishes or receives numbered images, as its standard input and output tell."""

import os
from pathlib import Path
from queue import Queue
import socket
import subprocess
import sys
import threading

import rclpy
from sensor_msgs.msg import Image

from support.dds import RELIABLE, Camera, CountingRcl, number_of
from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.memory import pool_memory_of
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.shared_memory import address

NBYTES = 300_000


class Other:
    """A process with `role` of support.shared_images."""

    def __init__(self, role, domain_id, **environment):
        self.process = subprocess.Popen(
            [sys.executable, __file__, role, str(domain_id)],
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines, self._reader = Queue(), threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line)

    def send(self, number):
        """Publish an image; return how many went through DDS until then."""
        self.process.stdin.write(f'{number}\n')
        self.process.stdin.flush()
        return int(self._lines.get(timeout=DEADLINE_SECONDS))

    def received(self, seconds=DEADLINE_SECONDS):
        """Return the next number received, and its path; raise Empty if none comes so soon."""
        number, path = self._lines.get(timeout=seconds).split()
        return int(number), path

    def settle(self, inbox):
        """Send until images go through shared memory alone; return how many went through DDS."""
        sent = number = through_dds = 0

        def is_settled():
            nonlocal sent, number, through_dds
            received = {number_of(each) for each in inbox.messages}
            if received and not {number, through_dds} <= received:
                return False  # Through DDS, they may be late.
            if received and number > through_dds:
                return True
            number += 1
            before, sent = sent, self.send(number)
            if sent > before:
                through_dds = number
            return False

        wait_until(is_settled, 'shared memory')
        inbox.messages.clear()
        return sent

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        self.process.stdin.close()
        self.process.wait(DEADLINE_SECONDS)
        self._reader.join()
        self.process.stdout.close()


LISTEN = 'import socket, sys; socket.socket(fileno=int(sys.argv[1])).listen()'


def listen_elsewhere(gid: bytes) -> None:
    """Let another process listen at the socket of a publisher: it is the peer of who connects."""
    for each in Path('/proc/self/fd').iterdir():
        if not each.is_socket():
            continue
        with socket.socket(fileno=os.dup(int(each.name))) as end:
            if end.family == socket.AF_UNIX and end.getsockname() == address(gid).encode():
                command = [sys.executable, '-ISc', LISTEN, str(end.fileno())]
                subprocess.run(command, pass_fds=[end.fileno()], check=True)
                return
    raise AssertionError(f'nothing listens at {gid.hex()}')


def publish(node: rclpy.node.Node) -> None:
    """Publish the image of each number read; print how many went through DDS until then."""
    wire, camera = CountingRcl(node.context), Camera(node)
    for line in sys.stdin:
        camera.send(int(line), NBYTES)
        print(wire.count, flush=True)


def receive(node: rclpy.node.Node) -> None:
    """Print each number received, and 'shared' or 'dds'; keep all messages until the end."""
    kept = []

    def on_message(message):
        kept.append(message)
        print(number_of(message), 'shared' if pool_memory_of(message) else 'dds', flush=True)

    callbacks = MessageCallbacks(on_message)
    subscription = transport.subscribe_serialized(node, Image, 'images', RELIABLE, callbacks)
    sys.stdin.read()
    subscription.close()


def main() -> None:
    """Run as ROLE in DOMAIN."""
    rclpy.init(domain_id=int(sys.argv[2]))
    node = rclpy.create_node(sys.argv[1], start_parameter_services=False, enable_rosout=False)
    {'publish': publish, 'receive': receive}[sys.argv[1]](node)
    node.destroy_node()
    rclpy.shutdown()


if __name__ == '__main__':
    main()
