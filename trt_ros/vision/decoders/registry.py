"""Registry of the model families, and the choice of a network's decoder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.boxes import BOXES, BOXES_NORMALISED
from trt_ros.vision.decoders.centernet import CENTERNET
from trt_ros.vision.decoders.classify import CLASSIFIER, YOLOV8_CLS
from trt_ros.vision.decoders.depth import DEPTH, YOLO_DEPTH
from trt_ros.vision.decoders.detectnet import DETECTNET_V2
from trt_ros.vision.decoders.detr import DETR, RFDETR, RTDETR
from trt_ros.vision.decoders.detr_masks import RFDETR_SEG
from trt_ros.vision.decoders.efficient_nms import EFFICIENT_NMS
from trt_ros.vision.decoders.embedding import EMBEDDING, TENSOR
from trt_ros.vision.decoders.faces import RETINAFACE, SCRFD, YUNET
from trt_ros.vision.decoders.family import Family, Head, NetworkDescription
from trt_ros.vision.decoders.finished_boxes import MMDETECTION, TENSORFLOW
from trt_ros.vision.decoders.hands import MEDIAPIPE_HAND
from trt_ros.vision.decoders.heatmap_pose import HEATMAP_POSE
from trt_ros.vision.decoders.instances import YOLOV8_SEG
from trt_ros.vision.decoders.lstr import LSTR
from trt_ros.vision.decoders.maskformer import MASKFORMER, MASKFORMER_PANOPTIC
from trt_ros.vision.decoders.movenet import MOVENET
from trt_ros.vision.decoders.nanodet import NANODET, NANODET_PLUS
from trt_ros.vision.decoders.nearest import advice, lookalike, nearest
from trt_ros.vision.decoders.obb import YOLOV8_OBB
from trt_ros.vision.decoders.objectness_rows import YOLOV5_FACE, YOLOV5_SEG, YOLOV7_POSE
from trt_ros.vision.decoders.onnx_nms import ONNX_NMS, YOLOV3
from trt_ros.vision.decoders.paddle import PICODET, PPYOLOE, PPYOLOE_PLUS
from trt_ros.vision.decoders.palms import MEDIAPIPE_PALM
from trt_ros.vision.decoders.pose import YOLOV8_POSE
from trt_ros.vision.decoders.raw_yolo import YOLOV5_RAW, YOLOV7_RAW
from trt_ros.vision.decoders.recognition import recognise
from trt_ros.vision.decoders.semantic import SEMANTIC, YOLO_SEMANTIC
from trt_ros.vision.decoders.simcc import SIMCC
from trt_ros.vision.decoders.ssd import SSD
from trt_ros.vision.decoders.ufld import UFLD
from trt_ros.vision.decoders.ufld_v2 import UFLD_V2_CULANE, UFLD_V2_TUSIMPLE, is_curvelanes
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

#: Families of detectors. A new family is one module and one row.
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
    MMDETECTION,
    TENSORFLOW,
    YOLOV5_RAW,
    YOLOV7_RAW,
    NANODET_PLUS,
    NANODET,
    PICODET,
    PPYOLOE,
    PPYOLOE_PLUS,
    CENTERNET,
)
#: Families of the other tasks.
SEGMENTERS: tuple[Family[Head[Instances | ClassMask]], ...] = (
    YOLOV8_SEG,
    YOLOV5_SEG,
    RFDETR_SEG,
    YOLO_SEMANTIC,
    SEMANTIC,
    MASKFORMER,
    MASKFORMER_PANOPTIC,
)
POSES: tuple[Family[Head[Poses]], ...] = (
    YOLOV8_POSE,
    YOLOV5_FACE,
    YOLOV7_POSE,
    SCRFD,
    YUNET,
    RETINAFACE,
    HEATMAP_POSE,
    SIMCC,
    MOVENET,
    MEDIAPIPE_PALM,
    MEDIAPIPE_HAND,
    UFLD,
    UFLD_V2_CULANE,
    UFLD_V2_TUSIMPLE,
    LSTR,
)
ORIENTED: tuple[Family[Head[OrientedBoxes]], ...] = (YOLOV8_OBB,)
CLASSIFIERS: tuple[Family[Head[Classification]], ...] = (YOLOV8_CLS, CLASSIFIER)
DEPTHS: tuple[Family[Head[Depth]], ...] = (YOLO_DEPTH, DEPTH)
EMBEDDINGS: tuple[Family[Head[Tensors]], ...] = (EMBEDDING,)
#: Families whose outputs are published undecoded; 'auto' takes TENSOR without an embedding.
TENSORS: tuple[Family[Head[Tensors]], ...] = (*EMBEDDINGS, TENSOR)

#: Families whose results can be drawn.
DRAWN: tuple[Family[Head[Any]], ...] = (
    *FAMILIES,
    *SEGMENTERS,
    *POSES,
    *ORIENTED,
    *CLASSIFIERS,
    *DEPTHS,
)

#: Kind of network per task.
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

#: Node that runs the networks of a task.
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

ANY = 'The node `tensor` runs any network and publishes its undecoded outputs.'

HeadT = TypeVar('HeadT')
ResultT = TypeVar('ResultT')
ResultT_co = TypeVar('ResultT_co', covariant=True)


@dataclass(frozen=True)
class Decoder(Generic[ResultT_co]):
    """
    The chosen decoder of one network.

    :param name: name of the family.
    :param reason: reason for the choice, one line for the log.
    :param preprocess: fields of `Preprocess` that the family is trained with.
    :param head: decodes the outputs and holds their layout.
    :param constant_inputs: inputs beside the image, equal for every frame.
    """

    name: str
    reason: str
    task: str
    preprocess: Mapping[str, object]
    head: Head[ResultT_co]
    constant_inputs: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def class_count(self) -> int | None:
        """Number of classes; None: the network leaves it open, or has none."""
        return self.head.class_count

    @property
    def takes_batches(self) -> bool:
        """Whether each output has an axis for the images of a batch."""
        return self.head.takes_batches

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> ResultT_co:
        """
        Decode the outputs for one image into results in its pixels, best score first.

        Tasks without boxes ignore the thresholds.

        :param outputs: as returned by `Runner.infer`; no reference to them is kept.
        :param letterbox: placement of the image in the input, as returned by `Preprocess`.
        :param thresholds: limits of the results; scores equal to or above `score` pass.
        :raises TensorMismatchError: when an output is missing or of another shape.
        :raises ScoreRangeError: when a score is outside 0 to 1.
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
    Choose the decoder by name, or by the description of the network.

    :param name: name of a family, or 'auto'.
    :param metadata: metadata of the ONNX file.
    :param input_hw: height and width of the network's images.
    :param class_count: number of classes that the user names; some families differ only by it.
    :param has_background: the first named class is the background, which most networks do not
        count.
    :param families: the families to choose from.
    :raises ParameterError: when there is no family of that name.
    :raises TensorMismatchError: when the outputs are not that family's; for 'auto', when no family
        or more than one matches.
    """
    named = len(class_names((), '', metadata, None))
    network = NetworkDescription(
        inputs, outputs, metadata, input_hw, named or class_count, has_background
    )
    without = None
    if has_background and network.class_count:
        without = replace(network, class_count=network.class_count - 1, has_background=False)
    family, reason = _choose_by_names(families, name, network, without)
    return Decoder(
        family.name,
        reason,
        family.task,
        family.preprocess,
        _open_by_names(family, network, without),
        family.constant_inputs(network),
    )


def _choose_by_names(
    families: tuple[Family[HeadT], ...],
    name: str,
    network: NetworkDescription,
    without: NetworkDescription | None,
) -> tuple[Family[HeadT], str]:
    """Choose a family as `choose_family`, first without the background among the names."""
    if without is not None:
        try:
            return choose_family(families, name, without)
        except TensorMismatchError:  # It counts the background, or does not fit at all.
            pass
    return choose_family(families, name, network)


def _open_by_names(
    family: Family[HeadT], network: NetworkDescription, without: NetworkDescription | None
) -> HeadT:
    """Open a head for as many classes as there are names, else without the background."""
    try:
        return family.open(network)
    except TensorMismatchError as error:
        if without is None:
            raise
        with suppress(TensorMismatchError):
            return family.open(without)
        raise error


def choose_family(
    families: tuple[Family[HeadT], ...],
    name: str,
    network: NetworkDescription,
) -> tuple[Family[HeadT], str]:
    """
    Choose a family by name, or by the description of the network.

    :param families: `FAMILIES`, `SEGMENTERS` or others.
    :param name: name of a family, or 'auto'.
    :returns: the family, and the reason for the choice.
    :raises ParameterError: when there is no family of that name.
    :raises TensorMismatchError: when the network is of another task; for 'auto', when no family or
        more than one matches.
    """
    tasks = {family.task for family in families}
    stated = network.metadata.get('task', '')  # As Ultralytics writes it.
    stated = 'segment' if stated == 'semantic' else stated
    if stated in TASKS and stated not in tasks and 'tensor' not in tasks:
        raise TensorMismatchError(
            f'This is {_a(TASKS[stated])} network; {_served(families)}.',
            cause=f"In its metadata, 'task' is {network.metadata['task']!r}.",
            remedy=f'Run the node `{NODES[stated]}`, or choose {_a(_kinds(families))} network.',
        )
    if name == 'auto':
        return _recognise(families, network)
    for family in families:
        if family.name == name:
            return family, 'as configured'
    close = get_close_matches(name, [family.name for family in families], n=3, cutoff=0.5)
    raise ParameterError(
        f'Decoder {name!r} does not exist.',
        remedy=f'Set `decoder` to {" or ".join([*close, "auto"])}. docs/models.md lists the '
        'others.',
    )


def _recognise(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> tuple[Family[HeadT], str]:
    claims = _claims(families, network)
    if not claims:
        raise _not_recognised(families, network)
    if len(claims) > 1:
        raise TensorMismatchError(
            'More than one decoder matches this network.',
            cause='; '.join(f'{family.name}: {reason}' for family, reason in claims)
            + f'. Seen: {network}.',
            remedy=_set_decoder(tuple(family for family, _ in claims))
            + _about_labels(families, network)
            + _about_keypoints(claims, network)
            + f' docs/models.md describes each. {ANY}',
        )
    family, reason = claims[0]
    other = lookalike(family.name, network)
    if other:
        raise TensorMismatchError(
            f'The network may be a keypoint network: {other}.',
            cause=f'{family.name}: {reason}; the other network has the same shape.',
            remedy=f'Run the node `{NODES["pose"]}`, or set `labels` or `decoder: {family.name}` '
            'if it is a detector.',
        )
    return claims[0]


def _about_labels(families: tuple[Family[HeadT], ...], network: NetworkDescription) -> str:
    """Return whether names of the classes decide between the families of a network, a sentence."""
    if network.class_count:
        return f' The {network.class_count} named classes do not decide between them.'
    before_classes = (0, 1, 4, 5, 32)  # Values beside the scores of the classes.
    counts = {
        size - before
        for spec in network.outputs
        for size in spec.shape
        for before in before_classes
        if size > before
    }
    decide = any(
        len(_claims(families, replace(network, class_count=count))) == 1 for count in counts
    )
    return ' The names of the classes (`labels`) may decide, too.' if decide else ''


def _about_keypoints(claims: list[tuple[Family[HeadT], str]], network: NetworkDescription) -> str:
    """Return the keypoint network that a detector may be instead, a sentence; or ''."""
    names = [name for family, _ in claims if (name := lookalike(family.name, network))]
    is_claimed = any(family.task == 'pose' for family, _ in claims)
    if not names or is_claimed:
        return ''
    return f' It may also be {names[0]}, which the node `{NODES["pose"]}` runs.'


def _claims(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> list[tuple[Family[HeadT], str]]:
    return [(family, reason) for family in families if (reason := recognise(family.name, network))]


def _not_recognised(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> TensorMismatchError:
    """Return the error for a network of no family; it names the node that runs it, if any."""
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
    kinds = {TASKS[family.task]: reason for family, reason in claims}
    if not kinds and is_curvelanes(network):
        return TensorMismatchError(
            'UFLDv2 of CurveLanes is not decoded.',
            cause=f'Its ten lanes are curves fitted to rows and columns. Seen: {network}.',
            remedy=f'Use a network of CULane or TuSimple, or decode its outputs yourself. {ANY}',
        )
    if not kinds:
        inputs = '; '.join(map(str, network.inputs))
        near = '; '.join(nearest(network, {family.name for family in families}))
        return TensorMismatchError(
            'No decoder recognises this network.',
            cause=f'Seen: inputs {inputs}; {network}. Nearest: {near}.',
            remedy=(advice(network) or _choose_an_output(families, network))
            + 'Export the network as described in docs/models.md, or set `decoder` to its family. '
            + ANY,
        )
    nodes = dict.fromkeys(f'`{NODES[family.task]}`' for family, _ in claims)
    return TensorMismatchError(
        f'This looks like {_a(" or ".join(kinds))} network; {_served(families)}.',
        cause='; '.join(dict.fromkeys(kinds.values())) + f'. Seen: {network}.',
        remedy=f'Run the node {" or ".join(nodes)}. If it is {_a(_kinds(families))} network, '
        'set `decoder` to its family (docs/models.md).',
    )


def _choose_an_output(families: tuple[Family[HeadT], ...], network: NetworkDescription) -> str:
    """
    Return the remedy for a network with auxiliary outputs, or ''.

    `runtime.heads` names the outputs that exactly one of `families` decodes alone.
    """
    if len(network.outputs) < 2:
        return ''
    choices = _without_one_output(families, network)
    if 0 < len(choices) < 3:
        return f'Set outputs to {" or to ".join(choices)}. '
    nodes: dict[str, dict[str, None]] = {}
    for spec in network.outputs:
        alone = replace(network, outputs=(spec,), class_count=None)
        claims = [family for family, _ in _claims(DRAWN, alone) if family.task != 'classify']
        if claims and len(_claims(families, alone)) != 1:
            nodes[spec.name] = dict.fromkeys(f'`{NODES[family.task]}`' for family in claims)
    if not nodes:
        return ''
    found = dict.fromkeys(node for each in nodes.values() for node in each)
    return f'Set outputs to {" or ".join(nodes)}, and run the node {" or ".join(found)}. '


def _without_one_output(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> list[str]:
    """Return the outputs that one family decodes without another output, with its name."""
    choices = []
    for left_out in network.outputs if len(network.outputs) > 2 else ():
        some = tuple(spec for spec in network.outputs if spec is not left_out)
        claims = _claims(families, replace(network, outputs=some))
        if len(claims) == 1:
            names = ', '.join(spec.name for spec in some)
            choices.append(f'{names} (decoder {claims[0][0].name})')
    return choices


def _a(noun: str) -> str:
    return f'{"an" if noun[0] in "aeiou" else "a"} {noun}'


def _kinds(families: tuple[Family[HeadT], ...]) -> str:
    return ' or '.join(dict.fromkeys(TASKS[family.task] for family in families))


def _served(families: tuple[Family[HeadT], ...]) -> str:
    if families[0].task == 'detect':
        return f'the detector runs {_kinds(families)} networks'
    return f'expected {_a(_kinds(families))} network'


def _set_decoder(families: tuple[Family[HeadT], ...]) -> str:
    *names, last = (family.name for family in families)
    return f'Set `decoder` to {", ".join(names)}{" or " if names else ""}{last}.'
