"""Likely bindings of network inputs, for errors and remedies."""

import re

from trt_ros.errors import TensorMismatchError
from trt_ros.model.feeds.state import StateFeed
from trt_ros.runtime.image_inputs import is_image, is_stack, suggested_stack
from trt_ros.runtime.options import PipelineOptions, RegionOptions
from trt_ros.runtime.runner import Network

#: Beginnings of words in the names of inputs that are outputs of the run before.
MEMORY_WORDS = (
    *('hidden', 'cache', 'mem', 'past', 'prev', 'carry'),
    *('recurrent', 'rnn', 'lstm', 'gru'),
)
#: Words in which the names of a state and of its next value differ.
TURNS = {
    *('in', 'out', 'input', 'output', 'next', 'new', 'prev', 'previous', 'last', 'past'),
    *('present', 'n', '0'),
}


def unbound_error(
    network: Network, names: list[str], options: PipelineOptions
) -> TensorMismatchError:
    """Return the error of inputs without a binding, with bindings to try."""
    remedy = 'Export the network with one image as its only input.'
    if not (isinstance(options, RegionOptions) and options.regions):
        bindings, reasons = suggested_bindings(network)
        why = f': {"; ".join(reasons)}. Or' if reasons else ', or'
        remedy = (
            f'Set inputs to {bindings} or the like (docs/inputs.md){why} export the network with '
            'one image as its only input.'
        )
    return TensorMismatchError(
        f'The network inputs {", ".join(names)} get no value.'
        if len(names) > 1
        else f'The network input {names[0]} gets no value.',
        cause='The network has '
        f'{len(network.inputs)} inputs: {"; ".join(map(str, network.inputs))}.',
        remedy=remedy,
    )


def suggested_bindings(network: Network) -> tuple[list[str], list[str]]:
    """
    Return likely bindings of the inputs, by shapes and names, and why inputs are states or none.

    One at least is no state.
    """
    images = [spec for spec in network.inputs if is_image(spec)]
    outputs, bindings, reasons = list(network.outputs), list[str](), list[str]()
    for number, spec in enumerate(network.inputs):
        shaped = [each for each in outputs if StateFeed.can_be(spec, each)]
        shaped = [each for each in shaped if each.shape == spec.shape] or shaped
        alike = [each for each in shaped if _stem(each.name) == _stem(spec.name) != []]
        is_memory = any(word.startswith(MEMORY_WORDS) for word in _words(spec.name))
        if is_stack(spec):
            bindings.append(suggested_stack(spec))
        elif spec in images:
            bindings.append(f'{spec.name}=image:{spec.name}/image_raw')
        elif (alike or (shaped and is_memory)) and (images or bindings):
            # By name (h of hn); else in order, the states of the last outputs.
            rest = sum(StateFeed.can_be(each, shaped[-1]) for each in network.inputs[number:])
            output = (alike or shaped[-rest:])[0]
            outputs.remove(output)
            bindings.append(f'{spec.name}=state:{output.name}')
            why = f'{spec.name} is named as the output {output.name} of the run before'
            reasons.append(why if alike else f'{spec.name} is named as a memory')
        else:
            bindings.append(f'{spec.name}=tensor:{spec.name}')
            if shaped and (images or len(bindings) > 1):
                why = f'{spec.name} has the shape of {shaped[0].name}, but no name of a state'
                state = f'{spec.name}=state:{shaped[0].name}'
                reasons.append(f'{why}: if it is that of the run before, {state}')
    return bindings, reasons


def _words(name: str) -> list[str]:
    return re.findall(r'[a-z]+|\d+', name.lower())


def _stem(name: str) -> list[str]:
    """Return the words of a name without those that tell a state from its next value."""
    words = [word for word in _words(name) if word not in TURNS]
    return [re.sub(r'^(.)n$', r'\1', word) for word in words]  # h of hn.
