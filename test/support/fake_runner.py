"""A runner without a network, for the tests of whatever stands above the seam."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from support.descriptions import specs
from trt_ros.decode.choice import Decoder
from trt_ros.errors import ClosedError
from trt_ros.families.registry import TENSORS
from trt_ros.model.feeds.constant import ConstantFeed
from trt_ros.model.feeds.image import ImageFeed
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.runtime.runner import Network, Runner, check_inputs
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Preprocess

ResultT = TypeVar('ResultT')

Tensors = Mapping[str, np.ndarray]
IMAGE = TensorSpec('images', (1, 3, 64, 64), 'float32', 'input')
HEAD = TensorSpec('output0', (1, 7, 84), 'float32', 'output')


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


def open_fake(
    answer: Callable[[Tensors], Tensors],
    inputs: Sequence[TensorSpec] | str,
    outputs: Sequence[TensorSpec] | str,
    bindings: str | Sequence[str],
    families: tuple[Any, ...] = TENSORS,
) -> Pipeline[Any]:
    """Open a network of tensors, which may be written as they print, by its bindings."""
    inputs = specs(inputs, 'input') if isinstance(inputs, str) else inputs
    outputs = specs(outputs) if isinstance(outputs, str) else outputs
    runner = FakeRunner(answer, inputs=inputs, outputs=outputs)
    return Pipeline.open('any', families=families, runner=runner, inputs=bindings)


def open_echo(
    inputs: Sequence[TensorSpec],
    bindings: str | Sequence[str],
    families: tuple[Any, ...] = TENSORS,
    on_run: Callable[[Tensors], object] = lambda tensors: None,
) -> Pipeline[Any]:
    """Open a network that returns its inputs, as `x out` and so on."""

    def answer(tensors: Tensors) -> Tensors:
        on_run(tensors)
        return {f'{name} out': np.array(value) for name, value in tensors.items()}

    outputs = [replace(each, name=f'{each.name} out', mode='output') for each in inputs]
    return open_fake(answer, inputs, outputs, bindings, families)


def fake_detector(
    *answers: Tensors,
    inputs: Sequence[TensorSpec] = (IMAGE,),
    metadata: Mapping[str, str] | None = None,
) -> FakeRunner:
    """Return a detector that answers so, by default with no boxes."""
    nothing = {'output0': np.zeros((1, 7, 84), np.float32)}
    return FakeRunner(answers or [nothing], inputs=inputs, outputs=(HEAD,), metadata=metadata)


def model_of_image(
    network: Network, preprocess: Preprocess, decoder: Decoder[ResultT]
) -> ResolvedModel[ResultT]:
    """Return the decisions for a network of one image beside the decoder's constants."""
    constants = decoder.constant_inputs
    feeds = {
        spec.name: ConstantFeed(constants[spec.name])
        if spec.name in constants
        else ImageFeed(preprocess)
        for spec in network.inputs
    }
    return ResolvedModel(feeds, network.outputs, decoder)
