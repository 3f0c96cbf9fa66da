"""Arguments of the preprocessing kernel."""

from __future__ import annotations

from collections.abc import Sequence
import ctypes
from ctypes import c_double, c_float, c_int, c_void_p
from dataclasses import dataclass, replace

from trt_ros.cuda.kernels import Kernels
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
        ('source', c_void_p),
        ('target', c_void_p),
        ('width', c_int),
        ('height', c_int),
        ('step', c_int),
        ('first_x', c_int),
        ('first_y', c_int),
        ('whole_width', c_int),
        ('whole_height', c_int),
        ('encoding', c_int),
        ('big_endian', c_int),
        ('input_width', c_int),
        ('input_height', c_int),
        ('left', c_int),
        ('top', c_int),
        ('content_width', c_int),
        ('content_height', c_int),
        ('step_x', c_float),
        ('step_y', c_float),
        ('area_x', c_int),
        ('area_y', c_int),
        ('bgr', c_int),
        ('nhwc', c_int),
        ('dtype', c_int),
        ('written', c_int),
        ('channel', c_int),
        ('channels', c_int),
        ('unit', c_float),
        ('pad', c_float),
        ('multiply', c_float * 3),
        ('add', c_float * 3),
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
        ('result', c_void_p),
        ('maps', c_void_p),
        ('placed', c_void_p),
        ('chosen', c_void_p),
        ('scale', c_double),
        ('capacity', c_int),
        ('rows', c_int),
        ('count', c_int),
        ('is_rotated', c_int),
        ('resize', c_int),
        ('width', c_int),
        ('height', c_int),
        ('input_width', c_int),
        ('input_height', c_int),
    ]


@dataclass(frozen=True)
class Geometry:
    """Size, row step, encoding and lens of a frame; frames of equal geometry share a graph."""

    width: int
    height: int
    step: int
    encoding: str
    is_bigendian: bool
    lens: Lens | None = None

    @classmethod
    def of(cls, frame: Frame) -> Geometry:
        """Return the geometry of a frame."""
        size = frame.width, frame.height, frame.step
        return cls(*size, frame.encoding, frame.is_bigendian, frame.lens)


def preprocess_args(
    preprocess: Preprocess,
    geometries: Sequence[Geometry],
    sources: Sequence[int],
    target: int,
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
    if preprocess.channels == 1:
        return [_gray_args(preprocess, geometries[0], sources[0], target, letterbox, channel=0)]
    refuse_depth(geometries[0].encoding)
    args = [
        _args(
            preprocess,
            geometries[0],
            sources[0],
            target,
            letterbox,
            (_ENCODINGS[geometries[0].encoding], _COLORS, 1.0),
            channel=0,
        )
    ]
    if preprocess.channels == 4:
        padded_with_0 = replace(preprocess, pad_value=0)
        if len(geometries) == 2:
            args.append(
                _gray_args(padded_with_0, geometries[1], sources[1], target, letterbox, channel=3)
            )
        else:
            refuse_opaque(geometries[0].encoding)
            read = (_ALPHA, _VALUE, 1.0)
            args.append(
                _args(padded_with_0, geometries[0], sources[0], target, letterbox, read, channel=3)
            )
    return args


def _gray_args(
    preprocess: Preprocess,
    geometry: Geometry,
    source: int,
    target: int,
    letterbox: Letterbox,
    *,
    channel: int,
) -> PreprocessArgs:
    encoding = geometry.encoding
    if encoding in UNITS_16:
        read = (_VALUE16, _VALUE, UNITS_16[encoding])
    elif encoding in DEPTH_ENCODINGS:
        read = (_VALUE32, _VALUE, 1.0)
    else:
        read = (_ENCODINGS[encoding], _VALUE if encoding in ('mono8', '8UC1') else _LUMA, 1.0)
    if encoding in DEPTH_ENCODINGS:
        preprocess = preprocess.for_depth()
    return _args(preprocess, geometry, source, target, letterbox, read, channel=channel)


def _args(
    preprocess: Preprocess,
    geometry: Geometry,
    source: int,
    target: int,
    letterbox: Letterbox,
    read: tuple[int, int, float],
    *,
    channel: int,
) -> PreprocessArgs:
    """Return the arguments of one launch, which writes channels from `channel` on."""
    encoding, written, unit = read
    inner_width, inner_height = letterbox.inner_wh
    step_x, step_y = geometry.width / inner_width, geometry.height / inner_height
    height, width = preprocess.input_hw
    count = 3 if written == _COLORS else 1
    gain = preprocess.gain[channel : channel + count]
    bias = preprocess.bias[channel : channel + count]
    args = (
        source,
        target,
        geometry.width,
        geometry.height,
        geometry.step,
        0,
        0,
        geometry.width,
        geometry.height,
        encoding,
        geometry.is_bigendian,
        width,
        height,
        int(letterbox.pad_xy[0]),
        int(letterbox.pad_xy[1]),
        inner_width,
        inner_height,
        step_x,
        step_y,
        preprocess.antialias and step_x > 2,
        preprocess.antialias and step_y > 2,
        written == _COLORS and preprocess.channel_order == 'bgr',
        preprocess.layout == 'nhwc',
        _DTYPES[preprocess.dtype],
        written,
        channel,
        preprocess.channels,
        unit,
        float(preprocess.pad_value),
        (c_float * 3)(*gain),
        (c_float * 3)(*-bias),
    )
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
    grid = (-(-args.input_width // 32), -(-args.input_height // 8), 1)
    kernels.launch(args.kernel, grid, (32, 8, 1), args, stream)


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
    read = (_ENCODINGS[geometry.encoding], _COLORS, 1.0)
    return CropArgs(_args(preprocess, geometry, source, target, letterbox, read, channel=0), maps)


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
    image = args.image
    grid = (-(-image.input_width // 32), -(-image.input_height // 8), regions)
    kernels.launch('crop', grid, (32, 8, 1), args, stream)
