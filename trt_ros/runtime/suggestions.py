"""Likely bindings of network inputs, for errors and remedies."""

from difflib import SequenceMatcher
from functools import partial

from trt_ros.errors import TensorMismatchError
from trt_ros.model.feeds.state import StateFeed
from trt_ros.runtime.image_inputs import is_image, is_stack, suggested_stack
from trt_ros.runtime.options import PipelineOptions, RegionOptions
from trt_ros.runtime.runner import Network
from trt_ros.tensors import TensorSpec


def unbound_error(
    network: Network, names: list[str], options: PipelineOptions
) -> TensorMismatchError:
    """Return the error of inputs without a binding, with bindings to try."""
    remedy = 'Export the network with one image as its only input.'
    if not (isinstance(options, RegionOptions) and options.regions):
        remedy = (
            f'Set inputs to {list(suggested_bindings(network))} or the like (docs/inputs.md), '
            'or export the network with one image as its only input.'
        )
    return TensorMismatchError(
        f'The network inputs {", ".join(names)} get no value.'
        if len(names) > 1
        else f'The network input {names[0]} gets no value.',
        cause='The network has '
        f'{len(network.inputs)} inputs: {"; ".join(map(str, network.inputs))}.',
        remedy=remedy,
    )


def suggested_bindings(network: Network) -> tuple[str, ...]:
    """Return likely bindings of the inputs, by their shapes; one at least is no state."""
    images = [spec for spec in network.inputs if is_image(spec)]
    outputs, bindings = list(network.outputs), []
    for number, spec in enumerate(network.inputs):
        likes = [each for each in outputs if StateFeed.can_be(spec, each)]
        likes = [each for each in likes if each.shape == spec.shape] or likes
        if is_stack(spec):
            bindings.append(suggested_stack(spec))
        elif spec in images:
            bindings.append(f'{spec.name}=image:{spec.name}/image_raw')
        elif likes and (images or bindings):
            # By name (h of hn); else in order, the states of the last outputs.
            rest = sum(StateFeed.can_be(each, likes[-1]) for each in network.inputs[number:])
            output = max(likes[-rest:] + likes[:-rest], key=partial(_likeness, spec.name))
            outputs.remove(output)
            bindings.append(f'{spec.name}=state:{output.name}')
        else:
            bindings.append(f'{spec.name}=tensor:{spec.name}')
    return tuple(bindings)


def _likeness(name: str, spec: TensorSpec) -> float:
    return SequenceMatcher(None, name, spec.name).ratio()
