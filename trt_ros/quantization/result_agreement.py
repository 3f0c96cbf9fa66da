"""Agreement of a quantized network's results with those of the original."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np

from trt_ros.errors import ModelError
from trt_ros.quantization.frame_network import FrameNetwork
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.results.classes import Classification
from trt_ros.results.masks import ClassMask
from trt_ros.runtime.agreement import Agreement, BoxAgreement, agreements
from trt_ros.vision.average_precision import average_precisions
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

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
