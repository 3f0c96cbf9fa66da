"""Sensitivity of layers to quantization, and the layers that stay in float because of it."""

from collections.abc import Mapping, Sequence
import math
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.progress import Reporter
from trt_ros.quantization.calibration import NO_BOXES
from trt_ros.quantization.formats import QuantFormat
from trt_ros.quantization.frame_network import FrameNetwork
from trt_ros.quantization.layers import QuantLayer, QuantNetwork
from trt_ros.quantization.qdq import with_qdq
from trt_ros.quantization.result_agreement import Evaluation, ResultAgreement
from trt_ros.runtime.fitting import ResolvedModel

SENSITIVITY_FRAMES = 2


class LayerSearch:
    """
    The variants of a network that differ in the layers that are quantized.

    :param amax: largest absolute value to represent per activation.
    """

    def __init__(
        self,
        network: QuantNetwork,
        fitted: ResolvedModel[Any],
        amax: Mapping[str, float],
        quant_format: QuantFormat,
        evaluation: Evaluation,
        report: Reporter,
    ) -> None:
        self._network, self._fitted, self._amax = network, fitted, amax
        self._format, self._evaluation, self._report = quant_format, evaluation, report

    def model(self, layers: Sequence[QuantLayer]) -> Any:
        """Return the ModelProto with these layers quantized."""
        return with_qdq(self._network, layers, self._amax, self._format)

    def errors(self) -> dict[str, float]:
        """
        Measure the error of the last layers per layer, when that layer alone is quantized.

        The last layers are the inputs of the decoding: their values have comparable sizes, unlike
        those of an output of boxes in pixels and scores. The error is the root mean square in
        standard deviations of the original, the mean over the last layers and some frames.
        """
        frames = self._evaluation.frames[:SENSITIVITY_FRAMES]
        head = self._network.head
        with FrameNetwork(self._network.model, self._fitted, head) as original:
            wanted = [original.run(frame, NO_BOXES)[1] for frame in frames]
        found = {}
        for index, layer in enumerate(self._network.layers):
            self._report('measuring layers', 100.0 * index / len(self._network.layers))
            with FrameNetwork(self.model([layer]), self._fitted, head) as variant:
                found[layer.name] = float(
                    np.mean(
                        [
                            _relative_error(variant.run(frame, NO_BOXES)[1][name], want[name])
                            for frame, want in zip(frames, wanted)
                            for name in head
                        ]
                    )
                )
        return found

    def agreement(self, layers: Sequence[QuantLayer]) -> ResultAgreement:
        """Return the agreement with the original when these layers are quantized."""
        with FrameNetwork(self.model(layers), self._fitted) as variant:
            return self._evaluation.agreement(variant)

    def fallback(
        self, errors: Mapping[str, float], max_drop: float
    ) -> tuple[list[QuantLayer], ResultAgreement]:
        """
        Find the layers to quantize: all but the most sensitive ones, as few as meet `max_drop`.

        Their number is searched by bisection, so that a network of N layers takes log2(N)
        evaluations.

        :returns: the layers in topological order, and their agreement.
        :raises ParameterError: when one quantized layer alone exceeds `max_drop`.
        """
        layers = self._network.layers
        by_error = sorted(layers, key=lambda layer: -errors[layer.name])

        def without(count: int) -> list[QuantLayer]:
            left_out = {layer.output for layer in by_error[:count]}
            return [layer for layer in layers if layer.output not in left_out]

        too_few, enough = -1, len(layers)  # Numbers of layers in float.
        best: ResultAgreement | None = None
        trial = 0  # All of them quantized.
        while too_few + 1 < enough:
            self._report(f'evaluating with {trial} of {len(layers)} layers in float')
            found = self.agreement(without(trial))
            if found.drop <= max_drop:
                enough, best = trial, found
            else:
                too_few = trial
            trial = (too_few + enough) // 2
        if best is None:
            raise ParameterError(
                f'No layer can be quantized to {self._format.name} with a drop of {max_drop:g}.',
                cause=f'With one layer: {found}.',
                remedy='Calibrate with images of the application, or allow a larger --max-drop.',
            )
        return without(enough), best


def _relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Return the root mean square error in standard deviations of `want`; infinite for NaN."""
    difference = got.astype(np.float64) - want
    deviation = float(want.std(dtype=np.float64))
    error = float(np.sqrt((difference**2).mean())) / (deviation or 1.0)
    return math.inf if math.isnan(error) else error
