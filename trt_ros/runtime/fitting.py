"""Preprocessing, decoder and class names of a network, decided before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from trt_ros.engine.build.profiles import DEFAULT_INPUT_HW, metadata_hw
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.runtime.options import LabelledOptions, PipelineOptions
from trt_ros.runtime.runner import Network
from trt_ros.tensors import TensorSpec, refuse_large
from trt_ros.vision.decoders.family import Family, Head
from trt_ros.vision.decoders.registry import Decoder, choose_decoder
from trt_ros.vision.labels import begins_with_background, class_names
from trt_ros.vision.letterbox import Preprocess

IMAGE_DTYPES = ('float32', 'float16', 'bfloat16', 'uint8')
ResultT = TypeVar('ResultT')


@dataclass(frozen=True)
class Fitted(Generic[ResultT]):
    """
    The decisions about a network: how images go in and how results come out.

    :param class_names: by class index; () where nothing names them.
    :param log_lines: lines for the log: each decision with its reason.
    """

    preprocess: Preprocess
    decoder: Decoder[ResultT]
    class_names: tuple[str, ...]
    log_lines: tuple[str, ...]


def fit(
    network: Network,
    options: PipelineOptions,
    families: tuple[Family[Head[ResultT]], ...],
) -> Fitted[ResultT]:
    """
    Decide how a network takes images and how its outputs are decoded.

    Runs nothing and keeps nothing; the only file it reads is `labels_path`.

    :param network: its inputs, outputs and metadata are read.
    :param families: those that `options.decoder` chooses from.
    :raises ParameterError: when an option does not fit the network.
    :raises TensorMismatchError: when the network takes no image, or no family reads its outputs.
    """
    image_input, layout, input_hw, size_reason = _image_input(network, options)
    inputs, outputs = _of_one_image(network, image_input)
    labels, labels_path = (
        (options.labels, options.labels_path) if isinstance(options, LabelledOptions) else ((), '')
    )
    given = class_names(labels, labels_path, network.metadata, None)
    decoder = choose_decoder(
        options.decoder,
        inputs,
        outputs,
        network.metadata,
        input_hw,
        len(given) or None,
        has_background=begins_with_background(given),
        families=families,
    )
    if {spec.name for spec in network.inputs} != {image_input.name, *decoder.constant_inputs}:
        raise _too_many_inputs(network)
    names = class_names(labels, labels_path, network.metadata, decoder.class_count)
    preprocess = _preprocess(options, decoder.preprocess, image_input, layout, input_hw)
    if preprocess.resize == 'center_crop' and decoder.task in ('segment', 'depth'):
        raise ParameterError(
            f'resize is center_crop, which a {decoder.task} network cannot use.',
            cause='The network would not see the whole image, but its result covers all of it.',
            remedy='Set resize to letterbox or stretch.',
        )
    log_lines = [
        f'decoder {decoder.name}: {decoder.reason}',
        _describe_preprocess(preprocess, size_reason),
    ]
    if isinstance(options, LabelledOptions):
        log_lines.append(_describe_names(names, given))
    return Fitted(preprocess, decoder, names, tuple(log_lines))


def raw_preprocess(network: Network) -> Preprocess | None:
    """
    Return the preprocessing of an unrecognised network of one image: pixels scaled to 0 to 1.

    :returns: None where the network has more inputs, or its image has no fixed size.
    """
    spec = network.inputs[0]
    if len(network.inputs) != 1 or len(spec.shape) != 4 or min(spec.shape[1:]) < 1:
        return None
    layout = 'nchw' if spec.shape[1] == 3 else 'nhwc'
    height, width = spec.shape[2:] if layout == 'nchw' else spec.shape[1:3]
    scale = 1.0 if spec.dtype == 'uint8' else 1 / 255
    return Preprocess((height, width), scale=scale, layout=layout, dtype=spec.dtype)


def _image_input(
    network: Network, options: PipelineOptions
) -> tuple[TensorSpec, str, tuple[int, int], str]:
    """Return the image input, its layout, its height and width, and the reason for that size."""
    images = [spec for spec in network.inputs if len(spec.shape) == 4]
    if len(network.inputs) > 1 and len(images) != 1:
        raise _too_many_inputs(network)
    spec = images[0] if images else network.inputs[0]
    if len(spec.shape) != 4:
        raise TensorMismatchError(
            f'The input {spec} is not a batch of images.',
            remedy='Export with an input of (1, 3, height, width) or (1, height, width, 3).',
        )
    if spec.dtype not in IMAGE_DTYPES:
        raise TensorMismatchError(
            f'The input {spec} has the unsupported image dtype {spec.dtype}.',
            remedy=f'Export with one of {", ".join(IMAGE_DTYPES)}.',
        )
    layout = _layout(spec)
    height, width = spec.shape[2:] if layout == 'nchw' else spec.shape[1:3]
    input_hw, reason = _input_hw(network, options, height, width)
    size = (3, *input_hw) if layout == 'nchw' else (*input_hw, 3)
    refuse_large([replace(spec, shape=(spec.shape[0], *size))])
    return spec, layout, input_hw, reason


def _input_hw(
    network: Network, options: PipelineOptions, height: int, width: int
) -> tuple[tuple[int, int], str]:
    """
    Return height and width of the network's images, and the reason for them.

    :param height, width: as declared by the network; -1 where they are dynamic.
    """
    if options.input_size:
        wanted, reason = (options.input_size[0], options.input_size[1]), 'as requested'
        if any(size not in (-1, want) for size, want in zip((height, width), wanted)):
            raise ParameterError(
                f'input_size is {list(wanted)}, but the network takes only {height} by {width}.',
                remedy='Leave input_size out: it is for networks with a dynamic size.',
            )
    elif -1 in (height, width):
        found = metadata_hw(network.metadata)
        source = 'from the metadata' if found else 'by default'
        wanted, reason = found or DEFAULT_INPUT_HW, f'{source}, dynamic in the network'
    else:
        wanted, reason = (height, width), 'fixed by the network'
    return (height if height > 0 else wanted[0], width if width > 0 else wanted[1]), reason


def _of_one_image(
    network: Network, image: TensorSpec
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """
    Return inputs and outputs as in a run of one image, by which families are recognised.

    :raises TensorMismatchError: when the outputs do not have the input's fixed batch size.
    """
    batch = image.shape[0]
    if batch in (1, -1):
        return network.inputs, network.outputs
    if batch == 0 or any(spec.shape[:1] not in ((batch,), (-1,)) for spec in network.outputs):
        raise TensorMismatchError(
            f'The input {image} has a batch size of {batch}, which the outputs do not have.',
            cause='; '.join(str(spec) for spec in network.outputs),
            remedy='Export with a batch size of 1, or a dynamic one.',
        )

    def of_one(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(
            replace(spec, shape=(1, *spec.shape[1:])) if spec.shape[:1] == (batch,) else spec
            for spec in specs
        )

    return of_one(network.inputs), of_one(network.outputs)


def _too_many_inputs(network: Network) -> TensorMismatchError:
    return TensorMismatchError(
        f'The network has {len(network.inputs)} inputs.',
        cause='; '.join(str(spec) for spec in network.inputs),
        remedy='Export it with one image as its only input.',
    )


def _layout(spec: TensorSpec) -> str:
    if spec.shape[1] == 3:
        return 'nchw'
    if spec.shape[3] == 3:
        return 'nhwc'
    if spec.shape[1] == -1:
        return 'nchw'  # The exporters' default.
    raise TensorMismatchError(
        f'The input {spec} has no dimension of 3 colours.',
        remedy='Export with an input of (1, 3, height, width) or (1, height, width, 3).',
    )


def _preprocess(
    options: PipelineOptions,
    trained_with: Mapping[str, object],
    spec: TensorSpec,
    layout: str,
    input_hw: tuple[int, int],
) -> Preprocess:
    """Return the family's preprocessing with the options that override it."""
    values: dict[str, Any] = dict(trained_with)
    given = {
        'resize': options.resize != 'auto' and options.resize,
        'channel_order': options.channel_order != 'auto' and options.channel_order,
        'mean': options.mean,
        'std': options.std,
        'scale': options.scale,
        'crop_fraction': options.crop_fraction,
    }
    if spec.dtype == 'uint8':
        refused = [name for name in ('mean', 'std', 'scale') if given[name]]
        if refused:
            raise ParameterError(
                f'{" and ".join(refused)} cannot be applied.',
                cause=f'The input {spec} takes pixels of 0 to 255; the network normalises them.',
                remedy=f'Leave {" and ".join(refused)} out.',
            )
        values.update(scale=1.0, mean=(0.0,), std=(1.0,))
    values.update({name: value for name, value in given.items() if value})
    if options.pad_value >= 0:
        values['pad_value'] = options.pad_value
    if options.crop_fraction and values.get('resize') != 'center_crop':
        raise ParameterError(
            f'crop_fraction is {options.crop_fraction}, but resize {values.get("resize")} '
            'does not crop.',
            remedy='Leave crop_fraction out, or set resize to center_crop.',
        )
    preprocess = Preprocess(input_hw=input_hw)
    return replace(
        preprocess, **values, antialias=options.antialias, layout=layout, dtype=spec.dtype
    )


def _describe_names(names: tuple[str, ...], given: tuple[str, ...]) -> str:
    if not names:
        return 'no class names: results have class indices'
    left_out = f', without {given[0]!r}, which is not a class of the network'
    return f'{len(names)} class names{left_out if len(names) < len(given) else ""}'


def _describe_preprocess(preprocess: Preprocess, size_reason: str) -> str:
    height, width = preprocess.input_hw
    padding = f' padded with {preprocess.pad_value}' if 'letterbox' in preprocess.resize else ''
    if preprocess.resize == 'center_crop':
        padding = f' of {preprocess.crop_fraction:.4g} of the shorter side'
    averaged = ' with antialias' if preprocess.antialias else ''
    line = (
        f'input {width}x{height} ({size_reason}), {preprocess.resize}{padding}{averaged}, '
        f'{preprocess.channel_order}, {preprocess.layout} {preprocess.dtype}, '
        f'scale {preprocess.scale:.6g}'
    )
    if any(preprocess.mean):
        line += f', mean {preprocess.mean}'
    if any(value != 1 for value in preprocess.std):
        line += f', std {preprocess.std}'
    return line
