"""What the GPU decodes by itself: vision's heads as C structs for the kernels of decode.cu."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import ctypes
from ctypes import c_double, c_float, c_int, c_void_p
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trt_ros.cuda.kernels import Size
from trt_ros.runtime.gpu.tensorrt_context import Shape, item_nbytes
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.boxes import BoxesHead
from trt_ros.vision.decoders.detr import DetrHead, sigmoid_without_last, softmax_without_last
from trt_ros.vision.decoders.family import sigmoid
from trt_ros.vision.decoders.registry import Decoder
from trt_ros.vision.decoders.semantic import SemanticHead
from trt_ros.vision.decoders.yolov5 import YoloV5Head
from trt_ros.vision.decoders.yolov8 import YoloV8Head
from trt_ros.vision.decoders.yolov10 import EndToEndHead
from trt_ros.vision.decoders.yolox import YoloxHead, grid
from trt_ros.vision.detections import Detections
from trt_ros.vision.grid import line
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.results import ClassMask
from trt_ros.vision.scores import check_range

MOST_DETECTIONS = 1024  # decode.cu: MOST
MOST_CANDIDATES, MOST_CLASSES = 1 << 20, 1 << 12  # decode.cu: bits of a key
HEADER_NBYTES = 16  # decode.cu: struct Result
MASK_AT = 256  # Behind the header, aligned.

# In the order of decode.cu's enums.
_FORMS = {'corners': 0, 'centres': 1, 'grid': 2}
_ACTIVATIONS = {'none': 0, 'sigmoid': 1, 'softmax': 2}
_INTEGERS = {'int32': 1, 'int64': 2}
_SCORES = 3
_FLOATS = ('float32', 'float16', 'bfloat16')

Address = Callable[[str], int]  # Of an output of one image, by name.


class Launch(NamedTuple):
    """One kernel of decode.cu."""

    function: str
    grid: Size
    block: Size
    argument: ctypes.Structure


class GpuDecoder(Protocol):
    """Decodes one image's outputs on the GPU."""

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU memory to work in; zero at first, and each frame leaves them fit again."""
        ...

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Bytes of host memory for what is found in an image of this size."""
        ...

    def launches(
        self, letterbox: Letterbox, address: Address, *, request: int, scratch: int, result: int
    ) -> tuple[Launch, ...]:
        """
        Say what to launch for an image.

        :param address: where the GPU finds an output; the others: a `RequestArgs`, the scratch
            memory, the host memory, likewise.
        """
        ...

    def read(self, memory: np.ndarray, image_wh: tuple[int, int]) -> tuple[Any, bool]:
        """
        Copy out what was found: the memory, (result_nbytes,) uint8, is the next frame's.

        :returns: what the decoder finds; and whether any value was NaN or infinite.
        :raises ScoreRangeError: when a score is outside 0 to 1.
        """
        ...


class HeadArgs(ctypes.Structure):
    """decode.cu: struct Head."""

    _fields_ = [
        *(
            (name, c_void_p)
            for name in (
                'boxes',
                'scores',
                'objectness',
                'labels',
                'count',
                'request',
                'counters',
                'keys',
                'result',
            )
        ),
        *(
            (name, c_int)
            for name in (
                'capacity',
                'limit',
                'rows',
                'classes',
                'a_row',
                'box_row',
                'box_column',
                'score_row',
                'score_column',
                'label_row',
                'label_kind',
                'count_kind',
                'form',
                'activation',
                'background',
                'competes',
            )
        ),
        ('box_width', c_float),
        ('box_height', c_float),
        ('input_width', c_int),
        ('input_height', c_int),
        ('levels', c_int),
        ('strides', c_int * 4),
        ('scale_x', c_float),
        ('scale_y', c_float),
        ('pad_x', c_float),
        ('pad_y', c_float),
        ('image_width', c_int),
        ('image_height', c_int),
    ]


