"""Bindings of the rcl functions that rclpy lacks: serialized messages in caller-owned memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char, c_size_t, c_uint8, c_void_p
from functools import partial
from itertools import pairwise
import os
from struct import Struct
import time
import traceback
from typing import Any, NamedTuple

import numpy as np

from trt_ros.ros.dds.memory import Lendable, MemoryLoan, read_only, whole_pages
from trt_ros.ros.releases import GID_CAPACITY, GID_NBYTES, MESSAGE_INFO_CAPACITY
from trt_ros.tensors import address_of

RCL, RCUTILS = 'librcl.so', 'librcutils.so'
OK, TAKE_FAILED = 0, 401
_SMALL_NBYTES = 1 << 16
# Offsets in rmw_message_info_t.
_SOURCE_TIMESTAMP_AT, _SEQUENCE_NUMBER_AT = 0, 16
_UINT64 = Struct('=Q')


class RclError(Exception):
    """An rcl call failed, or the layout of rcl is unexpected."""


_ALLOCATE = CFUNCTYPE(c_void_p, c_size_t, c_void_p)
_DEALLOCATE = CFUNCTYPE(None, c_void_p, c_void_p)
_REALLOCATE = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_void_p)
_ZERO_ALLOCATE = CFUNCTYPE(c_void_p, c_size_t, c_size_t, c_void_p)


class _Allocator(Structure):
    """rcutils_allocator_t."""

    _fields_ = [
        ('allocate', _ALLOCATE),
        ('deallocate', _DEALLOCATE),
        ('reallocate', _REALLOCATE),
        ('zero_allocate', _ZERO_ALLOCATE),
        ('state', c_void_p),
    ]


class _Bytes(Structure):
    """rcutils_uint8_array_t, which is rcl_serialized_message_t."""

    _fields_ = [
        ('buffer', c_void_p),
        ('length', c_size_t),
        ('capacity', c_size_t),
        ('allocator', _Allocator),
    ]


# Returned by value into space of the caller: larger than needed, in case the structure grows.
class _DefaultAllocator(Structure):
    _fields_ = [('allocator', _Allocator), ('spare', c_uint8 * 216)]


class _Gid(Structure):
    """rmw_gid_t: the id of a publisher."""

    _fields_ = [('middleware', c_void_p), ('data', c_uint8 * GID_CAPACITY)]


class _ErrorString(Structure):
    """rcutils_error_string_t, which is 1024 bytes with a NUL."""

    _fields_ = [('text', c_char * 4096)]


#: Space for an rmw_message_info_t: what the middleware reports about a message.
MessageInfo = c_uint8 * MESSAGE_INFO_CAPACITY


class Rcl:
    """
    The rcl library that rclpy has loaded.

    :ivar counts_messages: whether number_in() increases by one with each message of a publisher.
    :ivar stamps_messages: whether stamp_in() is the time of publication.
    :raises RclError: when the library or a function is missing, or a structure has another layout.
    """

    def __init__(self) -> None:
        try:
            # NOLOAD: only the library that rclpy uses.
            mode = os.RTLD_NOW | os.RTLD_NOLOAD
            rcl = ctypes.CDLL(RCL, mode)
            # For small messages, releasing the GIL costs more than it gains.
            rcl_with_gil = ctypes.PyDLL(RCL, mode)
            rcutils = ctypes.CDLL(RCUTILS, mode)
            self._take = rcl.rcl_take_serialized_message
            self._publish = rcl.rcl_publish_serialized_message
            self._publish_small = rcl_with_gil.rcl_publish_serialized_message
            self._rmw_publisher = rcl.rcl_publisher_get_rmw_handle
            # From the middleware that rcl is linked to.
            self._rmw_gid = rcl.rmw_get_gid_for_publisher
            self._error_string = rcutils.rcutils_get_error_string
            self._reset_error = rcutils.rcutils_reset_error
            default_allocator = rcutils.rcutils_get_default_allocator
            bytes_init = rcutils.rcutils_uint8_array_init
            bytes_fini = rcutils.rcutils_uint8_array_fini
        except (OSError, AttributeError) as error:
            raise RclError(str(error)) from error
        self._take.argtypes = [c_void_p, POINTER(_Bytes), c_void_p, c_void_p]
        self._publish.argtypes = [c_void_p, POINTER(_Bytes), c_void_p]
        self._publish_small.argtypes = self._publish.argtypes
        self._rmw_publisher.argtypes, self._rmw_publisher.restype = [c_void_p], c_void_p
        self._rmw_gid.argtypes = [c_void_p, POINTER(_Gid)]
        self._error_string.restype = _ErrorString
        default_allocator.restype = _DefaultAllocator
        self._allocator = default_allocator().allocator
        self._check_layout(bytes_init, bytes_fini)
        self._gid_at = -1
        self.counts_messages = self.stamps_messages = False

    def take(self, subscription: Any, c_bytes: _Bytes, info: ctypes.Array[c_uint8]) -> bool:
        """Take the next message by an entered handle; return whether one came; or RclError."""
        c_bytes.length = 0
        code = self._take(subscription.pointer, byref(c_bytes), byref(info), None)
        if code not in (OK, TAKE_FAILED):
            raise self._error('rcl_take_serialized_message failed', code)
        # While subscriptions come and go, Fast DDS also returns OK and writes no message.
        return bool(code == OK and c_bytes.length)

    def publish(self, publisher: Any, message: np.ndarray) -> None:
        """Publish a serialized message, (N,) uint8, by an entered handle, or raise RclError."""
        size = message.size
        c_bytes = _Bytes(address_of(message), size, size, self._allocator)
        publish = self._publish_small if size < _SMALL_NBYTES else self._publish
        code = publish(publisher.pointer, byref(c_bytes), None)
        if code != OK:
            raise self._error('rcl_publish_serialized_message failed', code)

    def gid_of(self, publisher: Any) -> bytes:
        """Return the id that is unique to a publisher, by its entered handle; or RclError."""
        gid = _Gid()
        code = self._rmw_gid(self._rmw_publisher(publisher.pointer), byref(gid))
        if code != OK:
            raise self._error('rmw_get_gid_for_publisher failed', code)
        return bytes(gid.data)[:GID_NBYTES]

    def gid_in(self, info: ctypes.Array[c_uint8]) -> bytes:
        """Return the id of the publisher from the MessageInfo of a message."""
        return bytes(memoryview(info)[self._gid_at : self._gid_at + GID_NBYTES])

    def number_in(self, info: ctypes.Array[c_uint8]) -> int:
        """Return a message's sequence number."""
        return int(_UINT64.unpack_from(info, _SEQUENCE_NUMBER_AT)[0])

    def stamp_in(self, info: ctypes.Array[c_uint8]) -> int:
        """Return the time at which a message was published, as time.time_ns()."""
        return int(_UINT64.unpack_from(info, _SOURCE_TIMESTAMP_AT)[0])

    def detect_info_layout(self, gid: bytes, infos: list[bytes]) -> None:
        """
        Detect the offset of the publisher id in a MessageInfo, and what messages have.

        The offset differs between versions of ROS. Middlewares number messages, report when they
        were published, or neither.

        :param infos: of messages that the publisher with the id `gid` sent, in order.
        """
        numbers, stamps = (
            [_UINT64.unpack_from(info, at)[0] for info in infos]
            for at in (_SEQUENCE_NUMBER_AT, _SOURCE_TIMESTAMP_AT)
        )
        offsets = {info.find(gid) for info in infos}
        self._gid_at = offsets.pop() if len(offsets) == 1 and any(gid) else -1
        is_known = self.knows_gids and len(numbers) > 1
        self.counts_messages = is_known and all(b == a + 1 for a, b in pairwise(numbers))
        is_stamped = is_known and stamps == sorted(set(stamps))
        self.stamps_messages = is_stamped and abs(time.time_ns() - stamps[-1]) < 60 * 10**9

    @property
    def knows_gids(self) -> bool:
        """Whether detect_info_layout() found the offset of the id, so that gid_in() works."""
        return self._gid_at >= 0

    def _error(self, problem: str, code: int) -> RclError:
        text = self._error_string().text.decode(errors='replace')
        self._reset_error()  # Otherwise rcl warns that the next error overwrites this one.
        return RclError(f'{problem} (return code {code}). {text}')

    def _check_layout(self, bytes_init: Any, bytes_fini: Any) -> None:
        """Check the layout of rcutils_uint8_array_t by having rcutils fill one in."""
        room = (c_uint8 * 512)(*[0xA5] * 512)
        c_bytes = _Bytes.from_buffer(room)
        if bytes_init(byref(room), c_size_t(24), byref(self._allocator)) != OK:
            raise RclError('rcutils_uint8_array_init failed')
        is_as_expected = (
            c_bytes.length == 0
            and c_bytes.capacity == 24
            and bytes(c_bytes.allocator) == bytes(self._allocator)
            and set(room[ctypes.sizeof(_Bytes) :]) == {0xA5}
        )
        if is_as_expected:
            bytes_fini(byref(room))
            is_as_expected = not c_bytes.buffer and c_bytes.capacity == 0
        if not is_as_expected:
            raise RclError('rcutils_uint8_array_t has an unexpected layout')


