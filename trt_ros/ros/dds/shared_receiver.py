"""The receiving side of images through shared memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from functools import partial
import os
import select
import socket
import threading
import time
from typing import Any

import numpy as np

from trt_ros.ros.dds.memory import Lendable, Memory, MemoryLoan, map_shared, read_only
from trt_ros.ros.dds.shared_memory import (
    FLAGS,
    MAX_PUBLISHERS,
    NOTICE,
    NUMBER,
    PLACE,
    RECEIVED_NOTICE,
    address,
    open_socket,
    peer_of,
)

_MAX_SWITCHES = _MAX_PLACES = 64
#: Maximum time between the two packets of new memory, which are sent at once: the publisher may be
#: stopped in between.
_MEMORY_SECONDS = 1.0
#: Time from a rehearsal to the next message: cameras are not earlier, and the code it brought into
#: the CPU caches is still there.
_REHEARSAL_NS = 2_000_000
#: Periods with rehearsals. Faster messages find their code in the caches.
_REHEARSED_NS = range(3 * _REHEARSAL_NS, 200_000_000)
_NOW, _PEEK = int(socket.MSG_DONTWAIT), int(socket.MSG_PEEK)


class _Lender:
    """
    A publisher, as a subscription sees it; for one thread at a time.

    :param switches: times of publication at which messages begin to go through shared memory,
        cease to, begin again and so on.
    :param on_memory: called with each new memory.
    :param run: called with this object in a thread of its own.
    :ivar peeked: a packet that is still in the socket, if it is the next one.
    """

    def __init__(
        self,
        connection: socket.socket,
        switches: list[int],
        on_memory: Callable[[Memory], object],
        run: Callable[[_Lender], None],
    ) -> None:
        self.connection, self.switches, self._on_memory = connection, switches, on_memory
        self.is_open, self.last, self._is_on = True, 0, False
        self.peeked, self._number, self._is_unread = b'', 0, False
        self._receive, self._process = connection.recv, os.getpid()
        self._memory: dict[int, Memory] = {}
        self._places: dict[bytes, tuple[Memory, Lendable]] = {}
        # Messages to come, by their place, and the place of the last one.
        self._ready: dict[bytes, np.ndarray] = {}
        self._last_place = b''
        self.thread = threading.Thread(target=run, args=[self], name='shared messages')
        self.thread.start()

    def is_copy(self, stamp: int) -> bool:
        """Return whether a message published at this time came through shared memory."""
        return bisect_right(self.switches, stamp) % 2 == 1

    def take(self) -> np.ndarray | None:
        """Return the next message, (N,) uint8 and read-only; None if there is none."""
        # Of Python's code, as little as possible: it delays each image.
        if not self.is_open:
            return None
        try:
            data, self.peeked = self.peeked, b''
            is_next = len(data) == NOTICE.size and RECEIVED_NOTICE.unpack(data)[1] > self._number
            if self._is_unread or not is_next:
                data = self._received()
            else:
                self._is_unread = True  # The call that takes it from the socket can wait.
            before = self.last
            self.last, number, place = RECEIVED_NOTICE.unpack(data)
            if self.last < before:  # The clock was set back: earlier times mean nothing now.
                self.switches[:] = [self.last] * self._is_on
            if not (number and self._is_on) and not self._switch(bool(number)):
                return self.take()
            message = self._ready.pop(place, None)
            if message is None:
                message = self._lend(place)
        except BlockingIOError:
            self._prepare()
            return None
        except (OSError, ValueError):  # The publisher has left, or sent something else.
            self.close()
            return None
        loan: Any = message.base
        loan.number = self._number = number
        self._last_place = place
        return message

    def _received(self) -> bytes:
        """Return the next notice from the socket; raises BlockingIOError without any."""
        if self._is_unread:
            self._is_unread = False
            self._receive(1, _NOW)
        data = self._receive(NOTICE.size + 1, _NOW)
        while len(data) != NOTICE.size:
            self._change_memory(data)
            data = self._receive(NOTICE.size + 1, _NOW)
        return data

    def _prepare(self) -> None:
        """Make the next message at the place of the last one, while there is time."""
        place, self._last_place = self._last_place, b''
        if place:
            self._ready[place] = self._lend(place)

    def _lend(self, place: bytes) -> np.ndarray:
        memory, part = self._places.get(place) or self._find(place)
        loan = part.view(MemoryLoan)
        loan.memory, loan.give_back, loan.number = memory, self._give_back, 0
        return loan.view(np.ndarray)

    def _switch(self, is_on: bool) -> bool:
        if is_on != self._is_on:
            self._is_on = is_on
            self.switches.append(self.last)
            del self.switches[: 2 * (len(self.switches) > _MAX_SWITCHES)]
        return is_on

    def _find(self, place: bytes) -> tuple[Memory, Lendable]:
        number, nbytes = PLACE.unpack(place)
        memory = self._memory.get(number)
        if memory is None or nbytes > memory.pages.size:
            raise ConnectionResetError
        if len(self._places) == _MAX_PLACES:
            self._forget_places()
        found = self._places[place] = memory, read_only(memory.pages)[:nbytes].view(Lendable)
        return found

    def _change_memory(self, data: bytes) -> None:
        if len(data) != NUMBER.size:
            raise ConnectionResetError
        (number,) = NUMBER.unpack(data)
        if number < 0:
            self._memory.pop(-number, None)
            self._forget_places()
            return
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        if not poll.poll(1e3 * _MEMORY_SECONDS):
            raise ConnectionResetError
        _, fds, *_ = socket.recv_fds(self.connection, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not fds:
            raise ConnectionResetError
        try:
            memory = self._memory[number] = Memory(map_shared(fds[0]))
        finally:
            os.close(fds[0])
        self._on_memory(memory)

    def _forget_places(self) -> None:
        self._places.clear()
        self._ready.clear()
        self._last_place = b''

    def close(self) -> None:
        """Disconnect; messages that were taken stay as they are."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.is_open = False
        self._on_memory = lambda memory: None  # A kept message keeps no subscription.
        self._memory.clear()
        self._forget_places()
        if self._is_on:
            self._is_on = False
            self.switches.append(self.last + 1)

    def _give_back(self, loan: MemoryLoan) -> None:
        # No number: no message came. A forked process has copies of its parent's loans.
        if loan.number and os.getpid() == self._process:
            with suppress(OSError):  # One of both has left.
                self.connection.send(NUMBER.pack(loan.number), FLAGS | _NOW)


