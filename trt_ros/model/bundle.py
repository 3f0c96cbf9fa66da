"""Description of a model: its networks, what their inputs get, and the outputs of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from trt_ros.errors import TensorMismatchError
from trt_ros.model.feeds import Feeds
from trt_ros.tensors import TensorSpec


@dataclass(frozen=True)
class NetworkSpec:
    """Inputs and outputs of a network, in its own order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class Bundle:
    """
    Networks that run one after another as one model; one network is a bundle of one.

    Connections are feeds: a state is an output of the previous run.

    :param networks: by name, in the order of a run. Their inputs and outputs are named 'NAME', or
        'NETWORK/NAME' where there are several networks.
    :param feeds: by input of all networks, one each; those of bindings in their order.
    :param outputs: names of the outputs that are decoded, in order.
    :raises TensorMismatchError: when an input has no feed, or a feed no input.
    """

    networks: Mapping[str, NetworkSpec]
    feeds: Feeds
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        names = {
            self._full_name(network, spec)
            for network, each in self.networks.items()
            for spec in each.inputs
        }
        if names != self.feeds.keys():
            raise TensorMismatchError(
                f'The feeds of {", ".join(self.feeds)} are not those of the network inputs '
                f'{", ".join(sorted(names))}.'
            )

    def _full_name(self, network: str, spec: TensorSpec) -> str:
        return spec.name if len(self.networks) == 1 else f'{network}/{spec.name}'

    @cached_property
    def output_specs(self) -> tuple[TensorSpec, ...]:
        """The outputs that are decoded, in order."""
        specs = {
            self._full_name(network, spec): spec
            for network, each in self.networks.items()
            for spec in each.outputs
        }
        return tuple(specs[name] for name in self.outputs if name in specs)
