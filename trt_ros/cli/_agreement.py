"""Agreement of a network's outputs with those of a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass
class Agreement:
    """
    Agreement of one output over all inputs so far; errors are over values finite on both sides.

    :param non_finite_here: number of NaN and Inf values of the engine.
    :param non_finite_reference: number of NaN and Inf values of the reference.
    :param shapes: shapes that differed, '' where all were equal.
    """

    max_error: float = 0.0
    mean_error: float = 0.0
    largest: float = 0.0
    cosine: float = 1.0
    non_finite_here: int = 0
    non_finite_reference: int = 0
    shapes: str = ''

    def add(self, got: np.ndarray, want: np.ndarray) -> None:
        """Add the outputs of one more input; the largest error of all inputs counts."""
        a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
        self.non_finite_here += int((~np.isfinite(a)).sum())
        self.non_finite_reference += int((~np.isfinite(b)).sum())
        if got.shape != want.shape:
            self.shapes = f'shape {got.shape} here, {want.shape} in ONNX Runtime'
            return
        both = np.isfinite(a) & np.isfinite(b)
        a, b = a[both], b[both]
        if not a.size:
            return
        error = np.abs(a - b)
        largest = float(np.abs(b).max())
        # Scaled, so that no square of a float64 overflows.
        unit = max(largest, float(np.abs(a).max())) or 1.0
        a, b = a / unit, b / unit
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        # Two outputs of zeros agree.
        cosine = float(a @ b) / size if size else float(not error.any())
        self.max_error = max(self.max_error, float(error.max()))
        self.mean_error = max(self.mean_error, float(error.mean()))
        self.largest = max(self.largest, largest)
        self.cosine = min(self.cosine, cosine)

    def problem(self, min_cosine: float) -> str:
        """Return why the outputs do not agree, '' where they do."""
        if self.non_finite_here or self.non_finite_reference:
            return (
                f'{self.non_finite_here} values are NaN or Inf here, '
                f'{self.non_finite_reference} in ONNX Runtime'
            )
        if self.shapes:
            return self.shapes
        # A NaN compares false, so it fails.
        return (
            ''
            if self.cosine >= min_cosine
            else (f'cosine {self.cosine:.6f} is below {min_cosine:g}')
        )

    @property
    def overflows_here_only(self) -> bool:
        """Whether only the engine has non-finite values."""
        return bool(self.non_finite_here and not self.non_finite_reference)


def add_answers(
    found: dict[str, Agreement], got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]
) -> None:
    """Add the outputs of one input, by the names of the reference's outputs."""
    for name, expected in want.items():
        found.setdefault(name, Agreement()).add(got[name], expected)
