"""Subscriptions and publishers of a node: checked times, and topics of one type."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
import re
from typing import Any

from rclpy.exceptions import InvalidTopicNameException
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode
from rclpy.parameter import Parameter
from rclpy.publisher import Publisher
from rclpy.subscription import Subscription
from rclpy.time_source import CLOCK_TOPIC

from trt_ros.errors import ParameterError
from trt_ros.ros.qos import type_name

_TOPIC = re.compile(r'[\w~/{}]+')


class EndpointNode(LifecycleNode):
    """A lifecycle node that refuses invalid times, and topics that have another type already."""

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callable, *args: Any, **kwargs: Any
    ) -> Subscription:
        """Create a subscription as rclpy does; that of rclpy to /clock gets valid times only."""
        if topic == CLOCK_TOPIC:
            callback = partial(self._set_clock, callback)
        with self._of_one_type(msg_type, topic):
            return super().create_subscription(msg_type, topic, callback, *args, **kwargs)

    def create_publisher(self, msg_type: Any, topic: str, *args: Any, **kwargs: Any) -> Publisher:
        """Create a publisher as rclpy does."""
        with self._of_one_type(msg_type, topic):
            return super().create_publisher(msg_type, topic, *args, **kwargs)

    def _set_clock(self, set_clock: Callable[[Any], None], message: Any) -> None:
        seconds, nanoseconds = message.clock.sec, message.clock.nanosec
        if seconds >= 0 and nanoseconds < 10**9:  # rclpy raises for others.
            set_clock(message)
            return
        self.get_logger().warning(
            f'An invalid time on {CLOCK_TOPIC} is ignored: {seconds} s, {nanoseconds} ns.',
            throttle_duration_sec=10.0,
        )

    @contextmanager
    def _of_one_type(self, msg_type: Any, topic: str) -> Iterator[None]:
        """Explain an error: middlewares refuse a second type of a topic in one process."""
        try:
            yield
        except rclpy_implementation.RCLError as error:
            name, wanted = self.resolve_topic_name(topic), type_name(msg_type)
            others = {
                f'{each.node_namespace.rstrip("/")}/{each.node_name} {verb} {each.topic_type}'
                for verb, find in (
                    ('publishes', self.get_publishers_info_by_topic),
                    ('subscribes to', self.get_subscriptions_info_by_topic),
                )
                for each in find(topic)
                if each.topic_type != wanted
            }
            if not others:
                raise
            given = ''.join(f', or the parameter {each}' for each in self._naming(name))
            raise ParameterError(
                f'The topic {name} cannot have messages of the type {wanted}.',
                cause=f'It has another type already: {"; ".join(sorted(others))}.',
                remedy=f'Correct the remapping of {topic!r}{given}.',
            ) from error

    def _naming(self, topic: str) -> list[str]:
        """Return the parameters with a list of topics that has this one, by its full name."""
        parameters: Any = self.get_parameters_by_prefix('')
        return [
            name
            for name, each in parameters.items()
            if each.type_ == Parameter.Type.STRING_ARRAY
            and topic in map(self._full_name, _TOPIC.findall(' '.join(each.value)))
        ]

    def _full_name(self, word: str) -> str:
        """Return the full name of a topic, as resolve_topic_name(); '' for another word."""
        with suppress(InvalidTopicNameException, RuntimeError):
            return str(self.resolve_topic_name(word))
        return ''
