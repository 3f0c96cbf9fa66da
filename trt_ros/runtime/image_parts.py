"""Parts of an image that a network gets instead of the whole: regions and tiles."""

from dataclasses import replace
from typing import Any

from trt_ros.decode.choice import Decoder
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.runtime.options import PipelineOptions, RegionOptions, TiledOptions
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.regions import Crop, Tiles


def image_tiles(
    options: TiledOptions, decoder: Decoder[Any], preprocess: Preprocess, spec: TensorSpec
) -> Tiles:
    """Return the tiles of an image, whose results are merged; or raise."""
    head = decoder.head
    cause = ''
    if decoder.task not in ('detect', 'obb', 'pose') or head.takes_regions:
        cause = f'The decoder {decoder.name} does not find boxes in an image.'
    elif head.finds_instances:
        cause = 'Masks of objects that lie in several tiles cannot be merged.'
    elif head.proposes_regions:
        cause = 'The regions that it proposes for a further network cannot be merged.'
    elif not head.takes_batches:
        cause = 'Only the image input of the network has a batch dimension.'
    if cause:
        raise TensorMismatchError(
            f'tiles is {options.tiles!r}, which the network cannot use.',
            cause=cause,
            remedy='Leave tiles out, or use a network of boxes, rotated boxes or keypoints.',
        )
    if isinstance(options, RegionOptions) and options.regions:
        raise ParameterError(
            f'tiles is {options.tiles!r}, but regions is true.', remedy='Leave one of them out.'
        )
    tiles = Tiles(preprocess, *options.tile_grid, options.tile_overlap)
    if spec.shape[0] not in (-1, 1, tiles.count):
        raise TensorMismatchError(
            f'The input {spec} has a batch size of {spec.shape[0]}, but tiles is '
            f'{options.tiles!r}.',
            remedy=f'Export with a dynamic batch size, or one of {tiles.count}.',
        )
    return tiles


def region_crop(options: PipelineOptions, decoder: Decoder[Any], preprocess: Preprocess) -> Crop:
    """Return the preprocessing of regions by RegionOptions and that of whole images."""
    assert isinstance(options, RegionOptions)
    if not decoder.head.takes_regions:
        raise TensorMismatchError(
            f'The decoder {decoder.name} does not take regions, but regions is true.',
            cause='Its networks find the objects of a whole image.',
            remedy='Set regions to false, or use a network that takes one object, such as ViTPose '
            'or RTMPose for keypoints.',
        )
    if options.inputs:
        raise ParameterError(
            f'inputs is {list(options.inputs)}, but regions is true.',
            remedy='Leave inputs out: the only image input gets the regions.',
        )
    ignored = {
        'resize': options.resize != 'auto',
        'crop_fraction': options.crop_fraction,
        'antialias': options.antialias,
    }
    given = [name for name, is_given in ignored.items() if is_given]
    if given:
        raise ParameterError(
            f'{" and ".join(given)} cannot be applied to regions.',
            remedy=f'Leave {" and ".join(given)} out, and set region_resize or region_scale.',
        )
    resize, scale = options.region_resize, options.region_scale
    if resize == 'auto':
        resize = {'embed': 'stretch', 'text': 'line'}.get(decoder.task, 'expand')
    pad_value = preprocess.pad_value if resize == 'line' else max(options.pad_value, 0)
    return Crop(
        replace(preprocess, resize='stretch', pad_value=pad_value),
        scale or decoder.head.region_scale,
        resize,
    )
