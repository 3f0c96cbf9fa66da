"""Opening of bundles: each network, and a network that stands for all of them."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeVar

from trt_ros.errors import ParameterError
from trt_ros.model.bundle import Bundle, NetworkFile
from trt_ros.model.leapp import read_bundle
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.runner import Network

NetworkT = TypeVar('NetworkT', bound=Network)


def open_members(
    options: PipelineOptions,
    make: Callable[[Bundle, Mapping[str, NetworkT]], NetworkT],
    open_member: Callable[[PipelineOptions, NetworkFile], NetworkT],
) -> NetworkT:
    """Open the networks of a bundle, and make of them the network that runs and owns all."""
    bundle = read_bundle(options.model_path)
    if bundle.region_options is not None:
        raise ParameterError(
            f'The bundle {bundle.path} has regions: its networks are no single one.',
            remedy='Give the ONNX file of one of its networks.',
        )
    if bundle.feedback and options.frames_in_flight > 1:
        raise ParameterError(
            f'frames_in_flight is {options.frames_in_flight}, but the bundle has states.',
            cause=f'{", ".join(bundle.feedback)}: a run needs the result of the one before.',
            remedy='Set frames_in_flight to 1.',
        )
    if options.decoder != 'auto':
        _refuse_other_sizes(bundle)
    with ExitStack() as undo:
        members: dict[str, NetworkT] = {}
        for name, file in bundle.networks.items():
            own = replace(options, model_path=str(file.path), inputs=(), outputs=())
            members[name] = open_member(own, file)
            undo.callback(members[name].close)
            file.check(members[name].inputs, members[name].outputs)
        network = make(bundle, members)
        undo.pop_all()
        return network


def _refuse_other_sizes(bundle: Bundle) -> None:
    """Check that the image for the last network is as large as that of the bundle."""
    *_, last = bundle.networks.values()
    ports = [*bundle.input_ports.values(), *last.inputs.values()]
    shapes = [port.spec.shape for port in ports if len(port.spec.shape) == 4]
    sizes = {shape[2:] for shape in shapes if shape[1] == 3}
    if len(sizes) > 1:
        raise ParameterError(
            f'The images in the bundle {bundle.path} have different sizes: '
            f'{", ".join(f"{width}x{height}" for height, width in sorted(sizes))}.',
            cause='Results are decoded in pixels of the image that the bundle gets.',
            remedy='Export both networks for one size, or run the first one as node enhancer.',
        )


def describe_bundle(network: Network, bundle: Bundle, members: Mapping[str, Network]) -> None:
    """Set the description of the network that runs all those of a bundle."""
    network.backend = next(iter(members.values())).backend
    network.inputs, network.outputs = bundle.inputs, bundle.outputs
    network.bindings, network.default_outputs = bundle.bindings, bundle.default_outputs
    network.keeps_inputs, network.frequency = True, bundle.frequency or 0.0
    network.commands = {bundle.names[name]: port for name, port in bundle.ports('output').items()}
    network.metadata = {
        key: value for member in members.values() for key, value in member.metadata.items()
    }
    network.log_lines = (
        f'bundle {bundle.path}: {", ".join(members)}',
        *(f'{name}: {line}' for name, member in members.items() for line in member.log_lines),
    )
