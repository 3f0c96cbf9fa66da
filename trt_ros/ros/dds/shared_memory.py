"""
Images through shared memory, between processes of one user on one machine.

A publisher writes each image into shared memory and lends it to the subscriptions: over a socket
it sends where the message is, and the subscription returns it when no view of it is left. So
memory is never written while it is read. The socket has an abstract name that contains the
publisher's id in DDS, and the memory has no name: nothing is left of a process that is killed.

DDS connects publisher and subscription; the first image through DDS tells the id. A message that
also comes through DDS is dropped by the time of its publication.
"""

from collections import deque
from collections.abc import Callable
import os
import socket
from struct import Struct
import time
import weakref

import numpy as np
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile
from sensor_msgs.msg import Image

from trt_ros.ros.dds.memory import (
    Memory,
    Pool,
    pool_memory_of,
)
from trt_ros.ros.dds.rcl import Rcl

#: Environment variable; the value 'rclpy' sends everything through rclpy, and 'dds' nothing
#: through shared memory.
VARIABLE = 'TRT_ROS_TRANSPORT'
#: Time of publication, number of the loan, of the memory, offset and size; then the numbers of
#: memory that the publisher has freed. Loan 0: the messages from this time on come through DDS.
NOTICE = Struct('<qQQQQ')
NUMBER = Struct('<Q')
_CREDENTIALS = Struct('3i')  # Process, user, group.
_MAX_LOANS = 64  # All notices of so many fit into a socket.
MAX_PUBLISHERS = 64


def uses_shared_memory(rcl: Rcl, message_type: object, qos: QoSProfile) -> bool:
    """Return whether messages may go through shared memory; both sides decide it alone."""
    return (
        message_type is Image
        and rcl.stamps_messages
        and qos.history == HistoryPolicy.KEEP_LAST
        and qos.durability == DurabilityPolicy.VOLATILE
        and os.environ.get(VARIABLE) != 'dds'
    )


def address(gid: bytes) -> str:
    """Return the name of the socket of a publisher."""
    return f'\0trt_ros/{gid.hex()}'


def open_socket() -> socket.socket:
    """Open a socket that never waits."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return process and user at the other end, which the kernel vouches for."""
    process, user, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return process, user


class _Borrower:
    """A subscription, as its publisher sees it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self.has_left = connection, False
        self._max_loans = 0  # Until the subscription tells it.
        self._is_on = False  # Whether its last message went through shared memory.
        self._count = 0
        self._lent: dict[int, np.ndarray] = {}
        self._known: set[int] = set()  # The memory that it has mapped.
        self._freed: deque[int] = deque()

    def send(self, message: np.ndarray, memory: Memory, stamp: int) -> bool:
        """
        Lend a message in shared memory, unless too many are lent; never waits.

        :returns: whether the message was lent; otherwise it must go through DDS.
        """
        if len(self._lent) >= self._max_loans:
            self.take_back()
        try:
            if len(self._lent) < self._max_loans:
                self._lend(message, memory, stamp)
                return True
            if self._is_on:
                self._connection.send(NOTICE.pack(stamp, 0, 0, 0, 0), socket.MSG_NOSIGNAL)
                self._is_on = False
        except OSError:
            self.has_left = True
        return False

    def _lend(self, message: np.ndarray, memory: Memory, stamp: int) -> None:
        self._count += 1
        key = id(memory)
        offset = message.__array_interface__['data'][0] - memory.address
        notice = NOTICE.pack(stamp, self._count, key, offset, message.size)
        while self._freed:
            self._known.discard(freed := self._freed.popleft())
            notice += NUMBER.pack(freed)
        self._lent[self._count] = message
        if key in self._known:
            self._connection.send(notice, socket.MSG_NOSIGNAL)
        else:
            self._known.add(key)
            weakref.finalize(memory, self._freed.append, key).atexit = False
            socket.send_fds(self._connection, [notice], [memory.fd], socket.MSG_NOSIGNAL)
        self._is_on = True

    def take_back(self) -> None:
        """Take back the messages that the subscription has returned; never waits."""
        try:
            while len(data := self._connection.recv(NUMBER.size)) == NUMBER.size:
                (number,) = NUMBER.unpack(data)
                if self._max_loans:
                    self._lent.pop(number, None)
                else:
                    self._max_loans = min(number, _MAX_LOANS)
            self.has_left = True
        except BlockingIOError:
            pass
        except OSError:
            self.has_left = True

    def close(self) -> None:
        """Disconnect; what is lent stays unchanged, as the subscription may still read it."""
        self._connection.close()
        for memory in map(pool_memory_of, self._lent.values()):
            if memory is not None:
                memory.is_retired = True
        self._lent.clear()


class SharedPublisher:
    """
    The part of a publisher that serves other processes of the same user; for one thread at a time.

    :param gid: the publisher's id in DDS.
    :param log: called with a line when a process is refused, or shared memory cannot be had.
    :ivar borrowers: the connected subscriptions; while there are any, each message is delivered.
    """

    def __init__(self, gid: bytes, log: Callable[[str], object]) -> None:
        self._log = log
        self._pool = Pool(is_shared=True)
        self.borrowers: list[_Borrower] = []
        self._listener = open_socket()
        self._end = weakref.finalize(self, _close, self._listener, self.borrowers)
        self._refused: set[int] = set()  # Users.
        try:
            self._listener.bind(address(gid))
            self._listener.listen(MAX_PUBLISHERS)
        except OSError as error:
            self._fail(error)

    def deliver(self, message: np.ndarray) -> int:
        """
        Lend a message, (N,) uint8, to the subscriptions; it must not change any more.

        :returns: number of the publisher's DDS subscriptions that do not need this message.
        """
        delivered = self._lend(message) if self.borrowers else 0
        # Not before: it would delay the message.
        self._accept()
        for each in self.borrowers:
            each.take_back()
        for left in [each for each in self.borrowers if each.has_left]:
            left.close()
            self.borrowers.remove(left)
        return delivered

    def _lend(self, message: np.ndarray) -> int:
        memory = pool_memory_of(message)
        if memory is None or memory.fd < 0:
            if memory is not None and memory.share_next is not None:
                memory.share_next.set()
            copy = self._pool.take(message.size)
            copy[:] = message
            message, memory = copy, pool_memory_of(copy)
            if memory is None or memory.fd < 0:
                self._fail(OSError('no memory or file descriptor is left'))
                return 0
        stamp, delivered = time.time_ns(), 0
        for each in self.borrowers:
            delivered += each.send(message, memory, stamp)
        return delivered

    def _accept(self) -> None:
        for _ in range(MAX_PUBLISHERS):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # Nobody connects.
                return
            process, user = peer_of(connection)
            if user == os.geteuid():
                connection.setblocking(False)
                self.borrowers.append(_Borrower(connection))
                continue
            connection.close()
            if user not in self._refused:
                self._refused.add(user)
                self._log(
                    f'Process {process} of user {user} gets images through DDS. Cause: shared '
                    f'memory is for processes of the same user, {os.geteuid()}.'
                )

    def _fail(self, error: OSError) -> None:
        self._end()
        self._log(f'Images for other processes go through DDS. Cause: {error}.')


def _close(listener: socket.socket, borrowers: list[_Borrower]) -> None:
    listener.close()
    while borrowers:
        borrowers.pop().close()
