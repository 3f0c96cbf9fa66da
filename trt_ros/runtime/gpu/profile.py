"""Shapes to build an engine for, by the bindings of its inputs."""

from collections.abc import Iterator
from dataclasses import replace
import math
from pathlib import Path
from typing import Any

from trt_ros.engine.builder.profiles import metadata_hw
from trt_ros.engine.options import BuildOptions, ShapeRange
from trt_ros.engine.plan import is_plan
from trt_ros.errors import ParameterError
from trt_ros.model.bindings import part_specs
from trt_ros.model.bundle import NetworkFile
from trt_ros.model.feeds import FEEDS
from trt_ros.model.feeds.base import Feed
from trt_ros.model.feeds.image import ImageFeed
from trt_ros.model.feeds.tensor import TensorFeed
from trt_ros.model.published import read_published
from trt_ros.runtime.fitting import bindings_of
from trt_ros.runtime.image_inputs import image_input
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.runner import Network


def build_options_of(options: PipelineOptions, batch: int) -> BuildOptions:
    """
    Return the options to build the engine of a pipeline with, or raise.

    Inputs that bindings give a shape have it; the builder has defaults for others.
    """
    path = Path(options.model_path).expanduser()
    ranges: tuple[ShapeRange, ...] = ()
    if not (is_plan(path) or options.is_bundle) and (batch > 1 or options.inputs):
        network = Network()
        network.inputs, network.outputs, metadata = _read_network(path)
        network.metadata = read_published(options.model_path, metadata).metadata
        if not any(spec.shape[:1] == (-1,) for spec in network.inputs):
            batch = 1
        ranges = tuple(_ranges(network, options, batch))
    return BuildOptions(
        profiles=(ranges,) if ranges else (),
        precision=options.precision,
        batch=batch,
        input_size=options.input_size,
        plugins=options.plugins,
        dla_core=options.dla_core if options.dla_core >= 0 else None,
    )


def _read_network(path: Path) -> Any:
    from trt_ros.engine.builder.onnx_check import read_network  # Imports onnx.

    return read_network(path)


def with_published_size(build: BuildOptions | None, path: Path) -> BuildOptions | None:
    """
    Return build options with the input size that a file beside the model states.

    Other sizes take precedence: those of the options and of the model, fixed or in its metadata.
    """
    found = build or BuildOptions()
    size = metadata_hw(read_published(str(path), {}).metadata)
    if not size or found.input_size or found.profiles or is_plan(path):
        return build
    inputs, _, metadata = _read_network(path)
    is_open = any(len(spec.shape) == 4 and -1 in spec.shape[1:] for spec in inputs)
    return replace(found, input_size=size) if is_open and not metadata_hw(metadata) else build


def build_options_of_member(build: BuildOptions, file: NetworkFile) -> BuildOptions:
    """Return the options to build a network of a bundle with, for its shapes; or raise."""
    if build.profiles or build.batch > 1 or build.cut_nms:
        raise ParameterError(
            'A profile, a batch or a cut of NMS is given for a bundle.',
            cause='The bundle declares the inputs and outputs of each network, with their shapes.',
            remedy='Leave it out.',
        )
    if is_plan(file.path):
        return build
    ranges = tuple(
        ShapeRange(spec.name, shape, shape, shape)
        for spec in _read_network(file.path)[0]
        if spec.is_dynamic and spec.name in file.inputs
        for shape in [file.inputs[spec.name].spec.shape]
    )
    return replace(build, profiles=(ranges,) if ranges else ())


def _ranges(network: Network, options: PipelineOptions, batch: int) -> Iterator[ShapeRange]:
    """Yield the shapes of dynamic inputs that bindings give a shape."""
    specs = {spec.name: spec for spec in network.inputs}
    feeds: dict[str, Feed] = {}
    bindings = bindings_of(network, options)
    parts = part_specs(bindings, network.inputs, network.outputs)
    for binding in bindings.values():
        kind = FEEDS[binding.kind]
        spec = parts.get(binding.input) or specs[binding.input]
        if not issubclass(kind, ImageFeed):
            # The engine tells whether the output of a state is like its input.
            output = replace(spec, name=kind.output_of(binding.sources) or '')
            feeds[spec.name] = kind.bind(binding, spec, [output])
        elif spec.is_dynamic:
            images = image_input(network, spec, options, binding)
            leading, image = images.stack or spec.shape[:1], images.shape
            if images.in_channels:
                leading, image = leading[:1], (math.prod(leading) * image[0], *image[1:])
            low = (*map(abs, leading), *image)
            high = (*(batch if size < 0 else size for size in leading), *image)
            yield ShapeRange(spec.name, low, high, high)
    for name, unjoined in feeds.items():
        feed = unjoined.joined(feeds)
        shape = feed.full_shape
        if name not in parts and shape is not None and specs[name].is_dynamic:
            # A padded dimension stays dynamic, by which its capacity is told from other sizes.
            is_padded = isinstance(feed, TensorFeed) and feed.padding is not None
            low = tuple(map(abs, specs[name].shape)) if is_padded else shape
            yield ShapeRange(name, low, shape, shape)
