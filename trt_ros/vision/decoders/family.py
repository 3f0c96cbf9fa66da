"""What each model family brings: how its networks are fed and decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

#: How the YOLO families but YOLOX, and what is made of them, take their images.
YOLO_PREPROCESS: Mapping[str, object] = {
    'resize': 'letterbox',
    'pad_value': 114,
    'channel_order': 'rgb',
    'scale': 1 / 255,
}


@dataclass(frozen=True)
class NetworkDescription:
    """
    All that is known of a network before it runs.

    :param metadata: the ONNX file's.
    :param input_hw: height and width of its images.
    :param class_count: how many classes the user or the metadata names; None: not known.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: Mapping[str, str]
    input_hw: tuple[int, int]
    class_count: int | None = None

    @property
    def only_output(self) -> TensorSpec:
        """:raises TensorMismatchError: when there are more outputs, or none."""
        if len(self.outputs) != 1:
            raise TensorMismatchError(
                f'One output was expected, not {len(self.outputs)}.',
                cause=f'Seen: {self}.',
                remedy='Export the detector alone, without masks, keypoints or NMS.',
            )
        return self.outputs[0]

    def anchor_count(self, strides: tuple[int, ...]) -> int:
        """Count the cells of all grids, one grid a stride; 8400 for 8, 16, 32 at 640 × 640."""
        height, width = self.input_hw
        return sum((height // stride) * (width // stride) for stride in strides)

    @property
    def is_ultralytics_rtdetr(self) -> bool:
        """Newer metadata names the last layer, older only the file the network came from."""
        said = self.metadata.get('head', '') + self.metadata.get('description', '')
        return 'task' in self.metadata and 'rtdetr' in said.lower()

    def __str__(self) -> str:
        outputs = '; '.join(map(str, self.outputs)) or 'none'
        height, width = self.input_hw
        named = f', {self.class_count} classes are named' if self.class_count else ''
        return f'outputs {outputs}, for images of {width}x{height}{named}'


ResultT_co = TypeVar('ResultT_co', covariant=True)


class Head(Protocol[ResultT_co]):
    """Reads the outputs of one network."""

    @property
    def class_count(self) -> int | None:
        """How many classes there are; None while the network leaves it open, or has none."""
        ...

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> ResultT_co:
        """
        Turn outputs into what the task finds in one image, in its pixels.

        The thresholds are for boxes; a task without them leaves them.

        :param outputs: one array an output, batch of 1; float16 is decoded in float32.
        :param score_threshold: scores equal or above pass; NaN and Inf never do.
        :param iou_threshold: of one class, the weaker box goes when they overlap more.
        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        ...


def nothing(network: NetworkDescription) -> Mapping[str, np.ndarray]:
    """Feed the image alone, as most networks want it."""
    return {}


HeadT_co = TypeVar('HeadT_co', covariant=True)


@dataclass(frozen=True)
class Family(Generic[HeadT_co]):
    """
    One of those that `decoder` may name; how `auto` tells its networks is in `recognition.py`.

    :param preprocess: the fields of `Preprocess` that this family is trained with.
    :param open: reads the shapes; raises TensorMismatchError when they cannot be this family's.
    :param constant_inputs: what the network takes beside the image, the same for every frame.
    """

    name: str
    task: str
    preprocess: Mapping[str, object]
    open: Callable[[NetworkDescription], HeadT_co]
    constant_inputs: Callable[[NetworkDescription], Mapping[str, np.ndarray]] = field(
        default=nothing
    )


def image_output(
    outputs: Mapping[str, np.ndarray], name: str, axes: int = 2, *, batched: bool = True
) -> np.ndarray:
    """
    Take one image's share of the output `name`: (1, A, B) as (A, B).

    :param axes: how many there are, without the batch's.
    :param batched: False: the network has no such axis, the output is one image's.
    :raises TensorMismatchError: when it is missing or of another shape.
    """
    if name not in outputs:
        raise TensorMismatchError(
            f'There is no output {name!r}, only {", ".join(outputs) or "none"}.'
        )
    head = np.asarray(outputs[name])
    if head.ndim != axes + batched or (batched and head.shape[0] != 1):
        letters = ', '.join('ABC'[:axes])
        raise TensorMismatchError(
            f'The output {name!r} is {head.shape}, not one image of '
            f'({"1, " if batched else ""}{letters}).',
            remedy='Set `decoder` to the family of the network, or export it for one image.',
        )
    return np.asarray(head[0] if batched else head)


def corners(cxcywh: np.ndarray) -> np.ndarray:
    """Turn (N, 4) centres and sizes into (N, 4) x1, y1, x2, y2."""
    centre, half = cxcywh[:, :2], cxcywh[:, 2:4] / 2
    return np.hstack([centre - half, centre + half])


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Turn logits of any shape into scores, 0 to 1, each for itself."""
    return np.asarray(1 / (1 + np.exp(-logits)))


def is_scores(spec: TensorSpec) -> bool:
    """Tell whether an output can be a raw head: one image, two axes, floating point."""
    return len(spec.shape) == 3 and spec.shape[0] in (1, -1) and is_float(spec)


def is_float(spec: TensorSpec) -> bool:
    return spec.dtype in ('float16', 'bfloat16', 'float32', 'float64')
