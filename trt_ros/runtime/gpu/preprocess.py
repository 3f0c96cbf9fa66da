"""Arguments of the preprocessing kernel."""

from __future__ import annotations

from collections.abc import Sequence
import ctypes
from ctypes import c_double, c_float, c_int, c_void_p
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from trt_ros.cuda.copies import Blocks
from trt_ros.cuda.kernels import Kernels
from trt_ros.decode.cuda.decoder import fields
from trt_ros.errors import BadFrameError, TensorMismatchError
from trt_ros.vision.frame import DEPTH_ENCODINGS, Frame, refuse_depth
from trt_ros.vision.lens import Lens
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.regions import REGION_RESIZES, Crop, Tiles
from trt_ros.vision.resample import UNITS_16, refuse_opaque

# In the order of preprocess.cu's enum.
_ENCODINGS = {
    name: number
    for number, names in enumerate(
        (
            ('rgb8',),
            ('bgr8', '8UC3'),
            ('rgba8',),
            ('bgra8',),
            ('mono8', '8UC1'),
            ('mono16',),
            ('yuv422', 'uyvy'),
            ('yuv422_yuy2', 'yuyv'),
            ('nv12',),
            ('nv21',),
            ('bayer_rggb8',),
            ('bayer_bggr8',),
            ('bayer_gbrg8',),
            ('bayer_grbg8',),
        )
    )
    for name in names
}
_ALPHA, _VALUE16, _VALUE32 = range(14, 17)
_COLORS, _LUMA, _VALUE = range(3)  # preprocess.cu: enum Written.
_DTYPES = {'float32': 0, 'float16': 1, 'bfloat16': 2, 'uint8': 3}


def refuse_other_dtypes(preprocess: Preprocess) -> None:
    """Raise TensorMismatchError if the kernel cannot write the dtype of an input."""
    if preprocess.dtype not in _DTYPES:
        raise TensorMismatchError(
            f'The GPU cannot preprocess images for an input of {preprocess.dtype}.',
            cause=f'It writes {", ".join(_DTYPES)}.',
            remedy='Set model_path to the ONNX file, whose engine is then built to take uint8.',
        )


class PreprocessArgs(ctypes.Structure):
    """Arguments of the kernel; preprocess.cu: struct Preprocess."""

    kernel = 'preprocess'
    _fields_ = [
        *fields(c_void_p, 'source target'),
        *fields(c_int, 'width height step first_x first_y whole_width whole_height'),
        *fields(c_int, 'encoding big_endian'),
        *fields(c_int, 'input_width input_height left top content_width content_height'),
        *fields(c_float, 'step_x step_y'),
        *fields(c_int, 'area_x area_y bgr nhwc dtype written channel channels'),
        *fields(c_float, 'unit pad'),
        *fields(c_float * 3, 'multiply add'),
    ]


class RectifiedArgs(PreprocessArgs):
    """Arguments of the kernel of an image with a lens; preprocess.cu: struct Rectified."""

    kernel = 'rectify'
    _fields_ = [
        ('rays', c_float * 9),
        ('k', c_float * 4),
        ('d', c_float * 12),
        ('equidistant', c_int),
    ]


class CropArgs(ctypes.Structure):
    """Arguments of the kernel of regions; preprocess.cu: struct Crop."""

    _fields_ = [('image', PreprocessArgs), ('maps', c_void_p)]


class RegionArgs(ctypes.Structure):
    """Arguments of the kernel that places regions; preprocess.cu: struct Regions."""

    _fields_ = [
        *fields(c_void_p, 'result maps placed chosen'),
        ('scale', c_double),
        *fields(c_int, 'capacity rows count is_rotated resize'),
        *fields(c_int, 'width height input_width input_height'),
    ]


@dataclass(frozen=True)
class Geometry:
    """
    Size, row step, encoding and lens of a frame; frames of equal geometry share a graph.

    :param blocks: the rows that kernels get, if these are not all.
    """

    width: int
    height: int
    step: int
    encoding: str
    is_bigendian: bool
    lens: Lens | None = None
    blocks: Blocks | None = None

    @classmethod
    def of(cls, frame: Frame) -> Geometry:
        """Return the geometry of a frame."""
        return cls(*frame.layout)