class MemoryHooks(NamedTuple):
    """
    Callbacks for the memory that messages are received into; must not raise.

    :param register: called with (N,) uint8 before the first message in that memory is handed out.
    :param unregister: called with the same array before that memory is freed.
    """

    register: Callable[[np.ndarray], None]
    unregister: Callable[[np.ndarray], None]


NO_HOOKS = MemoryHooks(lambda memory: None, lambda memory: None)


class ReceiveBufferPool:
    """
    A pool of receive buffers, which it owns; grows to the number in use at the same time.

    One thread takes messages; any thread may drop them.

    :ivar info: MessageInfo of the last message taken.
    """

    def __init__(self, hooks: MemoryHooks = NO_HOOKS) -> None:
        self._hooks = hooks
        self._free: deque[_Buffer] = deque()
        self._next: tuple[_Buffer, np.ndarray] | None = None
        self.info = MessageInfo()
        self._is_closed = False

    def prepare(self) -> tuple[_Buffer, np.ndarray]:
        """Prepare the buffer of the next take() while there is no message."""
        if self._next is None:
            buffer = self._free.popleft() if self._free else _Buffer(1 << 16, self._hooks)
            buffer.offer()
            self._next = buffer, self._lend(buffer)
        return self._next

    def take(self, rcl: Rcl, subscription: Any) -> np.ndarray | None:
        """Take the next message, valid while a view of it is left, or None; or raise RclError."""
        buffer, memory = self.prepare()
        try:
            if not rcl.take(subscription, buffer.c_bytes, self.info):
                return None
        except RclError:
            self._next = None
            raise
        self._next = None
        nbytes = buffer.expose()
        if memory.size < buffer.memory.size:  # It has grown.
            loan: Any = memory.base
            loan.give_back, memory = lambda _: None, self._lend(buffer)
        return memory[:nbytes]

    def _lend(self, buffer: _Buffer) -> np.ndarray:
        loan = read_only(buffer.memory).view(Lendable).view(MemoryLoan)
        loan.give_back = partial(self._give_back, buffer)
        return loan.view(np.ndarray)

    def _give_back(self, buffer: _Buffer, _: MemoryLoan) -> None:
        if self._is_closed:
            buffer.close()
        else:
            self._free.appendleft(buffer)  # First: it is the one still in the CPU caches.

    def close(self) -> None:
        """Free all buffers; those of messages still in use when these are dropped."""
        self._is_closed = True
        self._next = None
        while self._free:
            self._free.popleft().close()


