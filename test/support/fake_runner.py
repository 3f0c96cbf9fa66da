"""A runner without a network, for the tests of whatever stands above the seam."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trt_ros.errors import ClosedError
from trt_ros.runtime.runner import Runner, check_inputs
from trt_ros.tensors import TensorSpec

Tensors = Mapping[str, np.ndarray]


class FakeRunner(Runner):
    """
    Answers each call from a list (the last one again when it is used up) or from a function.

    :param answers: the outputs call by call, or a function from inputs to outputs.
    """

    backend = 'fake'

    def __init__(
        self,
        answers: Sequence[Tensors] | Callable[[Tensors], Tensors],
        *,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.metadata = dict(metadata or {})
        self.call_count, self.is_closed = 0, False
        self._answers = answers

    def infer(self, tensors: Tensors) -> dict[str, np.ndarray]:
        if self.is_closed:
            raise ClosedError('The fake runner')
        check_inputs(self.inputs, tensors)
        self.call_count += 1
        if callable(self._answers):
            return dict(self._answers(tensors))
        return dict(self._answers[min(self.call_count, len(self._answers)) - 1])

    def close(self) -> None:
        self.is_closed = True
