"""Matching of messages of several topics: by stamp, or sampled at a rate."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from trt_ros.ros.worker import REPLACED

T = TypeVar('T')

#: Causes of dropped messages.
NO_PARTNER = 'no partner'
LATE = 'older than the last set'
DUPLICATE = 'duplicate stamp'
TOO_OLD = 'older than max_age'
AHEAD = 'ahead of the clock'
JUMPED = 'time jumped back'

#: A stamp this much older than the newest of its topic is a jump of time, not a late message.
MAX_REORDERING_NS = 1_000_000_000


class Queue(Generic[T]):
    """The messages of one topic that wait for partners, by ascending stamp."""

    def __init__(self) -> None:
        self.stamps: list[int] = []
        self.messages: list[T] = []
        self.last_used: int | None = None  # Stamp of the message in the last set.
        self.newest: int | None = None

    def insert(self, stamp: int, message: T) -> None:
        """Insert a message of a new stamp."""
        index = bisect_left(self.stamps, stamp)
        self.stamps.insert(index, stamp)
        self.messages.insert(index, message)

    def take(self, stamp: int) -> tuple[T, int]:
        """Remove a message and all older ones; return it and the number of the others."""
        index = self.stamps.index(stamp)
        message = self.messages[index]
        del self.stamps[: index + 1], self.messages[: index + 1]
        self.last_used = stamp
        return message, index


class Matcher(Generic[T]):
    """
    A matcher of the messages of several topics by stamp; not thread-safe.

    With one topic, each message is a set. Otherwise, a set has one message of each topic, with
    stamps at most `tolerance_ns` apart; each message is in one set at most. The sets are in the
    order of the stamps: messages older than those of a set are dropped with it. Of several
    possible sets with a new message, the one whose stamps are closest together is chosen, then
    the newest.

    :param topics: number of topics.
    :param queue_size: maximum number of messages per topic that wait for partners.
    :param tolerance_ns: 0 matches equal stamps only.
    :param on_drop: called with the index of the topic and the cause for each dropped message.
    """

    def __init__(
        self,
        topics: int,
        on_drop: Callable[[int, str], object],
        *,
        queue_size: int,
        tolerance_ns: int = 0,
    ) -> None:
        self._queues = [Queue[T]() for _ in range(topics)]
        self._on_drop = on_drop
        self._queue_size, self._tolerance_ns = queue_size, tolerance_ns

    def add(self, topic: int, stamp: int, message: T) -> tuple[T, ...] | None:
        """Add a message, stamp in nanoseconds; return the set it completes, in order of topics."""
        if len(self._queues) == 1:
            self._queues[0].newest = stamp
            return (message,)
        queue = self._queues[topic]
        if queue.newest is None or stamp > queue.newest:
            queue.newest = stamp
        if stamp in queue.stamps or stamp == queue.last_used:
            self._on_drop(topic, DUPLICATE)
            return None
        if queue.last_used is not None and stamp < queue.last_used:
            self._on_drop(topic, LATE)
            return None
        queue.insert(stamp, message)
        stamps = self._closest(topic, stamp)
        if stamps is not None:
            return tuple(self._take(index, each) for index, each in enumerate(stamps))
        if len(queue.stamps) > self._queue_size:
            del queue.stamps[0], queue.messages[0]
            self._on_drop(topic, NO_PARTNER)
        return None

    def is_jump(self, topic: int, stamp: int) -> bool:
        """Return whether a stamp is so old that time was set back; call clear() then."""
        newest = self._queues[topic].newest
        return newest is not None and stamp < newest - MAX_REORDERING_NS

    def clear(self, cause: str) -> None:
        """Drop all waiting messages and forget all stamps."""
        for topic, queue in enumerate(self._queues):
            for _ in queue.messages:
                self._on_drop(topic, cause)
        self._queues = [Queue[T]() for _ in self._queues]

    def _take(self, topic: int, stamp: int) -> T:
        message, older = self._queues[topic].take(stamp)
        for _ in range(older):
            self._on_drop(topic, NO_PARTNER)
        return message

    def _closest(self, topic: int, stamp: int) -> list[int] | None:
        """Return the stamps of the best set with a new message, by topic; None if none fits."""
        windows = [
            [stamp]
            if index == topic
            else [each for each in queue.stamps if abs(each - stamp) <= self._tolerance_ns]
            for index, queue in enumerate(self._queues)
        ]
        best: list[int] | None = None
        # The closest set that begins at `oldest`; of equally close ones, the last is newest.
        for oldest in sorted({each for window in windows for each in window if each <= stamp}):
            if not all(window and window[-1] >= oldest for window in windows):
                break
            stamps = [window[bisect_left(window, oldest)] for window in windows]
            if max(stamps) - oldest <= self._tolerance_ns and (
                best is None or max(stamps) - oldest <= max(best) - min(best)
            ):
                best = stamps
        return best


class Sampler(Generic[T]):
    """
    The newest message of several topics, sampled at times of the caller; not thread-safe.

    A message may be in several samples.

    :param max_ages_ns: maximum age of a sampled message per topic, and maximum time by which its
        stamp is ahead, since the age of such a message is unknown; None sets no limit.
    :param on_drop: called with the index of the topic and the cause for each message that was in
        no sample.
    """

    def __init__(
        self, max_ages_ns: Sequence[int | None], on_drop: Callable[[int, str], object]
    ) -> None:
        self._max_ages_ns, self._on_drop = tuple(max_ages_ns), on_drop
        self._newest: list[tuple[int, T] | None] = [None] * len(self._max_ages_ns)
        self._is_used = [False] * len(self._max_ages_ns)

    def add(self, topic: int, stamp: int, message: T) -> None:
        """Replace the message of a topic, unless the present one is newer; drop the older."""
        present = self._newest[topic]
        if present is not None and stamp < present[0]:
            self._on_drop(topic, LATE)
            return
        if present is not None and not self._is_used[topic]:
            self._on_drop(topic, REPLACED)
        self._newest[topic], self._is_used[topic] = (stamp, message), False

    def is_jump(self, topic: int, stamp: int) -> bool:
        """Return whether a stamp is so old that time was set back; call clear() then."""
        present = self._newest[topic]
        return present is not None and stamp < present[0] - MAX_REORDERING_NS

    def sample(self, now: int) -> tuple[T, ...] | None:
        """Return the newest messages, or None while one is missing or too old; `now` in ns."""
        for topic, (present, max_age) in enumerate(zip(self._newest, self._max_ages_ns)):
            if present is not None and max_age is not None and abs(now - present[0]) > max_age:
                self._forget(topic, TOO_OLD if present[0] < now else AHEAD)
        found = [present[1] for present in self._newest if present is not None]
        if len(found) < len(self._newest):
            return None
        self._is_used = [True] * len(found)
        return tuple(found)

    def clear(self, cause: str) -> None:
        """Drop all messages."""
        for topic in range(len(self._newest)):
            self._forget(topic, cause)

    def _forget(self, topic: int, cause: str) -> None:
        if self._newest[topic] is not None and not self._is_used[topic]:
            self._on_drop(topic, cause)
        self._newest[topic], self._is_used[topic] = None, False
