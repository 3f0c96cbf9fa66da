"""Image inputs of a network: layout, size and preprocessing."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from trt_ros.decode.choice import Decoder
from trt_ros.engine.builder.profiles import DEFAULT_INPUT_HW, metadata_hw
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.feeds.base import Binding
from trt_ros.model.feeds.history import HISTORY, History
from trt_ros.model.feeds.image import ImageFeed, ImagesFeed
from trt_ros.runtime.image_parts import image_tiles, region_crop
from trt_ros.runtime.options import PipelineOptions, RegionOptions, TiledOptions
from trt_ros.runtime.runner import Network
from trt_ros.tensors import Shape, TensorSpec, refuse_large
from trt_ros.vision.letterbox import INTEGERS, Preprocess
from trt_ros.vision.regions import Crop, Tiles

IMAGE_DTYPES = ('float32', 'float16', 'bfloat16', *INTEGERS)
CHANNELS = (3, 1, 4)
MAX_SUGGESTED = 8  # More images are rather those of a video.
EXPORT_IMAGES = 'Export with an input of (1, 3, height, width) or (1, height, width, 3).'


@dataclass(frozen=True)
class ImageInput:
    """
    An image input of a network.

    :param layout: 'nchw' or 'nhwc'.
    :param channels: 1, 3 or 4.
    :param size_reason: where `input_hw` comes from, for the log.
    :param stack: sizes of the axes before those of an image; () for a batch of images.
    :param in_channels: whether the second of these is part of the axis of channels.
    """

    spec: TensorSpec
    layout: str
    channels: int
    input_hw: tuple[int, int]
    size_reason: str
    stack: Shape = ()
    in_channels: bool = False

    @property
    def shape(self) -> Shape:
        """Shape of an image: (C, H, W) or (H, W, C)."""
        is_planar = self.layout == 'nchw'
        return (self.channels, *self.input_hw) if is_planar else (*self.input_hw, self.channels)


def is_image(spec: TensorSpec) -> bool:
    """Return whether an input has the shape and dtype of a batch of images."""
    return (
        len(spec.shape) == 4
        and spec.dtype in IMAGE_DTYPES
        and (spec.shape[1] in (*CHANNELS, -1) or spec.shape[3] in CHANNELS)
    )


def is_stack(spec: TensorSpec) -> bool:
    """Return whether an input looks like a few images that are stacked on an axis of their own."""
    return (
        len(spec.shape) == 5
        and spec.shape[0] in (-1, 1)
        and spec.shape[1] <= MAX_SUGGESTED
        and is_image(_of_one(spec))
    )


def suggested_stack(spec: TensorSpec) -> str:
    """Return a likely binding of a stack of images, of two where their number is dynamic."""
    count = spec.shape[-4] if spec.shape[-4] > 0 else 2
    topics = ','.join(f'{spec.name}{number}/image_raw' for number in range(count))
    return f'{spec.name}=images:{topics}'


def _of_one(spec: TensorSpec) -> TensorSpec:
    """Return an input as it would be for one of the images that it stacks."""
    return replace(spec, shape=(1, *spec.shape[-3:]))


def image_input(
    network: Network, spec: TensorSpec, options: PipelineOptions, binding: Binding | None = None
) -> ImageInput:
    """Return how an input takes images, by its binding if it has one; or raise."""
    stack: Shape = ()
    in_channels = False
    whole, remedy = spec, f'Bind it to a tensor in inputs: {spec.name}=tensor:TOPIC.'
    if binding is not None:
        options = with_settings(options, binding.settings)
        history = History.parse(binding.settings, spec)
        if history is not None or binding.kind == ImagesFeed.kind:
            count = len(binding.sources) if history is None else history.count
            in_channels = history is None and _is_in_channels(spec, count)
            if in_channels:
                spec = replace(spec, shape=(spec.shape[0], count, 3, *spec.shape[2:]))
            stack, spec = _stack(spec, count), _of_one(spec)
    if is_stack(spec):
        remedy = (
            f"Set inputs to ['{suggested_stack(spec)}'] or the like (docs/inputs.md), or for the "
            f'last images of one topic to {spec.name}=image:TOPIC?{HISTORY}=N.'
        )
    elif not options.inputs:
        remedy = (
            f'{EXPORT_IMAGES} The node `tensor` runs networks of tensors: '
            f"inputs: ['{spec.name}=tensor:TOPIC'] (docs/inputs.md)."
        )
    if len(spec.shape) != 4:
        raise TensorMismatchError(f'The input {spec} is not a batch of images.', remedy=remedy)
    if spec.dtype not in IMAGE_DTYPES:
        raise TensorMismatchError(
            f'The input {spec} has the unsupported image dtype {spec.dtype}.',
            remedy=f'Export with one of {", ".join(IMAGE_DTYPES)}.',
        )
    layout, channels = _layout(spec)
    height, width = spec.shape[2:] if layout == 'nchw' else spec.shape[1:3]
    input_hw, reason = _input_hw(network, options, height, width)
    found = ImageInput(whole, layout, channels, input_hw, reason, stack, in_channels)
    refuse_large([replace(spec, shape=(*(stack or spec.shape[:1]), *found.shape))])
    return found


def _is_in_channels(spec: TensorSpec, count: int) -> bool:
    """Return whether an input takes several color images as its channels, as stereo pairs."""
    shape = spec.shape
    return len(shape) == 4 and shape[0] in (-1, 1) and shape[1] == 3 * count > 3


def _stack(spec: TensorSpec, count: int) -> Shape:
    """Return the axes before an image's for a stack of `count`, or raise TensorMismatchError."""
    *batch, stacked = spec.shape[:-3] or (0,)
    if len(spec.shape) not in (4, 5) or any(size not in (-1, 1) for size in batch):
        raise TensorMismatchError(
            f'The input {spec} is not a stack of images.',
            remedy='Export with an input of (1, N, 3, height, width) or (N, 3, height, width).',
        )
    if stacked not in (-1, count):
        raise TensorMismatchError(
            f'The input {spec} stacks {stacked} images, but is bound to {count}.',
            remedy=f'Bind it to one topic per image, or set {HISTORY} to their number.',
        )
    return (*[1] * len(batch), count)


