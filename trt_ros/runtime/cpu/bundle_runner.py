"""Bundles run network after network, from arrays to arrays."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache

import numpy as np

from trt_ros.model.bundle import Bundle, Group
from trt_ros.profiling import mark
from trt_ros.runtime.bundle import describe_bundle
from trt_ros.runtime.runner import Runner, check_inputs
from trt_ros.tensors import Arrays


class BundleRunner(Runner):
    """The networks of a bundle, which it owns; ModelError where they differ from its file."""

    def __init__(self, bundle: Bundle, runners: Mapping[str, Runner]) -> None:
        self._bundle, self.members = bundle, runners
        self._given: dict[str, dict[str, np.ndarray]] = {}
        self._values: dict[str, np.ndarray] = {}  # Inputs and outputs of the last run.
        describe_bundle(self, bundle, runners)
        self._inputs = {bundle.names[name]: name for name in bundle.input_ports}
        self._outputs = {bundle.names[name]: name for name in bundle.ports('output')}
        self._groups_of = cache(bundle.groups_of)

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        """Run the networks as Runner.infer; those with the same read-only inputs keep outputs."""
        check_inputs(self.inputs, tensors)
        values = {self._inputs[name]: tensor for name, tensor in tensors.items()}
        fixed = frozenset(name for name, each in values.items() if not each.flags.writeable)
        same = frozenset(name for name in fixed if values[name] is self._values.get(name))
        kept = self._groups_of(same) if same else ()
        for group in self._bundle.groups:
            if group in kept:
                values.update(
                    {name: self._values[name] for name in self._bundle.outputs_of(group)}
                )
                continue
            for step in range(group.steps):
                for network in group.networks:
                    with mark(network):
                        self._run(network, group, step, values)
        for group in self._groups_of(fixed) if fixed else ():
            for name in self._bundle.outputs_of(group):
                values[name].flags.writeable = False  # Later runs may use them.
        self._values = values
        return {name: values[output] for name, output in self._outputs.items()}

    def _run(self, network: str, group: Group, step: int, values: dict[str, np.ndarray]) -> None:
        """Run one network; `values` has inputs and outputs, and receives its outputs."""
        given = self._given[network] = {}
        for port in self._bundle.networks[network].inputs:
            name = f'{network}/{port}'
            if name in group.values:
                given[port] = group.values[name][step]
            elif step and name in group.carry:
                given[port] = values[group.carry[name]]
            else:
                given[port] = values[self._bundle.flow.get(name, name)]
        for port, array in self.members[network].infer(given).items():
            values[f'{network}/{port}'] = array

    def tune_threads(self, tensors: Arrays) -> tuple[str, ...]:
        self.infer(tensors)
        return tuple(
            f'{name}: {line}'
            for name, runner in self.members.items()
            for line in runner.tune_threads(self._given[name])
        )

    def close(self) -> None:
        with ExitStack() as closing:
            for runner in self.members.values():
                closing.callback(runner.close)
