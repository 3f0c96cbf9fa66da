"""Guards of layouts, see `layout.Guard`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trt_ros.families.family import NetworkDescription
from trt_ros.families.layout import Guard


@dataclass(frozen=True)
class HasInput:
    """The guard of networks that have an input beside the image."""

    name: str

    def __call__(self, network: NetworkDescription) -> str | Literal[False]:
        """Return the evidence, or False; see `Guard`."""
        return any(spec.name == self.name for spec in network.inputs) and f'input {self.name}'


def lacks_inputs(*names: str) -> Guard:
    """Return the guard of networks that have none of some inputs."""
    return lambda network: False if any(spec.name in names for spec in network.inputs) else None


@dataclass(frozen=True)
class HasTask:
    """The guard of networks of one task of Ultralytics."""

    task: str

    def __call__(self, network: NetworkDescription) -> str | Literal[False]:
        """Return the evidence, or False; see `Guard`."""
        return network.metadata.get('task') == self.task and f'task {self.task} in the metadata'


def by_name_only(network: NetworkDescription) -> Literal[False]:
    """Refuse each network: the layout is only for those that name their decoder."""
    return False
