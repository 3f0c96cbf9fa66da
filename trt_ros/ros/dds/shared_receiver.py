"""The receiving side of images through shared memory."""

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
import os
import select
import socket
import sys
import threading

import numpy as np

from trt_ros.ros.dds.memory import Memory, lend, map_shared
from trt_ros.ros.dds.shared_memory import (
    MAX_PUBLISHERS,
    NOTICE,
    NUMBER,
    address,
    open_socket,
    peer_of,
)

_MAX_NOTICE_NBYTES = 1 << 12
_FD_NBYTES = socket.CMSG_LEN(4)
_MAX_SWITCHES = 64


@dataclass(eq=False)
class _Lender:
    """
    A publisher, as a subscription sees it.

    :ivar switches: times of publication at which messages begin to go through shared memory, cease
        to, begin again and so on.
    """

    connection: socket.socket
    switches: list[int]
    is_open: bool = True
    last: int = 0
    memory: dict[int, Memory] = field(default_factory=dict)

    def is_copy(self, stamp: int) -> bool:
        """Return whether a message published at this time came through shared memory."""
        return bisect_right(self.switches, stamp) % 2 == 1

    def take(self) -> np.ndarray | None:
        """
        Return the next message; None if there is none.

        :raises OSError: when the publisher has left, or sent something else.
        """
        # Of Python's code, as little as possible: it delays each image.
        try:
            data, ancillary, _, _ = self.connection.recvmsg(
                _MAX_NOTICE_NBYTES, _FD_NBYTES, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        if len(data) != NOTICE.size or ancillary:
            self._change_memory(
                data, [int.from_bytes(fd[:4], sys.byteorder) for *_, fd in ancillary]
            )
        self.last, loan, key, offset, nbytes = NOTICE.unpack_from(data)
        if bool(loan) != len(self.switches) % 2:
            self.switches.append(self.last)
            del self.switches[: 2 * (len(self.switches) > _MAX_SWITCHES)]
        if not loan:
            return self.take()
        memory = self.memory.get(key)
        if memory is None or offset + nbytes > memory.nbytes:
            raise ConnectionResetError
        return lend(memory, offset, nbytes, partial(_give_back, self.connection, loan))

    def _change_memory(self, data: bytes, fds: list[int]) -> None:
        try:
            if len(data) < NOTICE.size:
                raise ConnectionResetError
            for (freed,) in NUMBER.iter_unpack(data[NOTICE.size :]):
                self.memory.pop(freed, None)
            if fds:
                self.memory[NOTICE.unpack_from(data)[2]] = Memory(map_shared(fds[0]))
        finally:
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        """Disconnect; messages that were taken stay as they are."""
        self.connection.close()
        self.is_open = False
        self.memory.clear()
        if len(self.switches) % 2:
            self.switches.append(self.last + 1)


def _give_back(connection: socket.socket, loan: int, memory: Memory) -> None:
    with suppress(OSError):  # One of both has left.
        connection.send(NUMBER.pack(loan), socket.MSG_NOSIGNAL)


class SharedReceiver:
    """
    The messages that publishers of other processes lend to a subscription.

    All but the constructor and close() is called by one thread at a time.

    :param max_loans: number of messages that the subscription holds at the same time at most.
    :param is_newest_only: whether to drop messages from DDS that are older than the last one here.
    :param on_ready: called in a thread of its own when take() may have messages.
    """

    def __init__(self, max_loans: int, is_newest_only: bool, on_ready: Callable[[], None]) -> None:
        self._max_loans, self._on_ready = max_loans, on_ready
        self._is_newest_only = is_newest_only
        self._lenders: dict[bytes, _Lender | None] = {}  # None: not by shared memory.
        self._waiting: list[np.ndarray] = []
        self._is_closed = False
        self._poll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._wake_fd, select.EPOLLIN)
        self._thread: threading.Thread | None = None

    def is_copy(self, gid: bytes, stamp: int) -> bool:
        """
        Return whether a message from DDS also came through shared memory; connect if it did not.

        Call take() afterwards: earlier messages come first.

        :param gid: its publisher; `stamp`: the time of its publication in nanoseconds.
        """
        lender = self._lenders.get(gid)
        if lender is not None and lender.is_open:
            self._read(lender)
        if lender is not None and (
            lender.is_copy(stamp) or (self._is_newest_only and stamp < lender.last)
        ):
            return True
        if gid not in self._lenders or (lender is not None and not lender.is_open):
            if len(self._lenders) >= MAX_PUBLISHERS:
                self._lenders = {
                    key: each for key, each in self._lenders.items() if each and each.is_open
                }
            self._lenders[gid] = self._connect(gid, lender.switches if lender else [])
        return False

    def take(self) -> list[np.ndarray]:
        """Return the messages, (N,) uint8 and read-only, that have arrived."""
        for lender in self._lenders.values():
            if lender is not None and lender.is_open:
                self._read(lender)
        waiting, self._waiting = self._waiting, []
        return waiting

    def close(self) -> None:
        """Disconnect and wait for the message in progress."""
        self._is_closed = True
        os.eventfd_write(self._wake_fd, 1)
        if self._thread is not None:
            self._thread.join()
        for lender in self._lenders.values():
            if lender is not None and lender.is_open:
                lender.close()
        self._waiting.clear()
        self._poll.close()
        os.close(self._wake_fd)

    def _connect(self, gid: bytes, switches: list[int]) -> _Lender | None:
        connection = open_socket()
        try:
            connection.connect(address(gid))
            process, user = peer_of(connection)
            if user == os.geteuid() and process != os.getpid():
                connection.send(NUMBER.pack(self._max_loans), socket.MSG_NOSIGNAL)
                self._poll.register(connection, select.EPOLLIN)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name='shared messages')
                    self._thread.start()
                return _Lender(connection, switches)
        except OSError:  # Another kind of publisher, or one of another machine or container.
            pass
        connection.close()
        return None

    def _read(self, lender: _Lender) -> None:
        try:
            while (message := lender.take()) is not None:
                self._waiting.append(message)
        except OSError:
            self._poll.unregister(lender.connection)
            lender.close()

    def _run(self) -> None:
        while True:
            self._poll.poll()
            if self._is_closed:
                return
            self._on_ready()
