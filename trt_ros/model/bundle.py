"""Bundles: networks that run one after another as one model, and what connects them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from trt_ros.errors import ModelError
from trt_ros.model.kinds import binding_of
from trt_ros.tensors import Arrays, TensorSpec


@dataclass(frozen=True)
class Port:
    """
    An input or output of a network of a bundle, as the bundle declares it.

    :param spec: of fixed shape.
    :param kind: meaning of the values, as in 'state/joint/position'; '' if unknown.
    :param element_names: of the last axis, such as joints; () if unknown.
    :param settings: of the binding, as in 'history=3'.
    :param is_noise: whether the input is standard normal noise.
    """

    spec: TensorSpec
    kind: str = ''
    element_names: tuple[str, ...] = ()
    settings: str = ''
    is_noise: bool = False

    def binding(self, name: str) -> str:
        """Return the binding of an input from outside, by the name that the model has for it."""
        text = (
            f'{name}=noise:normal?seed=42'
            if self.is_noise
            else binding_of(name, self.kind, self.element_names)
        )
        if self.settings:
            text += f'{"&" if "?" in text else "?"}{self.settings}'
        return text


@dataclass(frozen=True)
class NetworkFile:
    """A network of a bundle: its file, and its inputs and outputs by their names in the file."""

    name: str
    path: Path
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]

    def check(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Raise ModelError if inputs and outputs of the file are not the declared ones."""
        for mode, declared, specs in (
            ('input', self.inputs, inputs),
            ('output', self.outputs, outputs),
        ):
            found = {spec.name: spec for spec in specs}
            for name in sorted(declared.keys() ^ found.keys()):
                raise self._other(
                    f'The {mode} {name} is '
                    + ('missing in the file.' if name in declared else 'not in the bundle.'),
                    found.values(),
                )
            for name, port in declared.items():
                spec = found[name]
                if spec.dtype != port.spec.dtype or not spec.has_shape(port.spec.shape):
                    raise self._other(f'The bundle declares the {mode} {port.spec}.', [spec])

    def _other(self, cause: str, specs: Iterable[TensorSpec]) -> ModelError:
        has = '; '.join(map(str, specs))
        return ModelError(
            f'The network {self.name} of the bundle is another one than {self.path}.',
            cause=f'{cause} The file has {has}.',
            remedy='Export the bundle again, with its networks.',
        )


def ports_of(networks: Mapping[str, NetworkFile], mode: str) -> dict[str, Port]:
    """Return all inputs or outputs of networks as 'NETWORK/NAME'; mode is 'input' or 'output'."""
    return {
        f'{network.name}/{name}': port
        for network in networks.values()
        for name, port in getattr(network, f'{mode}s').items()
    }


@dataclass(frozen=True, eq=False)
class Group:
    """
    Networks of a bundle that run in order, several times where they are a loop.

    :param carry: inputs, by the output of the step before that they get from the second step on.
    :param values: inputs and their value in each step, (steps, ...) before the shape of the input.
    """

    networks: tuple[str, ...]
    steps: int = 1
    carry: Mapping[str, str] = field(default_factory=dict)
    values: Arrays = field(default_factory=dict)


@dataclass(frozen=True)
class Bundle:
    """
    Networks that run one after another as one model.

    An input or output of a network is called 'NETWORK/NAME' here. The model has those inputs that
    no network gives within a run, and all outputs; it calls them NAME where that is unique.

    :param networks: in the order of a run.
    :param groups: the same networks, in the same order.
    :param flow: inputs, by the output of the same run that they get.
    :param feedback: inputs, by the output of the previous run that they get.
    :param initial_values: .safetensors file with values of the first run for those of `feedback`.
    :param chosen: the outputs to decode or publish, unless others are asked for.
    :param frequency: of the runs in Hz; None if unknown.
    :param region_options: by network and name, of those after the first, which run on the objects
        that it detects: the last, and before it one that tells which of them are upside down; None
        where tensors connect the networks.
    """

    path: Path
    networks: Mapping[str, NetworkFile]
    groups: tuple[Group, ...]
    flow: Mapping[str, str]
    feedback: Mapping[str, str]
    chosen: tuple[str, ...]
    initial_values: Path | None = None
    frequency: float | None = None
    region_options: Mapping[str, Mapping[str, Any]] | None = None

    def ports(self, mode: str) -> dict[str, Port]:
        """Return all inputs or outputs of the networks; mode is 'input' or 'output'."""
        return ports_of(self.networks, mode)

    def outputs_of(self, group: Group) -> list[str]:
        """Return the outputs of the networks of a group."""
        return [
            f'{name}/{port}' for name in group.networks for port in self.networks[name].outputs
        ]

    def groups_of(self, inputs: Collection[str]) -> tuple[Group, ...]:
        """Return the networks and loops that depend on these inputs of the model alone."""
        known = {*inputs, *(name for group in self.groups for name in group.values)}
        found = []
        for group in self.groups:
            own = set(self.outputs_of(group))
            sources = {
                self.flow.get(f'{name}/{port}', f'{name}/{port}')
                for name in group.networks
                for port in self.networks[name].inputs
            }
            if sources <= known | own:
                known |= own
                found.append(group)
        return tuple(found)

    @cached_property
    def input_ports(self) -> Mapping[str, Port]:
        """The inputs of the model."""
        inner = {*self.flow, *(name for group in self.groups for name in group.values)}
        return {name: port for name, port in self.ports('input').items() if name not in inner}

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The names of inputs and outputs in the model."""
        ports = [*self.input_ports, *self.ports('output')]
        count = Counter(each.partition('/')[2] for each in ports)
        short = {each: each.partition('/')[2] for each in ports}
        return {each: name if count[name] == 1 else each for each, name in short.items()}

    def _specs(self, ports: Mapping[str, Port]) -> tuple[TensorSpec, ...]:
        return tuple(replace(port.spec, name=self.names[name]) for name, port in ports.items())

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs of the model, by its names."""
        return self._specs(self.input_ports)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs of the model, by its names."""
        return self._specs(self.ports('output'))

    @property
    def default_outputs(self) -> tuple[str, ...]:
        """Names of the outputs to decode or publish."""
        return tuple(self.names[name] for name in self.chosen)

    @property
    def bindings(self) -> tuple[str, ...]:
        """Bindings of the model's inputs: states, and topics by what the values mean."""
        return tuple(self._binding(name, port) for name, port in self.input_ports.items())

    def _binding(self, name: str, port: Port) -> str:
        output = self.feedback.get(name)
        if output is None:
            return port.binding(self.names[name])
        text = f'{self.names[name]}=state:{self.names[output]}'
        file = self.initial_values
        return text if file is None else f'{text}?initial={file}#{name}'
