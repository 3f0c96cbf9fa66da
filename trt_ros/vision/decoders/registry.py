"""Which decoder reads a network's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.boxes import BOXES, BOXES_NORMALISED
from trt_ros.vision.decoders.classify import CLASSIFIER, YOLOV8_CLS
from trt_ros.vision.decoders.depth import DEPTH, YOLO_DEPTH
from trt_ros.vision.decoders.detectnet import DETECTNET_V2
from trt_ros.vision.decoders.detr import DETR, RFDETR, RTDETR
from trt_ros.vision.decoders.efficient_nms import EFFICIENT_NMS
from trt_ros.vision.decoders.embedding import EMBEDDING, TENSOR
from trt_ros.vision.decoders.family import Family, Head, NetworkDescription
from trt_ros.vision.decoders.instances import YOLOV8_SEG
from trt_ros.vision.decoders.nearest import lookalike, nearest
from trt_ros.vision.decoders.obb import YOLOV8_OBB
from trt_ros.vision.decoders.onnx_nms import ONNX_NMS, YOLOV3
from trt_ros.vision.decoders.pose import YOLOV8_POSE
from trt_ros.vision.decoders.recognition import recognise
from trt_ros.vision.decoders.semantic import SEMANTIC, YOLO_SEMANTIC
from trt_ros.vision.decoders.ssd import SSD
from trt_ros.vision.decoders.yolov5 import YOLOV5
from trt_ros.vision.decoders.yolov8 import YOLOV8
from trt_ros.vision.decoders.yolov10 import YOLOV10
from trt_ros.vision.decoders.yolox import YOLOX
from trt_ros.vision.detections import Detections
from trt_ros.vision.labels import class_names
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.results import (
    Classification,
    ClassMask,
    Depth,
    Instances,
    OrientedBoxes,
    Poses,
    Tensors,
)
from trt_ros.vision.thresholds import Thresholds

#: Every family of detectors there is; a further one is one module and one row.
FAMILIES: tuple[Family[Head[Detections]], ...] = (
    YOLOV8,
    YOLOX,
    YOLOV5,
    YOLOV10,
    YOLOV3,
    RTDETR,
    DETR,
    RFDETR,
    SSD,
    DETECTNET_V2,
    EFFICIENT_NMS,
    ONNX_NMS,
    BOXES,
    BOXES_NORMALISED,
)
#: And those of the other tasks.
SEGMENTERS: tuple[Family[Head[Instances | ClassMask]], ...] = (YOLOV8_SEG, YOLO_SEMANTIC, SEMANTIC)
POSES: tuple[Family[Head[Poses]], ...] = (YOLOV8_POSE,)
ORIENTED: tuple[Family[Head[OrientedBoxes]], ...] = (YOLOV8_OBB,)
CLASSIFIERS: tuple[Family[Head[Classification]], ...] = (YOLOV8_CLS, CLASSIFIER)
DEPTHS: tuple[Family[Head[Depth]], ...] = (YOLO_DEPTH, DEPTH)
EMBEDDINGS: tuple[Family[Head[Tensors]], ...] = (EMBEDDING,)
#: What gives all outputs as they are; 'auto' takes it where there is no embedding.
TENSORS: tuple[Family[Head[Tensors]], ...] = (*EMBEDDINGS, TENSOR)

#: Those whose results can be drawn.
DRAWN: tuple[Family[Head[Any]], ...] = (
    *FAMILIES,
    *SEGMENTERS,
    *POSES,
    *ORIENTED,
    *CLASSIFIERS,
    *DEPTHS,
)

#: What the networks of a task are called.
TASKS: Mapping[str, str] = {
    'detect': 'detection',
    'segment': 'segmentation',
    'pose': 'keypoint',
    'obb': 'oriented-box',
    'classify': 'classification',
    'depth': 'depth',
    'embed': 'embedding',
    'tensor': 'any',
}

#: And the node that runs them.
NODES: Mapping[str, str] = {
    'detect': 'detector',
    'segment': 'segmenter',
    'pose': 'pose',
    'obb': 'detector',
    'classify': 'classifier',
    'depth': 'depth',
    'embed': 'tensor',
    'tensor': 'tensor',
}

ANY = 'The node `tensor` runs any network and publishes its outputs as they are.'

HeadT = TypeVar('HeadT')
ResultT = TypeVar('ResultT')
ResultT_co = TypeVar('ResultT_co', covariant=True)


@dataclass(frozen=True)
class Decoder(Generic[ResultT_co]):
    """
    The choice: turns one network's outputs into what its task finds.

    :param name: the family's.
    :param why: one line for the log.
    :param preprocess: the fields of `Preprocess` that the family is trained with.
    :param head: reads the outputs; says how they are laid out.
    :param constant_inputs: what the network takes beside the image, the same for every frame.
    """

    name: str
    why: str
    task: str
    preprocess: Mapping[str, object]
    head: Head[ResultT_co]
    constant_inputs: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def class_count(self) -> int | None:
        """How many classes the network has; None while it leaves that open."""
        return self.head.class_count

    @property
    def takes_batches(self) -> bool:
        """Whether each output has an axis for the images of a batch."""
        return getattr(self.head, 'takes_batches', True)

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> ResultT_co:
        """
        Turn the outputs for one image into what is in it, in its pixels; best score first.

        The thresholds are for boxes; a task without them leaves them.

        :param outputs: as `Runner.infer` returns them; nothing of them is kept.
        :param letterbox: where the image lay in the input, as `Preprocess` said.
        :param score_threshold: scores equal or above pass; NaN and Inf never do.
        :param iou_threshold: of one class, the weaker box goes when they overlap more.
        :raises TensorMismatchError: when an output is missing or of another shape.
        :raises ScoreRangeError: when what is read as scores is outside 0 to 1.
        """
        return self.head(outputs, letterbox, thresholds)


def choose_decoder(
    name: str,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    metadata: Mapping[str, str],
    input_hw: tuple[int, int],
    class_count: int | None = None,
    *,
    has_background: bool = False,
    families: tuple[Family[Head[ResultT]], ...] = FAMILIES,  # type: ignore[assignment]
) -> Decoder[ResultT]:
    """
    Choose the decoder by name, or by what is known of the network.

    :param name: a family's name, or 'auto'.
    :param metadata: the ONNX file's.
    :param input_hw: height and width of the network's images.
    :param class_count: how many classes the user names, which tells some families apart.
    :param has_background: the first of them is the background, which most networks do not count.
    :param families: those that may be chosen.
    :raises ParameterError: when there is no family of that name.
    :raises TensorMismatchError: when the outputs are not that family's; for 'auto', when they are
        no family's, or more than one's.
    """
    named = len(class_names((), '', metadata, None))
    network = NetworkDescription(inputs, outputs, metadata, input_hw, named or class_count)
    family, why = _choose_by_names(families, name, network, has_background)
    return Decoder(
        family.name,
        why,
        family.task,
        family.preprocess,
        family.open(network),
        family.constant_inputs(network),
    )


def _choose_by_names(
    families: tuple[Family[HeadT], ...],
    name: str,
    network: NetworkDescription,
    has_background: bool,
) -> tuple[Family[HeadT], str]:
    if has_background and network.class_count:
        try:
            return choose_family(
                families, name, replace(network, class_count=network.class_count - 1)
            )
        except TensorMismatchError:  # It counts the background, or fits neither way.
            pass
    return choose_family(families, name, network)


def choose_family(
    families: tuple[Family[HeadT], ...],
    name: str,
    network: NetworkDescription,
) -> tuple[Family[HeadT], str]:
    """
    Choose one of some families by name, or by what is known of the network; and say why.

    :param families: `FAMILIES`, `SEGMENTERS` or others.
    :param name: a family's name, or 'auto'.
    :raises ParameterError: when there is no family of that name.
    :raises TensorMismatchError: when the network is another task's; for 'auto', when it is no
        family's, or more than one's.
    """
    tasks = {family.task for family in families}
    stated = network.metadata.get('task', '')  # As Ultralytics writes it.
    stated = 'segment' if stated == 'semantic' else stated
    if stated in TASKS and stated not in tasks and 'tensor' not in tasks:
        raise TensorMismatchError(
            f'This is {_a(TASKS[stated])} network; {_served(families)}.',
            cause=f"Its metadata says so: 'task' is {network.metadata['task']!r}.",
            remedy=f'Run the node `{NODES[stated]}`, or give a network for {_wanted(families)}.',
        )
    if name == 'auto':
        return _recognise(families, network)
    for family in families:
        if family.name == name:
            return family, 'as asked'
    raise ParameterError(f'There is no decoder {name!r}.', remedy=_set_decoder(families))


def _recognise(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> tuple[Family[HeadT], str]:
    claims = _claims(families, network)
    if not claims:
        raise _not_recognised(families, network)
    if len(claims) > 1:
        raise TensorMismatchError(
            'More than one decoder may be right for this network.',
            cause='; '.join(f'{family.name}: {why}' for family, why in claims) + '.',
            remedy=_set_decoder(tuple(family for family, _ in claims))
            + (
                f' {network.class_count} classes are named, which does not tell them apart.'
                if network.class_count
                else ' Naming the classes (`labels`) may tell them apart, too.'
            ),
        )
    family, why = claims[0]
    other = lookalike(family.name, network)
    if other:
        raise TensorMismatchError(
            f'This network may be one that no decoder reads: {other}.',
            cause=f'{family.name}: {why}, and has the same shape.',
            remedy=f'Set `decoder` to {family.name} if it is that, or name its classes '
            f'(`labels`). {ANY}',
        )
    return claims[0]


def _claims(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> list[tuple[Family[HeadT], str]]:
    return [(family, why) for family in families if (why := recognise(family.name, network))]


def _not_recognised(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> TensorMismatchError:
    """Say whose the network is instead, where that is known."""
    others: tuple[Family[object], ...] = (
        *FAMILIES,
        *SEGMENTERS,
        *POSES,
        *ORIENTED,
        *CLASSIFIERS,
        *DEPTHS,
        *EMBEDDINGS,
    )
    claims = _claims(others, network)
    kinds = {TASKS[family.task]: why for family, why in claims}
    if not kinds:
        inputs = '; '.join(map(str, network.inputs))
        near = '; '.join(nearest(network, {family.name for family in families}))
        return TensorMismatchError(
            'No decoder recognises this network.',
            cause=f'Seen: inputs {inputs}; {network}. Nearest: {near}.',
            remedy=f'Export it as docs/models.md says, or set `decoder` to its family. {ANY}',
        )
    nodes = dict.fromkeys(f'`{NODES[family.task]}`' for family, _ in claims)
    return TensorMismatchError(
        f'This looks like {_a(" or ".join(kinds))} network; {_served(families)}.',
        cause='; '.join(dict.fromkeys(kinds.values())) + f'. Seen: {network}.',
        remedy=f'Run the node {" or ".join(nodes)}. If it is a network for {_wanted(families)}, '
        'set `decoder` to its family (docs/models.md).',
    )


def _a(noun: str) -> str:
    return f'{"an" if noun[0] in "aeiou" else "a"} {noun}'


def _wanted(families: tuple[Family[HeadT], ...]) -> str:
    return ' or '.join(dict.fromkeys(TASKS[family.task] for family in families))


def _served(families: tuple[Family[HeadT], ...]) -> str:
    if families[0].task == 'detect':
        return f'the detector serves {_wanted(families)}'
    return f'{_a(_wanted(families))} network is wanted'


def _set_decoder(families: tuple[Family[HeadT], ...]) -> str:
    *names, last = (family.name for family in families)
    return f'Set `decoder` to {", ".join(names)}{" or " if names else ""}{last}.'
