"""Agreement of a network's outputs and boxes with those of a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trt_ros.results.boxes import Detections
from trt_ros.tensors import Arrays
from trt_ros.vision.nms import iou, partners


@dataclass
class Agreement:
    """
    Agreement of one output over all inputs so far; errors are over values finite on both sides.

    :param non_finite_here: number of NaN and Inf values of the engine.
    :param non_finite_reference: number of NaN and Inf values of the reference.
    :param non_finite_differences: number of values that are NaN or Inf, and not the same in both.
    :param shapes: shapes that differed, '' where all were equal.
    """

    max_error: float = 0.0
    mean_error: float = 0.0
    largest: float = 0.0
    cosine: float = 1.0
    non_finite_here: int = 0
    non_finite_reference: int = 0
    non_finite_differences: int = 0
    shapes: str = ''

    @classmethod
    def of(cls, got: np.ndarray, want: np.ndarray) -> Agreement:
        """Compare the outputs of one input."""
        a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
        found = cls(
            non_finite_here=int((~np.isfinite(a)).sum()),
            non_finite_reference=int((~np.isfinite(b)).sum()),
        )
        if got.shape != want.shape:
            found.shapes = f'shape {got.shape} here, {want.shape} in ONNX Runtime'
            return found
        both = np.isfinite(a) & np.isfinite(b)
        same = np.isclose(a[~both], b[~both], equal_nan=True)
        found.non_finite_differences = int((~same).sum())
        a, b = a[both], b[both]
        if not a.size:
            return found
        error = np.abs(a - b)
        found.max_error, found.mean_error = float(error.max()), float(error.mean())
        found.largest = float(np.abs(b).max())
        # Scaled, so that no square of a float64 overflows.
        unit = max(found.largest, float(np.abs(a).max())) or 1.0
        a, b = a / unit, b / unit
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        # Two outputs of zeros agree.
        found.cosine = float(a @ b) / size if size else float(not error.any())
        return found

    def add(self, other: Agreement) -> None:
        """Add the agreement on another input; the largest errors of all inputs count."""
        self.max_error = max(self.max_error, other.max_error)
        self.mean_error = max(self.mean_error, other.mean_error)
        self.largest = max(self.largest, other.largest)
        self.cosine = min(self.cosine, other.cosine)
        self.non_finite_here += other.non_finite_here
        self.non_finite_reference += other.non_finite_reference
        self.non_finite_differences += other.non_finite_differences
        self.shapes = other.shapes or self.shapes

    def problem(self, min_cosine: float, *, of_layer: bool = False) -> str:
        """
        Return why the outputs do not agree, '' where they do.

        :param of_layer: whether Inf in both, such as that of an attention mask, is equal.
        """
        is_broken = self.non_finite_here or self.non_finite_reference
        if self.non_finite_differences if of_layer else is_broken:
            return (
                f'{self.non_finite_here} values are NaN or Inf here, '
                f'{self.non_finite_reference} in ONNX Runtime'
            )
        if self.shapes or self.cosine >= min_cosine:  # A NaN compares false, so it fails.
            return self.shapes
        return f'cosine {self.cosine:.6f} is below {min_cosine:g}'

    @property
    def overflows_here_only(self) -> bool:
        """Whether only the engine has non-finite values."""
        return bool(self.non_finite_here and not self.non_finite_reference)


def agreements(got: Arrays, want: Arrays) -> dict[str, Agreement]:
    """Compare the outputs of one input, by the names of the reference's outputs."""
    return {name: Agreement.of(got[name], expected) for name, expected in want.items()}


@dataclass
class BoxAgreement:
    """Agreement of boxes: how many each side has, and how many of them match."""

    ours: int = 0
    reference: int = 0
    matched: int = 0
    min_iou: float = 1.0

    @classmethod
    def of(cls, got: Detections, want: Detections) -> BoxAgreement:
        """Compare the boxes of one input; a box matches one of its class with an IoU of 0.5."""
        likeness = iou(want.xyxy[:, None], got.xyxy) * (want.labels[:, None] == got.labels)
        columns = partners(likeness)
        overlaps = likeness[columns >= 0, columns[columns >= 0]]
        return cls(len(got), len(want), len(overlaps), float(overlaps.min(initial=1.0)))

    def add(self, other: BoxAgreement) -> None:
        """Add the boxes of another input."""
        self.ours += other.ours
        self.reference += other.reference
        self.matched += other.matched
        self.min_iou = min(self.min_iou, other.min_iou)

    @property
    def share(self) -> float:
        """Matched fraction; boxes that only one side has count as not matched."""
        largest = max(self.ours, self.reference)
        return self.matched / largest if largest else 1.0

    def as_dict(self) -> dict[str, float]:
        """Return the values for printing."""
        return {
            'ours': self.ours,
            'reference': self.reference,
            'matched': self.share,
            'min_iou': self.min_iou,
        }


@dataclass
class InputAgreement:
    """Agreement on one named input; `boxes` is None where the network has none."""

    name: str
    outputs: dict[str, Agreement] = field(default_factory=dict)
    boxes: BoxAgreement | None = None

    @property
    def cosine(self) -> float:
        """Lowest cosine similarity of an output."""
        return min((each.cosine for each in self.outputs.values()), default=1.0)

    @property
    def rank(self) -> tuple[int, float, float]:
        """Sort key; the worst input has the lowest."""
        broken = sum(
            each.non_finite_here + each.non_finite_reference + bool(each.shapes)
            for each in self.outputs.values()
        )
        return -broken, self.boxes.share if self.boxes else 1.0, self.cosine

    def as_dict(self) -> dict[str, Any]:
        """Return the values for printing."""
        return {
            'name': self.name,
            'cosine': self.cosine,
            'max_error': max((each.max_error for each in self.outputs.values()), default=0.0),
            'non_finite_here': sum(each.non_finite_here for each in self.outputs.values()),
            **({'boxes_matched': self.boxes.share} if self.boxes else {}),
        }

    def __str__(self) -> str:
        broken = sum(each.non_finite_here for each in self.outputs.values())
        return (
            f'{self.name} (cosine {self.cosine:.6f}'
            + (f', {broken} values NaN or Inf' if broken else '')
            + (f', {self.boxes.share:.1%} of boxes matched' if self.boxes else '')
            + ')'
        )


def statistics(inputs: Sequence[InputAgreement]) -> dict[str, float]:
    """Return the distribution over the inputs: lowest value, 5th percentile and median."""
    found: dict[str, float] = {'inputs': len(inputs)}
    values = {'cosine': [each.cosine for each in inputs]}
    values['boxes_matched'] = [each.boxes.share for each in inputs if each.boxes]
    for name, per_input in values.items():
        if per_input:
            low, median = np.percentile(per_input, [5, 50])
            found |= {
                f'{name}_min': min(per_input),
                f'{name}_p5': float(low),
                f'{name}_median': float(median),
            }
    return found
