"""Inputs of a node's network: the topics of a stream, and how their messages are run."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from std_msgs.msg import Header

from trt_ros.ros.lifecycle import Resources
from trt_ros.ros.topic import Topic
from trt_ros.runtime.future import Future


class NodeInputs(ABC):
    """
    The inputs of a node while it is configured; one subclass per way to run messages.

    :ivar topics: the topics, in the order of the values of a set.
    :ivar primary: index of the topic whose header the results have.
    :ivar log_lines: lines for the log.
    :cvar in_sets: as for TopicStream.
    :cvar has_state: whether a run needs the state of the previous one.
    """

    in_sets: ClassVar[bool] = True
    has_state = False
    primary = 0
    topics: Sequence[Topic]
    log_lines: Sequence[str] = ()

    def activate(self, while_active: Resources) -> None:
        """Acquire what is released after the stream."""
        return

    def complete(self, header: Header) -> Sequence[Any]:
        """Return what follows the values of a set; see TopicStream."""
        return ()

    @abstractmethod
    def start(self, sets: list[list[Any]]) -> Future[Sequence[Any]]:
        """Start a run of the values of each set, which has one result per set."""

    @abstractmethod
    def publish(self, number: int, result: Any, header: Header, values: list[Any]) -> None:
        """Publish a result of the topic of this number."""

    @abstractmethod
    def ignored_parameters(self) -> set[str]:
        """Return the names of parameters that have no effect on these inputs."""

    def why_no_result(self) -> str:
        """Return the likely reason why messages arrive, but no result; '' if unknown."""
        return ''