class Part(NamedTuple):
    """
    Numbers within an output.

    :param start: of the first, in elements; `row`, `column`: from one to the next.
    """

    output: str
    dtype: str
    start: int
    row: int
    column: int = 1

    def at(self, address: Address) -> int:
        return address(self.output) + self.start * item_nbytes(self.dtype)


@dataclass(frozen=True)
class GpuBoxes:
    """
    Boxes and scores, and how the GPU reads them; the fields as in decode.cu's `Head`.

    :param select: 'columns' and 'rows' find the best class of each of `rows` boxes, whose scores
        lie side by side for each class, or for each box; with 'each', every score is a candidate.
    :param limit: how many boxes are ever wanted.
    """

    select: str
    rows: int
    classes: int
    boxes: Part
    scores: Part
    form: str = 'centres'
    objectness: Part | None = None
    labels: Part | None = None
    count: Part | None = None
    activation: str = 'none'
    background: int = 0
    competes: bool = True
    normalised: bool = False
    limit: int = MOST_DETECTIONS
    strides: tuple[int, ...] = ()

    @property
    def a_row(self) -> int:
        """Candidates that a row may give."""
        return self.classes if self.select == 'each' else 1

    @property
    def is_supported(self) -> bool:
        labels, count = self.labels, self.count
        return (
            self.scores.dtype in _FLOATS
            and self.boxes.dtype == self.scores.dtype
            and 0 < self.rows * self.a_row <= MOST_CANDIDATES
            and 0 < self.classes <= MOST_CLASSES
            and len(self.strides) <= 4
            and (
                labels is None
                or (
                    not self.competes
                    and (labels.dtype in _INTEGERS or labels.dtype == self.scores.dtype)
                )
            )
            and (count is None or count.dtype in _INTEGERS)
        )

    @property
    def scratch_nbytes(self) -> int:
        """Two counters, and a key a candidate."""
        return 8 + 8 * self.rows * self.a_row

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        return HEADER_NBYTES + 24 * MOST_DETECTIONS

    def launches(
        self, letterbox: Letterbox, address: Address, *, request: int, scratch: int, result: int
    ) -> tuple[Launch, ...]:
        height, width = letterbox.input_hw
        size = (width, height) if self.normalised else (1, 1)
        labels, count = self.labels, self.count
        args = HeadArgs(
            self.boxes.at(address),
            self.scores.at(address),
            self.objectness and self.objectness.at(address),
            labels and labels.at(address),
            count and count.at(address),
            request,
            scratch,
            scratch + 8,
            result,
            MOST_DETECTIONS,
            self.limit,
            self.rows,
            self.classes,
            self.a_row,
            self.boxes.row,
            self.boxes.column,
            self.scores.row,
            self.scores.column,
            labels.row if labels else 0,
            _INTEGERS.get(labels.dtype, _SCORES) if labels else 0,
            _INTEGERS[count.dtype] if count else 0,
            _FORMS[self.form],
            _ACTIVATIONS[self.activation],
            self.background,
            self.competes,
            *size,
            width,
            height,
            len(self.strides),
            (c_int * 4)(*(*self.strides, 0, 0, 0, 0)[:4]),
            *letterbox.scale_xy,
            *letterbox.pad_xy,
            *letterbox.image_wh,
        )
        per_block = {'columns': 32, 'rows': 8, 'each': 256}[self.select]
        blocks = -(-self.rows * self.a_row // per_block)
        dtype = self.scores.dtype
        return (
            Launch(f'select_{self.select}_{dtype}', (blocks, 1, 1), (32, 8, 1), args),
            Launch(f'suppress_{dtype}', (1, 1, 1), (1024, 1, 1), args),
        )

    def read(self, memory: np.ndarray, image_wh: tuple[int, int]) -> tuple[Detections, bool]:
        count, _, nonfinite, _ = memory[:HEADER_NBYTES].view(np.int32).tolist()
        numbers = (
            memory[HEADER_NBYTES : HEADER_NBYTES + 24 * MOST_DETECTIONS]
            .view(np.float32)
            .reshape(6, MOST_DETECTIONS)
        )
        return Detections(
            numbers[:4].reshape(-1, 4)[:count].copy(),
            check_range(numbers[4, :count].copy()),
            numbers[5, :count].view(np.int32).copy(),
        ), nonfinite > 0


class Axis(ctypes.Structure):
    """decode.cu: struct Axis."""

    _fields_ = [('origin', c_double), ('pitch', c_double), ('low', c_int), ('high', c_int)]


class ArgmaxArgs(ctypes.Structure):
    """decode.cu: struct Argmax."""

    _fields_ = [
        *((name, c_void_p) for name in ('cells', 'counters', 'result', 'mask')),
        *(
            (name, c_int)
            for name in (
                'classes',
                'cell_step',
                'line_step',
                'class_step',
                'width',
                'height',
                'pitch',
                'wide',
            )
        ),
        ('rows', Axis),
        ('columns', Axis),
    ]


@dataclass(frozen=True)
class GpuArgmax:
    """
    Scores of C classes a cell, of which the GPU finds the best at each pixel of the image.

    :param grid_hw: cells; `channels_first`: (C, h, w), else (h, w, C).
    """

    scores: Part
    classes: int
    grid_hw: tuple[int, int]
    channels_first: bool

    scratch_nbytes = 8  # The counters.

    @property
    def is_supported(self) -> bool:
        return self.scores.dtype in _FLOATS and 1 < self.classes <= 1 << 16

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        """The mask's, as on the CPU."""
        return np.uint8 if self.classes <= 256 else np.uint16

    def _pitch(self, width: int) -> int:
        return -(-width // 4) * 4

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        width, height = image_wh
        return MASK_AT + height * self._pitch(width) * self.dtype().itemsize

    def launches(
        self, letterbox: Letterbox, address: Address, *, request: int, scratch: int, result: int
    ) -> tuple[Launch, ...]:
        (rows, columns), (width, height) = self.grid_hw, letterbox.image_wh
        steps = (
            (1, columns, rows * columns)
            if self.channels_first
            else (self.classes, columns * self.classes, 1)
        )
        args = ArgmaxArgs(
            self.scores.at(address),
            scratch,
            result,
            result + MASK_AT,
            self.classes,
            *steps,
            width,
            height,
            self._pitch(width),
            self.dtype is np.uint16,
            Axis(*line(letterbox, 1, rows)),
            Axis(*line(letterbox, 0, columns)),
        )
        blocks = (-(-width // 128), -(-height // 8), 1)
        return (
            Launch(f'argmax_{self.scores.dtype}', blocks, (32, 8, 1), args),
            Launch('finish', (1, 1, 1), (1, 1, 1), args),
        )

    def read(self, memory: np.ndarray, image_wh: tuple[int, int]) -> tuple[ClassMask, bool]:
        width, height = image_wh
        mask = memory[MASK_AT : self.result_nbytes(image_wh)].view(self.dtype)
        return (
            ClassMask(mask.reshape(height, self._pitch(width))[:, :width].copy()),
            bool(memory[:HEADER_NBYTES].view(np.int32)[2]),
        )


def gpu_decoder(
    decoder: Decoder[Any],
    outputs: Sequence[TensorSpec],
    shapes: Mapping[str, Shape],
    input_hw: tuple[int, int],
) -> GpuDecoder | None:
    """
    Find how the GPU decodes what `decoder` reads; None where only the CPU can, or, as it does
    with shapes that do not fit together, says what is wrong.

    :param shapes: of the outputs, for the present inputs.
    :param input_hw: of the network's images.
    """
    head, dtypes = decoder.head, {spec.name: spec.dtype for spec in outputs}

    def part(output: str, start: int, row: int, column: int = 1) -> Part:
        return Part(output, dtypes[output], start, row, column)

    found: GpuBoxes | GpuArgmax | None = None
    if isinstance(head, YoloV8Head):
        name = head.output_name
        _, first, second = shapes[name]
        if head.channels_first:
            found = GpuBoxes(
                'columns',
                second,
                first - 4,
                part(name, 0, 1, second),
                part(name, 4 * second, 1, second),
            )
        else:
            found = GpuBoxes(
                'rows', first, second - 4, part(name, 0, second), part(name, 4, second)
            )
    elif isinstance(head, (YoloxHead, YoloV5Head)):
        name = head.output_name
        _, rows, step = shapes[name]
        strides = head.strides if isinstance(head, YoloxHead) else ()
        if strides and rows != len(grid(input_hw, strides)):
            return None
        objectness = part(name, 4, step)
        is_only = isinstance(head, YoloV5Head) and head.objectness_only and step == 6
        found = GpuBoxes(
            'rows',
            rows,
            step - 5,
            part(name, 0, step),
            objectness if is_only else part(name, 5, step),
            'grid' if strides else 'centres',
            None if is_only else objectness,
            strides=strides,
        )
    elif isinstance(head, EndToEndHead) and shapes[head.output_name][2] == 6:
        name = head.output_name
        found = GpuBoxes(
            'each',
            shapes[name][1],
            1,
            part(name, 0, 6),
            part(name, 4, 6),
            'centres' if head.is_rtdetr else 'corners',
            labels=part(name, 5, 6),
            competes=False,
            normalised=head.is_rtdetr,
        )
    elif isinstance(head, DetrHead):
        found = _detr(head, shapes, part)
    elif isinstance(head, BoxesHead):
        found = _boxes(head, shapes, part)
    elif isinstance(head, SemanticHead) and not head.is_classes:
        _, *size = shapes[head.output_name]
        classes, rows, columns = size if head.channels_first else (size[2], *size[:2])
        found = GpuArgmax(
            part(head.output_name, 0, 0), classes, (rows, columns), head.channels_first
        )
    return found if found is not None and found.is_supported else None


def _detr(
    head: DetrHead, shapes: Mapping[str, Shape], part: Callable[..., Part]
) -> GpuBoxes | None:
    name = head.logits_name
    _, rows, step = shapes[name]
    if head.boxes_name and shapes[head.boxes_name][1:] != (rows, 4):
        return None
    before = 0 if head.boxes_name else 4
    boxes = part(head.boxes_name, 0, 4) if head.boxes_name else part(name, 0, step)
    is_softmax = head.to_scores is softmax_without_last
    is_sigmoid = head.to_scores in (sigmoid, sigmoid_without_last)
    classes = step - before - (head.to_scores in (softmax_without_last, sigmoid_without_last))
    return GpuBoxes(
        'rows' if is_softmax else 'each',
        rows,
        classes,
        boxes,
        part(name, before, step),
        activation='softmax' if is_softmax else 'sigmoid' if is_sigmoid else 'none',
        competes=False,
        normalised=True,
        limit=rows,
    )


def _boxes(
    head: BoxesHead, shapes: Mapping[str, Shape], part: Callable[..., Part]
) -> GpuBoxes | None:
    parts = head.parts
    *_, rows, columns = shapes[parts.boxes.name]
    if columns != 4 or any(
        shapes[spec.name][parts.batched] != rows for spec in (parts.scores, parts.labels) if spec
    ):
        return None
    classes = shapes[parts.scores.name][-1] if parts.score_axes == 2 else 1
    return GpuBoxes(
        'each',
        rows,
        classes,
        part(parts.boxes.name, 0, 4),
        part(parts.scores.name, 0, classes),
        'corners',
        labels=part(parts.labels.name, 0, 1) if parts.labels else None,
        count=part(parts.count.name, 0, 0) if parts.count else None,
        background=int(head.has_background),
        competes=head.suppress,
        normalised=head.normalised,
    )