class _Buffer:
    """A receive buffer: page-aligned memory that grows to the largest message."""

    def __init__(self, nbytes: int, hooks: MemoryHooks) -> None:
        self._hooks, self._is_registered = hooks, False
        self.c_bytes = _Bytes(
            allocator=_Allocator(
                _ALLOCATE(lambda nbytes, state: None),
                _DEALLOCATE(lambda pointer, state: None),
                _REALLOCATE(self._reallocate),
                _ZERO_ALLOCATE(lambda count, nbytes, state: None),
            )
        )
        self.memory = whole_pages(nbytes)

    def offer(self) -> None:
        """Offer the middleware all of the memory, not only the size of its last request."""
        self.c_bytes.buffer, self.c_bytes.capacity = self.memory.ctypes.data, self.memory.size

    def expose(self) -> int:
        """Register the memory, if it is new, and return the size of the message."""
        if not self._is_registered:
            self._hooks.register(self.memory)
            self._is_registered = True
        return int(self.c_bytes.length)

    def close(self) -> None:
        self._unregister()
        self.c_bytes.allocator = _Allocator()  # Its callbacks reference this buffer.

    def _unregister(self) -> None:
        if self._is_registered:
            self._is_registered = False
            self._hooks.unregister(self.memory)

    def _reallocate(self, pointer: int | None, nbytes: int, state: int | None) -> int | None:
        """Grow; Cyclone DDS calls this for each message, others only if it is too large."""
        try:
            old = self.memory
            if pointer != old.ctypes.data:
                return None
            if nbytes <= old.size:
                return pointer
            self._unregister()
            self.memory = whole_pages(nbytes)
            kept = min(old.size, self.memory.size)
            self.memory[:kept] = old[:kept]
            return int(self.memory.ctypes.data)
        # C code cannot propagate it; the middleware reports that it has no memory.
        except Exception:
            traceback.print_exc()
            return None
