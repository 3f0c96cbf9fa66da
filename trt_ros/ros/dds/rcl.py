"""The few functions of rcl that rclpy does not offer: messages as bytes, in memory of ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char, c_size_t, c_uint8, c_void_p
import os
from struct import Struct
import traceback
from typing import Any, NamedTuple

import numpy as np

from trt_ros.ros.dds.memory import whole_pages

RCL, RCUTILS = 'librcl.so', 'librcutils.so'
OK, TAKE_FAILED = 0, 401
_SMALL_NBYTES = 1 << 16
_GID_NBYTES = 16  # Some have 24, of which the last 8 are zeros.
# In rmw_message_info_t.
_SOURCE_TIMESTAMP_AT, _SEQUENCE_NUMBER_AT = 0, 16
_UINT64 = Struct('=Q')


class RclError(Exception):
    """A call of rcl that failed, or rcl is not what it should be."""


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


# Returned by value, into room that the caller gives: more than is needed, should they ever grow.
class _DefaultAllocator(Structure):
    _fields_ = [('allocator', _Allocator), ('room', c_uint8 * 216)]


class _Gid(Structure):
    """rmw_gid_t: who published a message."""

    _fields_ = [('middleware', c_void_p), ('data', c_uint8 * 248)]


class _ErrorString(Structure):
    """rcutils_error_string_t, which is 1024 bytes with a NUL."""

    _fields_ = [('text', c_char * 4096)]


#: Room for an rmw_message_info_t: what the middleware tells about a message.
MessageInfo = c_uint8 * 512


class Rcl:
    """
    rcl as rclpy has loaded it.

    :ivar orders_messages: whether number_in() grows with each message of a publisher.
    :ivar counts_messages: whether it grows by one.
    :raises RclError: when it is not there, or lays its structures out in another way.
    """

    def __init__(self) -> None:
        try:
            # NOLOAD: the library that rclpy uses, or none.
            mode = os.RTLD_NOW | os.RTLD_NOLOAD
            rcl = ctypes.CDLL(RCL, mode)
            # While a small message is sent, giving the GIL away costs more than it brings.
            rcl_with_gil = ctypes.PyDLL(RCL, mode)
            rcutils = ctypes.CDLL(RCUTILS, mode)
            self._take = rcl.rcl_take_serialized_message
            self._publish = rcl.rcl_publish_serialized_message
            self._publish_small = rcl_with_gil.rcl_publish_serialized_message
            self._rmw_publisher = rcl.rcl_publisher_get_rmw_handle
            self._rmw_gid = rcl.rmw_get_gid_for_publisher  # Of what rcl is linked with.
            self._error_string = rcutils.rcutils_get_error_string
            self._reset_error = rcutils.rcutils_reset_error
            default_allocator = rcutils.rcutils_get_default_allocator
            bytes_init, bytes_fini = (
                rcutils.rcutils_uint8_array_init,
                rcutils.rcutils_uint8_array_fini,
            )
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
        self.counts_messages = self.orders_messages = False

    def take(self, subscription: Any, c_bytes: _Bytes, info: ctypes.Array[c_uint8]) -> bool:
        """
        Take the next message; the GIL is free meanwhile.

        :param subscription: rclpy's handle of it, entered.
        :param info: a MessageInfo, which is filled in.
        :returns: whether there was one.
        :raises RclError: when that failed; a message may be lost then.
        """
        code = self._take(subscription.pointer, byref(c_bytes), byref(info), None)
        if code not in (OK, TAKE_FAILED):
            raise self._error('A message could not be taken', code)
        return bool(code == OK)

    def publish(self, publisher: Any, message: np.ndarray) -> None:
        """
        Send a serialized message as it lies in memory.

        :param publisher: rclpy's handle of it, entered.
        :param message: (N,) uint8, contiguous.
        :raises RclError: when that failed.
        """
        size = message.size
        c_bytes = _Bytes(_address(message), size, size, self._allocator)
        publish = self._publish_small if size < _SMALL_NBYTES else self._publish
        code = publish(publisher.pointer, byref(c_bytes), None)
        if code != OK:
            raise self._error('A message could not be published', code)

    def gid_of(self, publisher: Any) -> bytes:
        """
        Return what is unique to a publisher.

        :param publisher: rclpy's handle of it, entered.
        :raises RclError: when the middleware does not tell.
        """
        gid = _Gid()
        code = self._rmw_gid(self._rmw_publisher(publisher.pointer), byref(gid))
        if code != OK:
            raise self._error('The id of a publisher is unknown', code)
        return bytes(gid.data)[:_GID_NBYTES]

    def gid_in(self, info: ctypes.Array[c_uint8]) -> bytes:
        """Return the id of the publisher of the message whose MessageInfo this is."""
        return bytes(memoryview(info)[self._gid_at : self._gid_at + _GID_NBYTES])

    def number_in(self, info: ctypes.Array[c_uint8]) -> int:
        """Return the number of a message among its publisher's, or the time of its publication."""
        return int(
            _UINT64.unpack_from(
                info, _SEQUENCE_NUMBER_AT if self.counts_messages else _SOURCE_TIMESTAMP_AT
            )[0]
        )

    def detect_info_layout(self, gid: bytes, infos: list[bytes]) -> None:
        """
        Find out where a MessageInfo holds the id, which differs between versions of ROS, and
        whether the middleware numbers messages, or tells when they were published.

        :param infos: of some messages, all of which the publisher of that id sent, in order.
        """
        numbers, stamps = (
            [_UINT64.unpack_from(info, at)[0] for info in infos]
            for at in (_SEQUENCE_NUMBER_AT, _SOURCE_TIMESTAMP_AT)
        )
        places = {info.find(gid) for info in infos}
        self._gid_at = places.pop() if len(places) == 1 and any(gid) else -1
        self.counts_messages = (
            self.knows_gids
            and len(numbers) > 1
            and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        )
        self.orders_messages = self.counts_messages or (
            self.knows_gids and len(stamps) > 1 and stamps == sorted(set(stamps))
        )

    @property
    def knows_gids(self) -> bool:
        """Whether detect_info_layout() found the place, and gid_in() works."""
        return self._gid_at >= 0

    def _error(self, problem: str, code: int) -> RclError:
        text = self._error_string().text.decode(errors='replace')
        self._reset_error()  # Else the next one complains that this one was overwritten.
        return RclError(f'{problem} ({code}). {text}')

    def _check_layout(self, bytes_init: Any, bytes_fini: Any) -> None:
        """Let rcutils fill in a structure, with room around it, and look what is where."""
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
            raise RclError('rcutils_uint8_array_t is laid out in another way')


