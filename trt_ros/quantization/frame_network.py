"""Runs of a model on frames, with results and all outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.cpu.pipeline import WARM_UP_THRESHOLDS, CpuPipeline
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.runner import Runner
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds


class FrameNetwork:
    """A model that runs one frame at a time, with `extra_outputs`. Owns its session."""

    def __init__(
        self, model: Any, fitted: ResolvedModel[Any], extra_outputs: Sequence[str] = ()
    ) -> None:
        import onnx

        present = {value.name for value in model.graph.output}
        extra = [name for name in dict.fromkeys(extra_outputs) if name not in present]
        inputs = {value.name for value in model.graph.input}
        self._inputs = [name for name in extra if name in inputs]
        model.graph.output.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in extra
            if name not in inputs
        )
        try:
            with TemporaryDirectory(prefix='trt_ros') as folder:
                path = Path(folder) / 'model.onnx'
                onnx.save(model, str(path))
                runner = OnnxRuntimeRunner.open(path, exact_qdq=True)
        finally:
            del model.graph.output[len(present) :]
        self._open(runner, fitted)

    @classmethod
    def of_runner(cls, runner: Runner, fitted: ResolvedModel[Any]) -> FrameNetwork:
        """Run a model that is open already; the runner is closed with this."""
        network = cls.__new__(cls)
        network._inputs = []
        network._open(runner, fitted)
        return network

    def _open(self, runner: Runner, fitted: ResolvedModel[Any]) -> None:
        self._recorder = _Recorder(runner)
        self._steps = CpuPipeline[Any](self._recorder, fitted)

    def run(self, frame: Frame, thresholds: Thresholds) -> tuple[Any, dict[str, np.ndarray]]:
        """Return the task's result, and all outputs by name, with the extra ones."""
        result = self._steps.infer(frame, thresholds)
        tensors, outputs = self._recorder.last
        return result, {**outputs, **{name: tensors[name] for name in self._inputs}}

    def inputs_of(self, frame: Frame) -> dict[str, np.ndarray]:
        """Return the inputs of the network for a frame."""
        self.run(frame, WARM_UP_THRESHOLDS)
        return self._recorder.last[0]

    def __enter__(self) -> FrameNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self._steps.close()


class _Recorder(Runner):
    def __init__(self, runner: Runner) -> None:
        self._runner, self.backend = runner, runner.backend
        self.inputs, self.outputs, self.metadata = runner.inputs, runner.outputs, runner.metadata
        self.last: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = ({}, {})

    def infer(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        # Copied, since TensorRT's are overwritten by the next run.
        outputs = {name: np.array(each) for name, each in self._runner.infer(tensors).items()}
        self.last = dict(tensors), outputs
        return outputs

    def close(self) -> None:
        self._runner.close()
