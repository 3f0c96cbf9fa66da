"""Arguments of the preprocessing kernel, and the request struct with the thresholds."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_void_p
from dataclasses import dataclass

import numpy as np

from trt_ros.cuda.kernels import Kernels
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

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
_DTYPES = {'float32': 0, 'float16': 1, 'bfloat16': 2, 'uint8': 3}


class PreprocessArgs(ctypes.Structure):
    """Arguments of the kernel; preprocess.cu: struct Preprocess."""

    _fields_ = [
        ('source', c_void_p),
        ('target', c_void_p),
        ('width', c_int),
        ('height', c_int),
        ('step', c_int),
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
        ('pad', c_float),
        ('multiply', c_float * 3),
        ('add', c_float * 3),
    ]


class RequestArgs(ctypes.Structure):
    """Parameters that may differ between frames of one graph; decode.cu: struct Request."""

    _fields_ = [
        ('score_threshold', c_float),
        ('iou_threshold', c_float),
        ('max_detections', c_int),
        ('reserved', c_int),
    ]


@dataclass(frozen=True)
class Geometry:
    """Size, row step and encoding of a frame; frames of equal geometry share a graph."""

    width: int
    height: int
    step: int
    encoding: str
    is_bigendian: bool

    @classmethod
    def of(cls, frame: Frame) -> Geometry:
        """Return the geometry of a frame."""
        return cls(frame.width, frame.height, frame.step, frame.encoding, frame.is_bigendian)


def preprocess_args(
    preprocess: Preprocess, geometry: Geometry, source: int, target: int
) -> PreprocessArgs:
    """
    Return the kernel arguments for preprocessing one frame.

    :param source: GPU address of the frame's bytes.
    :param target: GPU address of this image in the network's input.
    """
    box = preprocess.letterbox((geometry.width, geometry.height))
    inner_width, inner_height = box.inner_wh
    gain = np.float32(preprocess.scale) / np.array(preprocess.std, np.float32)
    bias = np.array(preprocess.mean, np.float32) / np.array(preprocess.std, np.float32)
    step_x, step_y = geometry.width / inner_width, geometry.height / inner_height
    height, width = preprocess.input_hw
    return PreprocessArgs(
        source,
        target,
        geometry.width,
        geometry.height,
        geometry.step,
        _ENCODINGS[geometry.encoding],
        geometry.is_bigendian,
        width,
        height,
        int(box.pad_xy[0]),
        int(box.pad_xy[1]),
        inner_width,
        inner_height,
        step_x,
        step_y,
        preprocess.antialias and step_x > 2,
        preprocess.antialias and step_y > 2,
        preprocess.channel_order == 'bgr',
        preprocess.layout == 'nhwc',
        _DTYPES[preprocess.dtype],
        float(preprocess.pad_value),
        (c_float * 3)(*gain),
        (c_float * 3)(*-bias),
    )


def launch_preprocess(kernels: Kernels, args: PreprocessArgs, stream: int) -> None:
    """Enqueue the preprocessing of one image into `stream`."""
    grid = (-(-args.input_width // 32), -(-args.input_height // 8), 1)
    kernels.launch('preprocess', grid, (32, 8, 1), args, stream)


def request_view(memory: np.ndarray) -> RequestArgs:
    """Return a RequestArgs in pinned bytes, (16,) uint8, which it borrows."""
    return RequestArgs.from_buffer(memory.data)