def _address(message: Any) -> int:
    try:
        return ctypes.addressof(c_uint8.from_buffer(message))
    except (TypeError, ValueError):  # Read-only, or empty.
        return int(message.ctypes.data)  # Takes three times as long.


class MemoryHooks(NamedTuple):
    """
    Who is told of the memory that messages are taken into; must not raise.

    :param register: called with (N,) uint8 when messages will lie there from now on.
    :param unregister: called with the same array before they no longer do.
    """

    register: Callable[[np.ndarray], None]
    unregister: Callable[[np.ndarray], None]


NO_HOOKS = MemoryHooks(lambda memory: None, lambda memory: None)


class ReceiveBuffers:
    """
    Owns the buffers that messages are taken into: as many as are in use at the same time.

    One thread takes; what it took may be dropped in any.

    :ivar info: the MessageInfo of the message that was taken last.
    """

    def __init__(self, hooks: MemoryHooks = NO_HOOKS, *, nbytes: int = 1 << 16) -> None:
        self._hooks, self._nbytes = hooks, nbytes
        self._free: deque[_Buffer] = deque()
        self._next: tuple[_Loan, np.ndarray, int] | None = None
        self.info = MessageInfo()
        self._is_closed = False

    def prepare(self) -> tuple[_Loan, np.ndarray, int]:
        """Do for the next take() what can be done while there is no message."""
        if self._next is None:
            buffer = self._free.popleft() if self._free else _Buffer(self._nbytes, self._hooks)
            buffer.offer()
            loan = _Loan(buffer, self)
            self._next = loan, np.asarray(loan), buffer.c_bytes.buffer
        return self._next

    def take(self, rcl: Rcl, subscription: Any) -> np.ndarray | None:
        """
        Take the next message.

        :returns: (N,) uint8, read-only; its buffer comes back when no view of it is left. None
            when there is no message.
        :raises RclError: when that failed.
        """
        loan, memory, address = self.prepare()
        try:
            if not rcl.take(subscription, loan.buffer.c_bytes, self.info):
                return None
        except RclError:
            self._next = None
            raise
        self._next = None
        nbytes = loan.buffer.expose()
        if loan.buffer.c_bytes.buffer != address:  # It has grown.
            memory = np.asarray(loan)
        return memory[:nbytes]

    def give_back(self, buffer: _Buffer) -> None:
        if self._is_closed:
            buffer.close()
        else:
            self._free.appendleft(buffer)  # First: it is the one that caches know.

    def close(self) -> None:
        """Give all memory back; that of messages still in use when they no longer are."""
        self._is_closed = True
        self._next = None
        while self._free:
            self._free.popleft().close()


class _Loan:
    """A buffer as a read-only array: it and all views of it keep this alive."""

    def __init__(self, buffer: _Buffer, ring: ReceiveBuffers) -> None:
        self.buffer, self._receive_buffers = buffer, ring

    @property
    def __array_interface__(self) -> dict[str, Any]:
        c_bytes = self.buffer.c_bytes
        return {
            'version': 3,
            'shape': (c_bytes.capacity,),
            'typestr': '|u1',
            'data': (c_bytes.buffer, True),
        }

    def __del__(self) -> None:
        self._receive_buffers.give_back(self.buffer)


class _Buffer:
    """Owns page-aligned memory that grows to the largest message."""

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
        self._allocate(nbytes)

    def offer(self) -> None:
        """Show the middleware all of the memory; else it knows what it asked for last."""
        self.c_bytes.buffer, self.c_bytes.capacity = self._memory.ctypes.data, self._memory.size

    def expose(self) -> int:
        """Let the message be read; return its size."""
        if not self._is_registered:
            self._hooks.register(self._memory)
            self._is_registered = True
        return int(self.c_bytes.length)

    def close(self) -> None:
        self._unregister()
        self.c_bytes.allocator = _Allocator()  # Its callbacks hold this buffer.

    def _unregister(self) -> None:
        if self._is_registered:
            self._is_registered = False
            self._hooks.unregister(self._memory)

    def _allocate(self, nbytes: int) -> None:
        self._memory = whole_pages(nbytes)

    def _reallocate(self, pointer: int | None, nbytes: int, state: int | None) -> int | None:
        """Grow; Cyclone DDS calls this for each message, others for one that is too large."""
        try:
            old = self._memory
            if pointer != old.ctypes.data:
                return None
            if nbytes <= old.size:
                return pointer
            self._unregister()
            self._allocate(nbytes)
            kept = min(old.size, self._memory.size)
            self._memory[:kept] = old[:kept]
            return int(self._memory.ctypes.data)
        except Exception:  # It cannot pass through the middleware, which will say: no memory.
            traceback.print_exc()
            return None
