"""Runs of a model on frames, and the agreement of results with those of the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import singledispatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from trt_ros.errors import ModelError
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.results.classes import Classification
from trt_ros.results.masks import ClassMask
from trt_ros.runtime.agreement import Agreement, BoxAgreement, agreements
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.cpu.pipeline import WARM_UP_THRESHOLDS, CpuPipeline
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.runner import CopyingRunner, Runner
from trt_ros.tensors import Arrays
from trt_ros.vision.average_precision import average_precisions
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds


class FrameNetwork:
    """A model that runs one frame at a time, and also returns `inputs`. Owns its runner."""

    def __init__(
        self, runner: Runner, fitted: ResolvedModel[Any], inputs: Sequence[str] = ()
    ) -> None:
        self._recorder, self._inputs = _Recorder(runner), inputs
        self._steps = CpuPipeline[Any](self._recorder, fitted)

    @classmethod
    def open(
        cls, model: Any, fitted: ResolvedModel[Any], extra_outputs: Sequence[str] = ()
    ) -> FrameNetwork:
        """Open a ModelProto with more outputs in ONNX Runtime."""
        present = {value.name for value in model.graph.output}
        inputs = {value.name for value in model.graph.input}
        extra = [name for name in dict.fromkeys(extra_outputs) if name not in present]
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
        return cls(runner, fitted, [name for name in extra if name in inputs])

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


class _Recorder(CopyingRunner):
    last: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = ({}, {})

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        self.last = dict(tensors), super().infer(tensors)
        return self.last[1]


LOW_SCORE = 0.05  # Scores of the quantized network down to which the precision is averaged.


@dataclass
class ResultAgreement:
    """
    Agreement over all frames.

    :param metric: 'mAP50 against the original', 'equal best class', 'equal pixels' or 'cosine of
        outputs'.
    :param value: 1 for equal results, 0 where NaN or Inf are not those of the original.
    :param boxes: None for tasks without boxes.
    """

    metric: str
    value: float
    outputs: dict[str, Agreement] = field(default_factory=dict)
    boxes: BoxAgreement | None = None

    @property
    def drop(self) -> float:
        """Distance from equal results."""
        return 1.0 - self.value

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {
            'metric': self.metric,
            'value': self.value,
            'outputs': {name: asdict(each) for name, each in self.outputs.items()},
            **({'boxes': self.boxes.as_dict()} if self.boxes else {}),
        }

    def __str__(self) -> str:
        cosine = min((each.cosine for each in self.outputs.values()), default=1.0)
        text = f'{self.metric} {self.value:.4f}, lowest cosine of outputs {cosine:.6f}'
        bad = sum(each.non_finite_differences for each in self.outputs.values())
        if bad:
            text += f', {bad} values differ by NaN or Inf'
        if self.boxes:
            text += (
                f', boxes {self.boxes.ours} (original {self.boxes.reference}), '
                f'{self.boxes.share:.1%} matched'
            )
        return text


class Evaluation:
    """Frames with the results of the original, whose boxes from `score` count as true."""

    def __init__(self, original: FrameNetwork, frames: Sequence[Frame], score: float) -> None:
        self._score, self.frames = score, frames
        self._thresholds = Thresholds(score=score, max_detections=300)
        self._wanted = [original.run(frame, self._thresholds) for frame in frames]
        for _, tensors in self._wanted:
            bad = [name for name, each in tensors.items() if np.isnan(each).any()]
            if bad:
                raise ModelError(
                    f'The original network computes NaN in {", ".join(bad)}.',
                    cause='ONNX Runtime ran it on the images of the calibration, in float32.',
                    remedy='Check the preprocessing with `trt-ros verify MODEL IMAGES --picture '
                    'seen.png`, or export the network again.',
                )

    def agreement(self, network: FrameNetwork) -> ResultAgreement:
        """Run a network on all frames and compare its results and outputs."""
        low = Thresholds(score=min(LOW_SCORE, self._score), max_detections=300)
        pairs = []
        outputs: dict[str, Agreement] = {}
        for frame, (wanted, tensors) in zip(self.frames, self._wanted):
            result, got = network.run(frame, low)
            pairs.append((result, wanted))
            for name, each in agreements(got, tensors).items():
                outputs.setdefault(name, Agreement()).add(each)
        metric, value = _compare(pairs[0][1], pairs)
        if np.isnan(value):
            cosines = [each.cosine for each in outputs.values()]
            metric, value = 'cosine of outputs', min(cosines, default=1.0)
        if any(each.non_finite_differences for each in outputs.values()):
            value = 0.0
        return ResultAgreement(metric, float(value), outputs, self._boxes(pairs))

    def _boxes(self, pairs: Sequence[tuple[Any, Any]]) -> BoxAgreement | None:
        if not isinstance(pairs[0][1], Objects):
            return None
        total = BoxAgreement()
        for got, want in pairs:
            found = got.detections
            total.add(BoxAgreement.of(found[found.scores >= self._score], want.detections))
        return total


@singledispatch
def _compare(wanted: Result, pairs: Sequence[tuple[Any, Any]]) -> tuple[str, float]:
    """Return the metric for results of this class and its value; NaN where there is none."""
    return '', float('nan')


@_compare.register
def _(wanted: Objects, pairs: Sequence[tuple[Any, Any]]) -> tuple[str, float]:
    found = [(got.detections, want.detections) for got, want in pairs]
    count = 1 + max((int(want.labels.max(initial=-1)) for _, want in found), default=-1)
    precisions = average_precisions(
        ((got, want.xyxy, want.labels) for got, want in found), class_count=count
    )
    true = precisions[~np.isnan(precisions)]
    return 'mAP50 against the original', float(true.mean()) if true.size else float('nan')


@_compare.register
def _(wanted: Classification, pairs: Sequence[tuple[Any, Any]]) -> tuple[str, float]:
    equal = [got.top(1)[0] == want.top(1)[0] for got, want in pairs]
    return 'equal best class', float(np.mean(equal))


@_compare.register
def _(wanted: ClassMask, pairs: Sequence[tuple[Any, Any]]) -> tuple[str, float]:
    equal = [np.mean(got.labels == want.labels) for got, want in pairs]
    return 'equal pixels', float(np.mean(equal))
