"""Frames whose network runs on an inference server."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from trt_ros.model.run_inputs import NO_TENSORS
from trt_ros.results.base import Result
from trt_ros.runtime.cpu.pipeline import CpuPipeline
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.future import Future
from trt_ros.runtime.remote.remote_runner import RemoteRunner
from trt_ros.tensors import Arrays
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

ResultT = TypeVar('ResultT', bound=Result)


class RemotePipeline(CpuPipeline[ResultT]):
    """A CpuPipeline that owns the runner and submits its `in_flight` requests at a time."""

    def __init__(self, runner: RemoteRunner, fitted: ResolvedModel[ResultT], batch: int) -> None:
        super().__init__(runner, fitted, min(batch, runner.max_batch or batch))
        self._threads = ThreadPoolExecutor(runner.in_flight, thread_name_prefix='inference server')

    def submit_run(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays = NO_TENSORS
    ) -> Future[list[ResultT]]:
        if self._memory_feeds:  # In order.
            return self.start(frames, thresholds, tensors)
        pending = self._threads.submit(
            self._run, *self.stage(frames, tensors), thresholds, tensors
        )
        return Future(pending.result, pending.done)

    def _close(self) -> None:
        super()._close()
        self._threads.shutdown()
