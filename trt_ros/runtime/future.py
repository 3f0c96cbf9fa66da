"""Results that are still being computed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
import logging
import threading
from typing import Any, Generic, TypeVar

from trt_ros.errors import ParameterError

log = logging.getLogger('trt_ros.runtime')

ValueT_co = TypeVar('ValueT_co', covariant=True)
MappedT = TypeVar('MappedT')


class Future(Generic[ValueT_co]):
    """
    A submitted run, which occupies its frame slot until the result is collected.

    `result`, a callback and `await` collect it.

    :param collect: waits and returns the result; called once.
    :param is_done: returns whether `collect` would not wait.
    """

    _is_collected = False

    def __init__(
        self, collect: Callable[[], ValueT_co], is_done: Callable[[], bool] = lambda: True
    ) -> None:
        self._collect: Callable[[], ValueT_co] | None = collect
        self._is_done, self._collecting = is_done, threading.Lock()
        self._value: ValueT_co | None = None
        self._error: BaseException | None = None

    def result(self) -> ValueT_co:
        """Wait and return the result, always the same one; GpuFailedError if the GPU failed."""
        with self._collecting:
            collect, self._collect = self._collect, None
            if collect is not None:
                try:
                    self._value = collect()
                except BaseException as error:
                    self._error = error
                self._is_collected = True
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def done(self) -> bool:
        """Return whether `result` would not wait."""
        return self._is_collected or self._is_done()

    def add_done_callback(self, callback: Callable[[Future[ValueT_co]], None]) -> None:
        """Collect the result on another thread and call `callback` there, with this future."""
        if not callable(callback):
            raise ParameterError(
                f'The callback is {callback!r}.', remedy='Pass a function that takes the future.'
            )
        _threads().submit(self._call, callback)

    def _call(self, callback: Callable[[Future[ValueT_co]], None]) -> None:
        try:
            self.result()
        except Exception:
            log.debug('A submitted run failed.', exc_info=True)  # `callback` gets it, too.
        try:
            callback(self)
        except Exception:
            log.exception('The callback of a future failed.')

    def __await__(self) -> Generator[Any, None, ValueT_co]:
        import asyncio  # Only where it is imported already.

        return asyncio.get_running_loop().run_in_executor(None, self.result).__await__()

    def map(self, function: Callable[[ValueT_co], MappedT]) -> Future[MappedT]:
        """Return a future of what `function` returns for the result."""
        return Future(lambda: function(self.result()), self.done)


class Finished(Future[ValueT_co]):
    """A run that has ended."""

    _is_collected = True

    def __init__(self, value: ValueT_co) -> None:
        self._value = value

    def result(self) -> ValueT_co:
        return self._value  # type: ignore[return-value]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, thread_name_prefix='results')
