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
from contextlib import suppress
import os
import socket
from struct import Struct
import time
from typing import Any
import weakref

import numpy as np
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile
from sensor_msgs.msg import Image

from trt_ros.ros.dds.memory import Memory, Pool
from trt_ros.ros.dds.rcl import Rcl

#: Environment variable; the value 'rclpy' sends everything through rclpy, and 'dds' nothing
#: through shared memory.
VARIABLE = 'TRT_ROS_TRANSPORT'
#: Time of publication, number of the loan, then where the message is: number of the memory, size.
#: Loan 0: the messages from this time on come through DDS.
NOTICE = Struct('<qQQQ')
RECEIVED_NOTICE = Struct('<qq16s')  # Signed, so that any number can be returned.
PLACE = Struct('<QQ')
#: Else: the number of memory whose file descriptor follows, or minus the number of freed memory.
NUMBER = Struct('<q')
FLAGS = int(socket.MSG_NOSIGNAL)
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
        self.is_on = False  # Whether its last message went through shared memory.
        self._count = 0
        self._lent: dict[int, Any] = {}
        self._known: set[int] = set()  # The memory that it has mapped.
        self._freed: deque[int] = deque()

    def lend(self, message: np.ndarray, memory: Memory) -> None:
        """Lend a message in shared memory, unless too many are lent; never waits."""
        try:
            if len(self._lent) >= self._max_loans and not self._may_lend():
                return
            if memory.number not in self._known:
                self._introduce(memory)
            # Before the call that sends, no more of Python's code than necessary.
            number = self._count = self._count + 1
            self._connection.send(
                NOTICE.pack(time.time_ns(), number, memory.number, message.size), FLAGS
            )
            self._lent[number] = message
            self.is_on = True
        except OSError:
            self.is_on, self.has_left = False, True

    def _may_lend(self) -> bool:
        self._take_back(0)
        if len(self._lent) < self._max_loans:
            return True
        if self.is_on:
            self._connection.send(NOTICE.pack(time.time_ns(), 0, 0, 0), FLAGS)
            self.is_on = False
        return False

    def _introduce(self, memory: Memory) -> None:
        self._known.add(memory.number)
        weakref.finalize(memory, self._freed.append, memory.number).atexit = False
        self._connection.send(NUMBER.pack(memory.number), FLAGS)
        socket.send_fds(self._connection, [b'.'], [memory.fd], FLAGS)

    def settle(self) -> None:
        """Take back the messages before the last one, and tell which memory was freed."""
        self._take_back(1)
        while self._freed:
            self._known.discard(freed := self._freed.popleft())
            with suppress(OSError):
                self._connection.send(NUMBER.pack(-freed), FLAGS)

    def _take_back(self, kept: int) -> None:
        """Take back returned messages until `kept` are lent; never waits."""
        try:
            while len(self._lent) > kept or not self._max_loans:
                data = self._connection.recv(NUMBER.size)
                if len(data) != NUMBER.size:
                    self.has_left = True
                    return
                (number,) = NUMBER.unpack(data)
                if self._max_loans:
                    self._lent.pop(number, None)
                else:
                    self._max_loans = min(number, _MAX_LOANS)
        except BlockingIOError:
            pass
        except OSError:
            self.has_left = True

    def close(self) -> None:
        """Disconnect; what is lent stays unchanged, as the subscription may still read it."""
        self._connection.close()
        for message in self._lent.values():
            message.base.memory.is_retired = True
        self._lent.clear()


class SharedPublisher:
    """
    The part of a publisher that serves other processes of the same user; for one thread at a time.

    :param gid: the publisher's id in DDS.
    :param log: called with a line when a process is refused, or shared memory cannot be had.
    :ivar borrowers: the connected subscriptions; while there are any, each message is lent.
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

    def lend(self, message: np.ndarray) -> None:
        """Lend a message, (N,) uint8, to the subscriptions; it must not change any more."""
        memory: Memory | None = getattr(message.base, 'memory', None)
        if memory is None or memory.fd < 0:
            if memory is not None and memory.share_next is not None:
                memory.share_next.set()
            copy: Any = self._pool.take(message.size)
            copy[:] = message
            message, memory = copy, copy.base.memory
            if memory.fd < 0:
                self._fail(OSError('no memory or file descriptor is left'))
                return
        for each in self.borrowers:
            each.lend(message, memory)

    def settle(self, subscriptions: int) -> int:
        """
        Do what would delay the message before lend().

        :param subscriptions: number of the publisher's DDS subscriptions now.
        :returns: how many of them got the message.
        """
        lent = sum([each.is_on for each in self.borrowers])
        if subscriptions > len(self.borrowers):
            self._accept()
        for each in self.borrowers:
            each.settle()
        for left in [each for each in self.borrowers if each.has_left]:
            left.close()
            self.borrowers.remove(left)
        return lent

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