def _input_hw(
    network: Network, options: PipelineOptions, height: int, width: int
) -> tuple[tuple[int, int], str]:
    """Return height and width, -1 where dynamic, as images have them, and the reason."""
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


def _layout(spec: TensorSpec) -> tuple[str, int]:
    """Return the layout and the number of channels; 3 channels and planes first in doubt."""
    for channels in CHANNELS:
        if spec.shape[1] == channels:
            return 'nchw', channels
        if spec.shape[3] == channels:
            return 'nhwc', channels
    if spec.shape[1] == -1:
        return 'nchw', 3  # The exporters' default.
    raise TensorMismatchError(
        f'The input {spec} has no dimension of 1, 3 or 4 channels.',
        remedy=f"{EXPORT_IMAGES} Six channels of two images: '{spec.name}=images:left,right'. "
        'The node `tensor` runs it with tensors: '
        f"inputs: ['{spec.name}=tensor:TOPIC'] (docs/inputs.md).",
    )


def image_preprocess(
    options: PipelineOptions, trained_with: Mapping[str, object], image: ImageInput
) -> Preprocess:
    """Return the family's preprocessing, with mean and std for three channels, and options."""
    spec = image.spec
    values: dict[str, Any] = dict(trained_with)
    if image.channels != 3:
        values = {name: value for name, value in values.items() if name not in ('mean', 'std')}
    given = {
        'resize': options.resize != 'auto' and options.resize,
        'channel_order': options.channel_order != 'auto' and options.channel_order,
        'mean': options.mean,
        'std': options.std,
        'scale': options.scale,
        'crop_fraction': options.crop_fraction,
    }
    if spec.dtype in INTEGERS:
        refused = [name for name in ('mean', 'std', 'scale') if given[name]]
        if refused:
            raise ParameterError(
                f'{" and ".join(refused)} cannot be applied.',
                cause=f'The input {spec} takes pixels of 0 to 255; the network normalizes them.',
                remedy=f'Leave {" and ".join(refused)} out.',
            )
        values.update(scale=1.0, mean=(0.0,), std=(1.0,))
    values.update({name: value for name, value in given.items() if value})
    resize = values.get('resize')
    if options.pad_value >= 0:
        values['pad_value'] = options.pad_value
        if 'letterbox' not in str(resize) and not getattr(options, 'regions', False):
            raise ParameterError(
                f'pad_value is {options.pad_value}, but resize {resize} has no padding.',
                remedy='Leave pad_value out, or set resize to letterbox.',
            )
    if options.crop_fraction and resize not in ('center_crop', 'bottom_crop'):
        raise ParameterError(
            f'crop_fraction is {options.crop_fraction}, but resize {resize} does not crop.',
            remedy='Leave crop_fraction out, or set resize to center_crop or bottom_crop.',
        )
    return Preprocess(
        image.input_hw,
        **values,
        antialias=options.antialias,
        layout=image.layout,
        dtype=spec.dtype,
        channels=image.channels,
    )


