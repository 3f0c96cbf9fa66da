"""Frames whose network runs on an inference server."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from trt_ros.results.base import Result
from trt_ros.runtime.cpu.frame_runner import StepByStep
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.future import Future
from trt_ros.runtime.remote.remote_runner import RemoteRunner
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

ResultT = TypeVar('ResultT', bound=Result)


class RemoteFrames(StepByStep[ResultT]):
    """
    A StepByStep whose submitted frames run at the same time. Owns the runner.

    :param runner: its `in_flight` is the number of submitted requests that run at a time.
    """

    def __init__(self, runner: RemoteRunner, fitted: ResolvedModel[ResultT], batch: int) -> None:
        super().__init__(runner, fitted, min(batch, runner.max_batch or batch))
        self._threads = ThreadPoolExecutor(runner.in_flight, thread_name_prefix='inference server')

    def submit(self, frames: Sequence[Frame], thresholds: Thresholds) -> Future[Sequence[ResultT]]:
        """Preprocess images and start a run; see FrameRunner.submit."""
        if not self.is_one_image:
            return super().submit(frames, thresholds)
        inputs = self.preprocess_all(frames)
        pending = self._threads.submit(self._run_tensors, *inputs, thresholds)
        return Future(pending.result, pending.done)

    def close(self) -> None:
        """Close the network, which ends its requests; may be called twice."""
        super().close()
        self._threads.shutdown()