def blocks_read(preprocess: Preprocess, geometry: Geometry) -> Blocks | None:
    """
    Return the rows that the resizing of an image reads; None where that are all.

    An integer number of rows per pixel is interpolated from the middle one of them, or the middle
    two.
    """
    rows = preprocess.letterbox((geometry.width, geometry.height)).inner_wh[1]
    period, rest = divmod(geometry.height, rows)
    is_by_row = geometry.lens is None and not geometry.encoding.startswith(('nv', 'bayer'))
    if rest or period < 3 or preprocess.antialias or not is_by_row:
        return None
    step = geometry.step
    return Blocks((period - 1) // 2 * step, period * step, (2 - period % 2) * step, rows)


def preprocess_args(
    preprocess: Preprocess, geometries: Sequence[Geometry], sources: Sequence[int], target: int
) -> list[PreprocessArgs]:
    """
    Return the arguments of each kernel launch that writes one image of a network's input.

    :param geometries: of the image and, with 4 channels, maybe of a second one.
    :param sources: GPU address of the bytes of each.
    :param target: GPU address of this image in the network's input.
    :raises BadFrameError: 'depth image', for one where colors are expected; 'no fourth channel',
        with 4 channels, for an image without alpha and no second one.
    """
    letterbox = preprocess.letterbox((geometries[0].width, geometries[0].height))
    write = partial(_args, target=target, letterbox=letterbox)
    if preprocess.channels == 1:
        return [write(preprocess, geometries[0], sources[0], _read_gray(geometries[0].encoding))]
    refuse_depth(geometries[0].encoding)
    colors = write(preprocess, geometries[0], sources[0], _read_colors(geometries[0].encoding))
    if preprocess.channels != 4:
        return [colors]
    padded_with_0 = replace(preprocess, pad_value=0)
    read = _Read(_ALPHA, _VALUE)
    if len(geometries) == 2:
        read = _read_gray(geometries[1].encoding)
    else:
        refuse_opaque(geometries[0].encoding)
    return [colors, write(padded_with_0, geometries[-1], sources[-1], read, channel=3)]


class _Read(NamedTuple):
    """How the kernel reads pixels (enum Encoding), what it writes (Written), and their unit."""

    encoding: int
    written: int
    unit: float = 1.0


def _read_colors(encoding: str) -> _Read:
    return _Read(_ENCODINGS[encoding], _COLORS)


def _read_gray(encoding: str) -> _Read:
    if encoding in UNITS_16:
        return _Read(_VALUE16, _VALUE, UNITS_16[encoding])
    if encoding in DEPTH_ENCODINGS:
        return _Read(_VALUE32, _VALUE)
    return _Read(_ENCODINGS[encoding], _VALUE if encoding in ('mono8', '8UC1') else _LUMA)


def _args(
    preprocess: Preprocess,
    geometry: Geometry,
    source: int,
    read: _Read,
    target: int,
    letterbox: Letterbox,
    channel: int = 0,
) -> PreprocessArgs:
    """Return the arguments of one launch, which writes channels from `channel` on."""
    if geometry.encoding in DEPTH_ENCODINGS:
        preprocess = preprocess.for_depth()
    image_wh, inner_wh = (geometry.width, geometry.height), letterbox.inner_wh
    blocks, rows = geometry.blocks, geometry.height
    if blocks is not None:
        rows = blocks.count * blocks.nbytes // geometry.step
    read_wh = geometry.width, rows
    steps = [size / inner for size, inner in zip(read_wh, inner_wh)]
    is_color = read.written == _COLORS
    channels = slice(channel, channel + (3 if is_color else 1))
    image = (*read_wh, geometry.step, 0, 0, *image_wh, read.encoding, geometry.is_bigendian)
    content = (*preprocess.input_hw[::-1], *map(int, letterbox.pad_xy), *inner_wh)
    areas = [preprocess.antialias and step > 2 for step in steps]
    is_bgr = is_color and preprocess.channel_order == 'bgr'
    layout = is_bgr, preprocess.layout == 'nhwc', _DTYPES[preprocess.dtype]
    values = read.unit, float(preprocess.pad_value)
    factors = (c_float * 3)(*preprocess.gain[channels]), (c_float * 3)(*-preprocess.bias[channels])
    written = read.written, channel, preprocess.channels
    args = (source, target, *image, *content, *steps, *areas, *layout, *written, *values, *factors)
    lens = geometry.lens
    if lens is None:
        return PreprocessArgs(*args)
    return RectifiedArgs(
        *args,
        (c_float * 9)(*lens.rays.ravel()),
        (c_float * 4)(*lens.k),
        (c_float * 12)(*lens.d),
        lens.model == 'equidistant',
    )


def launch_preprocess(kernels: Kernels, args: PreprocessArgs, stream: int) -> None:
    """Enqueue the preprocessing of one image into `stream`."""
    kernels.launch(args.kernel, _grid(args, 1), (32, 8, 1), args, stream)


def tile_args(
    tiles: Tiles, geometry: Geometry, source: int, target: int, nbytes: int
) -> list[PreprocessArgs]:
    """Return the arguments of a launch per tile, `nbytes` apart in the input; or raise."""
    letterbox, origins = tiles.places((geometry.width, geometry.height))
    width, height = letterbox.image_wh
    found = []
    for index, (left, top) in enumerate(origins.tolist()):
        tile = replace(geometry, width=width, height=height)
        for args in preprocess_args(tiles.preprocess, [tile], [source], target + index * nbytes):
            args.first_x, args.first_y = left, top
            args.whole_width, args.whole_height = geometry.width, geometry.height
            found.append(args)
    return found


def crop_args(
    preprocess: Preprocess, geometry: Geometry, source: int, target: int, maps: int
) -> CropArgs:
    """
    Return the kernel arguments for cutting regions out of one frame.

    :param source: GPU address of the frame's bytes.
    :param target: GPU address of the network's input.
    :param maps: GPU address of the map of each region, (8,) float32; see Crop.maps.
    :raises BadFrameError: 'depth image', for an encoding of them; 'raw image', with a lens.
    """
    refuse_depth(geometry.encoding)
    letterbox = preprocess.letterbox((geometry.width, geometry.height))
    if geometry.lens is not None:
        raise BadFrameError('raw image', 'Regions are cut out of rectified images only.')
    read = _read_colors(geometry.encoding)
    return CropArgs(_args(preprocess, geometry, source, read, target, letterbox), maps)


def region_args(crop: Crop, geometry: Geometry) -> RegionArgs:
    """Return the kernel arguments for placing regions of a frame, but for its memory."""
    height, width = crop.preprocess.input_hw
    return RegionArgs(
        resize=REGION_RESIZES.index(crop.resize),
        width=geometry.width,
        height=geometry.height,
        input_width=width,
        input_height=height,
        scale=crop.scale,
    )


def launch_crop(kernels: Kernels, args: CropArgs, regions: int, stream: int) -> None:
    """Enqueue the cutting of all regions of an image into `stream`."""
    kernels.launch('crop', _grid(args.image, regions), (32, 8, 1), args, stream)


def _grid(args: PreprocessArgs, images: int) -> tuple[int, int, int]:
    return -(-args.input_width // 32), -(-args.input_height // 8), images