class SharedReceiver:
    """
    The messages that publishers of other processes lend to a subscription.

    All but the constructor and close() is called by one thread at a time.

    :param max_loans: number of messages that the subscription holds at the same time at most.
    :param is_newest_only: whether to drop messages from DDS that are older than the last one here.
    :param on_ready: called in a thread of each publisher with a function that returns its next
        message, or None, as take() does.
    :param on_due: called likewise, some milliseconds before the next message is due by the period.
    :param on_memory: called with the memory of messages before the first of them.
    :param attempt: called in each of these threads with its work; returns whether to go on after
        an exception, which it does not raise.
    """

    def __init__(
        self,
        max_loans: int,
        is_newest_only: bool,
        on_ready: Callable[[Callable[[], np.ndarray | None]], object],
        on_due: Callable[[Callable[[], np.ndarray | None]], object],
        on_memory: Callable[[Memory], object],
        attempt: Callable[[Callable[[], object]], bool],
    ) -> None:
        self._max_loans, self._is_newest_only = max_loans, is_newest_only
        self._on_ready, self._on_due, self._on_memory = on_ready, on_due, on_memory
        self._attempt = attempt
        self._lenders: dict[bytes, _Lender | None] = {}  # None: not by shared memory.
        self._waiting: list[np.ndarray] = []
        self._is_closed = False

    def is_copy(self, gid: bytes, stamp: int) -> bool:
        """
        Return whether a message from DDS also came through shared memory; connect if it did not.

        Call take() afterwards: earlier messages come first.

        :param gid: its publisher; `stamp`: the time of its publication in nanoseconds.
        """
        lender = self._lenders.get(gid)
        if lender is not None:
            self._read(lender)
            if lender.is_copy(stamp) or (self._is_newest_only and stamp < lender.last):
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
            if lender is not None:
                self._read(lender)
        waiting, self._waiting = self._waiting, []
        return waiting

    def stop(self) -> None:
        """Disconnect; the threads end after the message in progress."""
        self._is_closed = True
        for lender in filter(None, self._lenders.values()):
            lender.close()

    def close(self) -> None:
        """Disconnect and wait for the message in progress."""
        self.stop()
        for lender in filter(None, self._lenders.values()):
            lender.thread.join()
            lender.close()  # Again, as the thread may have been taking a message.
        self._waiting.clear()

    def _connect(self, gid: bytes, switches: list[int]) -> _Lender | None:
        connection = open_socket()
        try:
            connection.connect(address(gid))
            process, user = peer_of(connection)
            if user == os.geteuid() and process != os.getpid():
                connection.send(NUMBER.pack(self._max_loans), FLAGS)
                connection.setblocking(True)
                return _Lender(connection, switches, self._on_memory, self._run)
        except OSError:  # Another kind of publisher, or one of another machine or container.
            pass
        connection.close()
        return None

    def _read(self, lender: _Lender) -> None:
        while (message := lender.take()) is not None:
            self._waiting.append(message)

    def _run(self, lender: _Lender) -> None:
        while self._attempt(partial(self._serve, lender)) and lender.is_open:
            pass
        lender.connection.close()

    def _serve(self, lender: _Lender) -> None:
        peek, last = lender.connection.recv, 0
        poll = select.poll()
        poll.register(lender.connection, select.POLLIN)
        while lender.is_open and not self._is_closed:
            period, last = lender.last - last, lender.last
            wait_ns = last + period - _REHEARSAL_NS - time.time_ns()
            if period in _REHEARSED_NS and 0 < wait_ns < period and not poll.poll(1e-6 * wait_ns):
                self._on_due(lender.take)
            try:  # noqa: SIM105  # suppress() delays each image.
                lender.peeked = peek(NOTICE.size + 1, _PEEK)
            except OSError:  # The publisher has left, which take() notices.
                pass
            self._on_ready(lender.take)
