"""What each model family brings: how its networks are recognised, fed and decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox

#: How the YOLO families but YOLOX, and what is made of them, take their images.
YOLO_PREPROCESS: Mapping[str, object] = {
    'resize': 'letterbox', 'pad_value': 114, 'channel_order': 'rgb', 'scale': 1 / 255}


@dataclass(frozen=True)
class Network:
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
                f'One output was expected, not {len(self.outputs)}.', cause=f'Seen: {self}.',
                remedy='Export the detector alone, without masks, keypoints or NMS.')
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
        return f'outputs {outputs}, for images of {width}x{height}'


ResultT_co = TypeVar('ResultT_co', covariant=True)


class Head(Protocol[ResultT_co]):
    """Reads the outputs of one network."""

    @property
    def class_count(self) -> int | None:
        """How many classes there are; None while the network leaves it open, or has none."""
        ...

    def __call__(
            self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, *,
            score_threshold: float, iou_threshold: float, max_detections: int) -> ResultT_co:
        """
        Turn outputs into what the task finds in one image, in its pixels.

        The thresholds are for boxes; a task without them leaves them.

        :param outputs: one array an output, batch of 1; float16 is decoded in float32.
        :param score_threshold: scores equal or above pass; NaN and Inf never do.
        :param iou_threshold: of one class, the weaker box goes when they overlap more.
        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        ...


def nothing(network: Network) -> Mapping[str, np.ndarray]:
    """Feed the image alone, as most networks want it."""
    return {}


HeadT_co = TypeVar('HeadT_co', covariant=True)


@dataclass(frozen=True)
class Family(Generic[HeadT_co]):
    """
    One row of the table that `decoder: auto` chooses from.

    :param preprocess: the fields of `Preprocess` that this family is trained with.
    :param recognises: why this may be one of the family (half a sentence), or None. It claims
        what no evidence speaks against; a network claimed twice is ambiguous.
    :param open: reads the shapes; raises TensorMismatchError when they cannot be this family's.
    :param feeds: what the network takes beside the image, the same for every frame.
    """

    name: str
    task: str
    preprocess: Mapping[str, object]
    recognises: Callable[[Network], str | None]
    open: Callable[[Network], HeadT_co]
    feeds: Callable[[Network], Mapping[str, np.ndarray]] = field(default=nothing)


def single(
        outputs: Mapping[str, np.ndarray], name: str, axes: int = 2, *,
        batched: bool = True) -> np.ndarray:
    """
    Take one image's share of the output `name`: (1, A, B) as (A, B).

    :param axes: how many there are, without the batch's.
    :param batched: False: the network has no such axis, the output is one image's.
    :raises TensorMismatchError: when it is missing or of another shape.
    """
    if name not in outputs:
        raise TensorMismatchError(
            f'There is no output {name!r}, only {", ".join(outputs) or "none"}.')
    head = np.asarray(outputs[name])
    if head.ndim != axes + batched or (batched and head.shape[0] != 1):
        letters = ', '.join('ABC'[:axes])
        raise TensorMismatchError(
            f'The output {name!r} is {head.shape}, not one image of '
            f'({"1, " if batched else ""}{letters}).')
    return np.asarray(head[0] if batched else head)


def corners(cxcywh: np.ndarray) -> np.ndarray:
    """Turn (N, 4) centres and sizes into (N, 4) x1, y1, x2, y2."""
    centre, half = cxcywh[:, :2], cxcywh[:, 2:4] / 2
    return np.hstack([centre - half, centre + half])


def is_scores(spec: TensorSpec) -> bool:
    """Tell whether an output can be a raw head: one image, two axes, floating point."""
    return len(spec.shape) == 3 and spec.shape[0] in (1, -1) and is_float(spec)


def is_float(spec: TensorSpec) -> bool:
    return spec.dtype in ('float16', 'bfloat16', 'float32', 'float64')


def before_classes(network: Network, channels: int) -> tuple[int, str] | None:
    """
    Find what tells (1, N, 4 + C) from (1, N, 5 + C), boxes without and with objectness.

    :param channels: the last axis, -1 where dynamic.
    :returns: 4 or 5, and why (half a sentence); None when nothing tells.
    """
    if 'task' in network.metadata:
        return 4, "its metadata is Ultralytics'"
    for count in (4, 5):
        if network.class_count and channels == count + network.class_count:
            return count, f'{channels} is {count} and {network.class_count} classes'
    name = network.only_output.name
    if name in ('output0', 'output'):  # What Ultralytics' and YOLOX's own exporters write.
        return (4, "its name is Ultralytics'") if name == 'output0' else (5, "its name is YOLOX's")
    if channels in (84, 85):
        return channels - 80, f'{channels} is {channels - 80} and the 80 classes of COCO'
    return None
