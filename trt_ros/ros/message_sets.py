"""Sets of messages of several topics, and the counters of messages that are in none."""

from collections.abc import Callable, Sequence
import threading
from typing import Generic, TypeVar

from rclpy.clock import JumpThreshold
from rclpy.duration import Duration

from trt_ros.profiling import mark
from trt_ros.ros.codecs.codec import Stamp
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.sync import AHEAD, DUPLICATE, JUMPED, LATE, NO_PARTNER, TOO_OLD, Matcher, Sampler
from trt_ros.ros.topic import Dropping, Topic
from trt_ros.ros.worker import RESET, STOPPED

T = TypeVar('T')

#: Any step back of the clock, as when a bag is played again.
JUMP_BACK = JumpThreshold(
    min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=True
)
#: What to do against dropped messages, by cause.
REMEDIES = {
    DUPLICATE: 'publish each message with a stamp of its own in header.stamp.',
    LATE: 'publish the messages of each topic in the order of their stamps.',
    TOO_OLD: 'publish more often, set header.stamp, use the same clock, or raise max_age in '
    'inputs.',
    AHEAD: 'set the clocks of both machines by NTP or PTP, or use_sim_time for a bag.',
}


class MessageSets(Generic[T]):
    """
    The messages of several topics that wait for their sets, until close(); thread-safe.

    They meet by stamp or are sampled. Each message without a set is counted by its cause, and
    logged if the user can act on it. A jump of time back drops all that wait.

    :param on_set: called with one message of each topic, one set at a time; must not raise. What
        it returns is called without the lock.
    :param queue_size: as for Matcher; so is `tolerance_ns`.
    :param is_sampled: whether they are sampled, up to the `max_age` of their topics.
    :param primary: index of the topic that an error with a set is logged for.
    :ivar epoch: number of times that all waiting messages were dropped.
    """

    def __init__(
        self,
        node: ManagedNode,
        topics: Sequence[Topic],
        on_set: Callable[[tuple[T, ...]], Callable[[], None] | None],
        *,
        queue_size: int,
        tolerance_ns: int = 0,
        is_sampled: bool = False,
        primary: int = 0,
    ) -> None:
        self._node, self._on_set = node, on_set
        self._names = [node.resolve_topic_name(topic.codec.topic) for topic in topics]
        self._counts = [topic.counts for topic in topics]
        origins = [f' of {name}' for name in self._names]
        others = [each for each in self._counts if each is not self._counts[primary]]
        self._dropping = {
            number: Dropping(node, self._counts[primary], origin, others)
            for number, origin in [*enumerate(origins), (None, ' and'.join(origins))]
        }
        self._waiting: Matcher[T] | Sampler[T] = Matcher(
            len(topics), self._drop, queue_size=queue_size, tolerance_ns=tolerance_ns
        )
        if is_sampled:
            ages = (topic.max_age for topic in topics)
            ages_ns = [None if age is None else round(1e9 * age) for age in ages]
            self._waiting = Sampler(ages_ns, self._drop)
        self._lock = threading.Lock()  # For `_waiting`, epoch and the order of the sets.
        self.epoch = 0
        self._has_met = False
        self._clock_watch = node.get_clock().create_jump_callback(
            JUMP_BACK, post_callback=lambda _: self.reset(JUMPED)
        )

    def close(self) -> None:
        """Drop all waiting messages; the subscriptions are closed before."""
        self._clock_watch.unregister()
        self.reset(STOPPED)

    def reset(self, cause: str = RESET) -> None:
        """Drop all waiting messages."""
        with self._lock:
            self._clear(cause)

    def add(self, number: int, stamp: Stamp, message: T) -> None:
        """Add a message of topic `number`; call `on_set` if it completes a set."""
        stamp_ns = 1_000_000_000 * stamp[0] + stamp[1]
        with self._lock:
            if self._waiting.is_jump(number, stamp_ns):
                self._clear(JUMPED)
            found = self._waiting.add(number, stamp_ns, message)
            self._has_met |= found is not None
            process = None if found is None else self._on_set(found)
        if process is not None:
            process()

    def sample(self) -> None:
        """Call `on_set` with the newest messages, unless one is missing or too old."""
        assert isinstance(self._waiting, Sampler)
        now_ns = self._node.now_ns()
        with self._lock, mark('sample'):
            found = self._waiting.sample(now_ns)
            process = None if found is None else self._on_set(found)
        if process is not None:
            process()

    def drop_all(self, cause: str) -> None:
        """Count a set that is dropped without an error."""
        for counts in self._counts:
            counts.drop(cause)

    def publish_all(self) -> None:
        """Count a set whose result is published."""
        for counts in self._counts:
            counts.publish()

    def dropping(self, number: int | None = None) -> Dropping:
        """Return what turns an exception, maybe due to topic `number`, into a dropped set."""
        return self._dropping[number]

    def _clear(self, cause: str) -> None:
        self.epoch += 1
        self._waiting.clear(cause)

    def _drop(self, number: int, cause: str) -> None:
        if self._counts[number].drop(cause):
            self._node.get_logger().warning(
                f'Messages of {self._names[number]} are dropped: {cause}. '
                f'Remedy: {REMEDIES[cause]}'
            )
        elif not self._has_met and all(each.dropped[NO_PARTNER] for each in self._counts):
            self._node.get_logger().warning(
                f'No messages of {" and ".join(self._names)} have met. Cause: their stamps '
                'differ. Remedy: publish equal stamps or, where the node has it, set '
                'approximate_sync to true or raise its tolerance.',
                once=True,
            )