def image_feed(
    options: PipelineOptions, binding: Binding | None, image: ImageInput, decoder: Decoder[Any]
) -> ImageFeed:
    """Return the feed of an image input, by its binding if it has one; or raise."""
    has_many = binding is not None and binding.kind == ImagesFeed.kind
    has_second = binding is not None and len(binding.sources) == 2 and not has_many
    if has_second and image.channels != 4:
        raise ParameterError(
            f'The network input {image.spec} is bound to two images, '
            f'but its number of channels is {image.channels}.',
            remedy='Bind it to one image: the second is the fourth channel.',
        )
    if binding is not None:
        options = with_settings(options, binding.settings)
    preprocess = image_preprocess(options, decoder.preprocess, image)
    if preprocess.resize.endswith('crop') and decoder.task in ('segment', 'depth'):
        raise ParameterError(
            f'resize is {preprocess.resize}, which a {decoder.task} network cannot use.',
            cause='The network would not see the whole image, but its result covers all of it.',
            remedy='Set resize to letterbox or stretch.',
        )
    if isinstance(options, TiledOptions) and options.tiles:
        tiles = image_tiles(options, decoder, preprocess, image.spec)
        return ImageFeed(preprocess, leading=(tiles.count,), tiles=tiles)
    if isinstance(options, RegionOptions) and options.regions:
        crop = region_crop(options, decoder, preprocess)
        return ImageFeed(crop.preprocess, crop=crop)
    if has_many:
        return ImagesFeed(preprocess, leading=image.stack, in_channels=image.in_channels)
    return ImageFeed(preprocess, has_second)


def describe_preprocess(
    preprocess: Preprocess, size_reason: str, crop: Crop | None = None, tiles: Tiles | None = None
) -> str:
    """Return a line for the log, with regions or tiles where runs get those."""
    height, width = preprocess.input_hw
    padding = f' padded with {preprocess.pad_value}' if 'letterbox' in preprocess.resize else ''
    if preprocess.resize == 'center_crop':
        padding = f' of {preprocess.crop_fraction:.4g} of the shorter side'
    if preprocess.resize == 'bottom_crop':
        padding = f' of {preprocess.crop_fraction:.4g} of the height'
    averaged = ' with antialias' if preprocess.antialias else ''
    placement = f'{preprocess.resize}{padding}{averaged}'
    if crop is not None:
        placement = f'regions of {crop.scale:g} times the box, {crop.resize}'
    if tiles is not None:
        placement = (
            f'{tiles.columns}x{tiles.rows} tiles with overlap {tiles.overlap:g}, {placement}'
        )
    order = 'gray' if preprocess.channels == 1 else preprocess.channel_order
    if preprocess.channels == 4:
        order += ' and a fourth channel'
    line = (
        f'input {width}x{height} ({size_reason}), {placement}, '
        f'{order}, {preprocess.layout} {preprocess.dtype}, '
        f'scale {preprocess.scale:.6g}'
    )
    if any(preprocess.mean) or any(value != 1 for value in preprocess.std):
        for name, values in (('mean', preprocess.mean), ('std', preprocess.std)):
            line += f', {name} ({", ".join(f"{value:.6g}" for value in values)})'
    return line


def with_settings(options: PipelineOptions, settings: Mapping[str, str]) -> PipelineOptions:
    """Return options with a binding's settings; raises ParameterError if one is invalid."""
    values: dict[str, Any] = {
        each.name: _parsed(each.name, each.default, settings[each.name])
        for each in fields(options)
        if each.name in settings
    }
    return replace(options, **values) if values else options


def _parsed(name: str, default: Any, text: str) -> Any:
    try:
        if isinstance(default, bool):
            return {'true': True, 'false': False}[text.lower()]
        if isinstance(default, tuple):
            parse = int if name == 'input_size' else float
            return tuple(parse(part) for part in text.split(','))
        return type(default)(text)
    except (ValueError, KeyError):
        raise ParameterError(
            f'{name} is {text!r} in a binding of inputs.',
            remedy='Use a value as for the parameter of that name, with commas between numbers.',
        ) from None
