"""Subscription to TensorList messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial

import numpy as np
from std_msgs.msg import Header

from trt_ros.ros.dds.cdr_tensors import read_tensor_list
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.diagnostics import QUEUE_AGE, FrameCounts, LatencyMeter
from trt_ros.ros.images import dropping, subscribe_input, wait_for_input
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.worker import REPLACED, UNWANTED, NewestWorker


class TensorStream:
    """
    A subscription to `tensors` that processes the newest TensorList, like ImageStream.

    :param handle: called with the header and the tensors by name: views into the message.
    :param is_wanted: evaluated for each message; must not raise.
    """

    def __init__(
        self,
        node: ManagedNode,
        message_type: type,
        counts: FrameCounts,
        handle: Callable[[Header, Mapping[str, np.ndarray]], None],
        *,
        is_wanted: Callable[[], bool],
    ) -> None:
        self._node, self._counts, self._handle_tensors = node, counts, handle
        self._is_wanted = is_wanted
        self._latency = LatencyMeter(node, counts)
        with ExitStack() as undo:
            self._worker = undo.enter_context(
                closing(
                    NewestWorker(
                        self._handle,
                        counts.drop,
                        on_taken=partial(counts.took, QUEUE_AGE),
                        max_rate_hz=lambda: node.parameters.max_rate_hz,
                    )
                )
            )
            wait_for_input(node, ['tensors'])
            undo.enter_context(
                closing(
                    subscribe_input(
                        node,
                        message_type,
                        'tensors',
                        MessageCallbacks(
                            self._receive, on_replaced=self._replace, on_missed=counts.miss
                        ),
                    )
                )
            )
            self._owned = undo.pop_all()

    def close(self) -> None:
        """Stop receiving, then wait for the tensors in progress."""
        self._owned.close()

    def _receive(self, message: np.ndarray) -> None:
        self._counts.receive()
        if self._is_wanted():
            self._worker.put(message)
        else:
            self._counts.drop(UNWANTED)

    def _replace(self) -> None:
        self._counts.receive()
        self._counts.drop(REPLACED)

    def _handle(self, message: np.ndarray) -> None:
        with dropping(self._node, self._counts):
            found = read_tensor_list(message)
            header = Header(frame_id=found.frame_id)
            header.stamp.sec, header.stamp.nanosec = found.stamp
            self._handle_tensors(header, found.tensors)
            self._latency.done(found.stamp)
