"""The kernels of a frame and what they are told: vision's numbers as C structs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import ctypes
from ctypes import c_float, c_int, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from trt_ros.cuda.kernels import Kernels
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoder import Decoder
from trt_ros.vision.detections import Detections
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.yolov8 import YoloV8Head
from trt_ros.vision.yolox import YoloxHead

MOST_DETECTIONS = 1024  # detect.cu: MOST
MOST_ANCHORS, MOST_CLASSES = 1 << 20, 1 << 12  # detect.cu: bits of a key

# In the order of preprocess.cu's enum.
_ENCODINGS = {name: number for number, names in enumerate((
    ('rgb8',), ('bgr8', '8UC3'), ('rgba8',), ('bgra8',), ('mono8', '8UC1'),
    ('mono16', '16UC1'), ('yuv422', 'uyvy'), ('yuv422_yuy2', 'yuyv'), ('nv12',), ('nv21',),
    ('bayer_rggb8',), ('bayer_bggr8',), ('bayer_gbrg8',), ('bayer_grbg8',))) for name in names}
_DTYPES = {'float32': 0, 'float16': 1, 'bfloat16': 2, 'uint8': 3}


class PreprocessArgs(ctypes.Structure):
    """preprocess.cu: struct Preprocess."""

    _fields_ = [
        ('source', c_void_p), ('target', c_void_p),
        ('width', c_int), ('height', c_int), ('step', c_int),
        ('encoding', c_int), ('big_endian', c_int),
        ('input_width', c_int), ('input_height', c_int),
        ('left', c_int), ('top', c_int), ('content_width', c_int), ('content_height', c_int),
        ('step_x', c_float), ('step_y', c_float), ('area_x', c_int), ('area_y', c_int),
        ('bgr', c_int), ('nhwc', c_int), ('dtype', c_int), ('pad', c_float),
        ('multiply', c_float * 3), ('add', c_float * 3)]


class RequestArgs(ctypes.Structure):
    """detect.cu: struct Request; what may differ from frame to frame of one graph."""

    _fields_ = [('score_threshold', c_float), ('iou_threshold', c_float),
                ('max_detections', c_int), ('reserved', c_int)]


class HeadArgs(ctypes.Structure):
    """detect.cu: struct Head."""

    _fields_ = [
        ('values', c_void_p), ('request', c_void_p), ('counters', c_void_p), ('keys', c_void_p),
        ('result', c_void_p),
        ('capacity', c_int), ('anchors', c_int), ('classes', c_int),
        ('input_width', c_int), ('input_height', c_int), ('levels', c_int), ('strides', c_int * 4),
        ('scale_x', c_float), ('scale_y', c_float), ('pad_x', c_float), ('pad_y', c_float),
        ('image_width', c_int), ('image_height', c_int)]


@dataclass(frozen=True)
class Geometry:
    """All of a frame that a graph is captured for; frames with equal ones share a graph."""

    width: int
    height: int
    step: int
    encoding: str
    is_bigendian: bool

    @classmethod
    def of(cls, frame: Frame) -> Geometry:
        return cls(frame.width, frame.height, frame.step, frame.encoding, frame.is_bigendian)


def preprocess_args(
        preprocess: Preprocess, geometry: Geometry, source: int, target: int) -> PreprocessArgs:
    """
    Say to the kernel what `preprocess` does to a frame.

    :param source: where the GPU reads the frame's bytes.
    :param target: where this image begins in the network's input.
    """
    box = preprocess.letterbox((geometry.width, geometry.height))
    inner_width, inner_height = box.inner_wh
    gain = np.float32(preprocess.scale) / np.array(preprocess.std, np.float32)
    bias = np.array(preprocess.mean, np.float32) / np.array(preprocess.std, np.float32)
    step_x, step_y = geometry.width / inner_width, geometry.height / inner_height
    height, width = preprocess.input_hw
    return PreprocessArgs(
        source, target, geometry.width, geometry.height, geometry.step,
        _ENCODINGS[geometry.encoding], geometry.is_bigendian, width, height,
        int(box.pad_xy[0]), int(box.pad_xy[1]), inner_width, inner_height, step_x, step_y,
        preprocess.antialias and step_x > 2, preprocess.antialias and step_y > 2,
        preprocess.channel_order == 'bgr', preprocess.layout == 'nhwc', _DTYPES[preprocess.dtype],
        float(preprocess.pad_value), (c_float * 3)(*gain), (c_float * 3)(*-bias))


def launch_preprocess(kernels: Kernels, args: PreprocessArgs, stream: int) -> None:
    grid = (-(-args.input_width // 32), -(-args.input_height // 8), 1)
    kernels.launch('preprocess', grid, (32, 8, 1), args, stream)


@dataclass(frozen=True)
class GpuHead:
    """
    A raw detection head that the GPU decodes.

    :param family: 'yolov8' (4 + classes, anchors) or 'yolox' (anchors, 5 + classes).
    :param strides: of YOLOX's grid; empty when the network has already applied it.
    """

    family: str
    spec: TensorSpec
    anchors: int
    classes: int
    strides: tuple[int, ...] = ()

    @property
    def is_supported(self) -> bool:
        return (self.spec.dtype in ('float32', 'float16', 'bfloat16')
                and 0 < self.anchors <= MOST_ANCHORS and 0 < self.classes <= MOST_CLASSES
                and len(self.strides) <= 4)

    @property
    def scratch_nbytes(self) -> int:
        """Two counters, which start as zero, and a key an anchor."""
        return 8 + 8 * self.anchors

    def args(self, letterbox: Letterbox, *, values: int, request: int, scratch: int,
             result: int, capacity: int) -> HeadArgs:
        height, width = letterbox.input_hw
        strides = (*self.strides, 0, 0, 0, 0)[:4]
        return HeadArgs(
            values, request, scratch, scratch + 8, result, capacity, self.anchors, self.classes,
            width, height, len(self.strides), (c_int * 4)(*strides), *letterbox.scale_xy,
            *letterbox.pad_xy, *letterbox.image_wh)

    def launch(self, kernels: Kernels, args: HeadArgs, stream: int) -> None:
        """Put selection and suppression of one image into the stream."""
        name = f'{self.family}_{self.spec.dtype}'
        per_block = 32 if self.family == 'yolov8' else 8
        kernels.launch(
            f'select_{name}', (-(-self.anchors // per_block), 1, 1), (32, 8, 1), args, stream)
        kernels.launch(f'suppress_{name}', (1, 1, 1), (1024, 1, 1), args, stream)


def gpu_head(decoder: Decoder[Any], outputs: Sequence[TensorSpec],
             shapes: Mapping[str, tuple[int, ...]]) -> GpuHead | None:
    """
    Find how the GPU decodes what `decoder` reads; None where only the CPU can.

    :param shapes: of the outputs, for the present inputs.
    """
    head = decoder.head
    found: GpuHead | None = None
    if isinstance(head, YoloV8Head) and head.channels_first:
        spec = _output(outputs, head.output_name)
        _, channels, anchors = shapes[spec.name]
        found = GpuHead('yolov8', spec, anchors, channels - 4)
    elif isinstance(head, YoloxHead):
        spec = _output(outputs, head.output_name)
        _, anchors, channels = shapes[spec.name]
        found = GpuHead('yolox', spec, anchors, channels - 5, head.strides)
    return found if found is not None and found.is_supported else None


def _output(outputs: Sequence[TensorSpec], name: str) -> TensorSpec:
    return next(spec for spec in outputs if spec.name == name)


def result_nbytes(capacity: int) -> int:
    """Bytes of one image's result: four ints, then boxes, scores and labels."""
    return 16 + 24 * capacity


@dataclass(frozen=True)
class ResultView:
    """
    One image's result in pinned memory; borrows it.

    :param counts: (4,) int32: boxes, candidates above the threshold, NaN or Inf values, 0.
    """

    counts: np.ndarray
    xyxy: np.ndarray
    scores: np.ndarray
    labels: np.ndarray

    @classmethod
    def on(cls, memory: np.ndarray, capacity: int) -> ResultView:
        """:param memory: (result_nbytes(capacity),) uint8."""
        first, second = 16 + 16 * capacity, 16 + 20 * capacity
        return cls(
            memory[:16].view(np.int32), memory[16:first].view(np.float32).reshape(-1, 4),
            memory[first:second].view(np.float32), memory[second:second + 4 * capacity].view(
                np.int32))

    def take(self) -> Detections:
        """Copy out what was found: the memory is the next frame's."""
        count = int(self.counts[0])
        return Detections(
            self.xyxy[:count].copy(), self.scores[:count].copy(), self.labels[:count].copy())


def request_view(memory: np.ndarray) -> RequestArgs:
    """See pinned bytes, (16,) uint8, as a RequestArgs; borrows them."""
    return RequestArgs.from_buffer(memory.data)
