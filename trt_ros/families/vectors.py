"""Networks of one vector: classes, embeddings, and undecoded outputs of any network."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from trt_ros.families.family import (
    IMAGENET,
    IMAGENET_PREPROCESS,
    STRETCH_PREPROCESS,
    Family,
    NetworkDescription,
    is_float,
    trained,
)
from trt_ros.families.head import Head, require_output
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.results.arrays import Tensors
from trt_ros.results.classes import Classification
from trt_ros.tensors import Arrays, TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range, finite_or_zero
from trt_ros.vision.thresholds import Thresholds

#: The reading of no outputs.
NOTHING: Reading[Any] = Reading(Layout(()), (), {}, NetworkDescription((), (), {}, (0, 0)))


@dataclass(frozen=True)
class EmbeddingHead(Head[Tensors]):
    """A reader of one vector (1, D), unchanged; of any other shape, too, if it `takes_any`."""

    takes_any: bool = False

    takes_regions = True

    @cached_property
    def output_name(self) -> str:
        (spec,) = vectors(self.reading.network)
        return spec.name

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Tensors:
        """Return the vector: (1, D) float32, not normalized; see `Head`."""
        values = require_output(outputs, self.output_name)
        if self.takes_any and values.ndim not in (2, 4):
            return Tensors({self.output_name: np.array(values)})
        others = values.shape[:1] + values.shape[2:]
        if not values.size or others != (1,) * (values.ndim - 1):
            raise self.mismatch(outputs, letterbox.input_hw)
        return Tensors({self.output_name: values.reshape(1, -1).astype(np.float32)})


@dataclass(frozen=True)
class TensorHead(Head[Tensors]):
    """A pass-through of all outputs."""

    reading: Reading[Any] = NOTHING

    takes_regions = True

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Tensors:
        return Tensors({name: output.copy() for name, output in outputs.items()})


def vectors(network: NetworkDescription) -> list[TensorSpec]:
    """Return the outputs that are one vector per image."""
    return [
        spec
        for spec in network.outputs
        if is_float(spec)
        and len(spec.shape) >= 2
        and spec.shape[0] in (1, -1)
        and spec.shape[1] not in (0, 1)
        and all(size == 1 for size in spec.shape[2:])
    ]


def has_vector(network: NetworkDescription) -> bool:
    """Return whether one output is a vector, and no single number."""
    return len(vectors(network)) == 1


def is_of_yolov7_nms(network: NetworkDescription) -> bool:
    """Return whether the output is image, box, class, score per row: YOLOv7 with --max-wh."""
    if len(network.outputs) != 1 or len(network.only_output.shape) != 2:
        return False
    rows, values = network.only_output.shape
    image_count = network.inputs[0].shape[0] if network.inputs else -1
    return values == 7 and rows not in (1, image_count) and network.class_count != 7


def has_points(network: NetworkDescription) -> bool:
    """Return whether an output is named as coordinates of keypoints."""
    words = ('landmark', 'keypoint', 'kpt', 'points', 'joint')
    return any(word in spec.name.lower() for spec in network.outputs for word in words)


def is_vector(network: NetworkDescription) -> bool:
    """Return whether the output is neither rows of YOLOv7's NMS, nor keypoints."""
    return not (is_of_yolov7_nms(network) or has_points(network))


def of_any_shape(family: Family[EmbeddingHead]) -> Family[EmbeddingHead]:
    """Return EMBEDDING for a vector that only its declared shape shows, which may be wrong."""
    return replace(family, head=partial(EmbeddingHead, takes_any=True))


_VECTORS = tuple(
    Layout((Out(axes, 'vector:F'),), guards=(has_vector,), evidence=(is_vector,))
    for axes in ('B F', 'B F 1', 'B F 1 1')
)
EMBEDDING = Family(
    'embedding',
    'embed',
    IMAGENET_PREPROCESS,
    layouts=(
        *_VECTORS,
        replace(
            _VECTORS[0],
            outputs=(Out('B F', 'vector:F', ('.*(pool|embed).*',)),),
            ignores_others=True,
        ),
        *(replace(layout, ignores_others=True, by_name=True) for layout in _VECTORS),
    ),
    head=EmbeddingHead,
    words=('embed', 'emb_', 'feat', 'pool', 'descriptor'),
    near_misses=tuple(
        (
            replace(layout, guards=(has_points,)),
            'Vectors of keypoints are decoded for the networks of docs/models.md only.',
        )
        for layout in _VECTORS
    ),
    remedy='Export with the pooled vector as the only output of that shape.',
    networks='DINOv2, the image encoder of CLIP and others',
)
TENSOR = Family('tensor', 'tensor', STRETCH_PREPROCESS, exporter='any', head=TensorHead)


@dataclass(frozen=True)
class ClassifyHead(Head[Classification]):
    """
    A decoder of class scores (1, C).

    They are probabilities, and used unchanged, when none is negative and their sum is 1 (within
    0.01, for float16); else logits, to which softmax is applied. Non-finite values score 0.
    """

    counts_background = True
    takes_regions = True

    def decode(
        self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds
    ) -> Classification:
        scores = self.arrays(outputs, letterbox.input_hw)[0].reshape(-1).astype(np.float32)
        finite = np.isfinite(scores)
        is_softmax = finite.all() and scores.min() >= 0 and abs(scores.sum() - 1) < 0.01
        if is_softmax:
            return Classification(np.minimum(scores, 1))  # Rounding.
        if not finite.any():
            return Classification(np.zeros_like(scores))
        shifted = np.where(finite, scores - scores[finite].max(), np.float32(-np.inf))
        powers = np.exp(shifted)
        return Classification(powers / powers.sum())


@dataclass(frozen=True)
class LabelsHead(ClassifyHead):
    """A decoder of the scores of independent labels (1, C), 0 to 1; non-finite ones are 0."""

    def decode(
        self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds
    ) -> Classification:
        scores = self.arrays(outputs, letterbox.input_hw)[0].reshape(-1).astype(np.float32)
        return Classification(check_range(finite_or_zero(scores)))


REMEDY = 'Export with the class scores as the only output.'
#: Validation of torchvision and timm: 224 of 256 pixels are kept; newer weights keep more.
CROPPED = trained('center_crop', crop_fraction=0.875, **IMAGENET)

CLASSIFIER = Family(
    'classifier',
    'classify',
    CROPPED,
    layouts=tuple(
        Layout((Out(axes, 'scores:C'),), known={}, guards=(has_vector,), evidence=(is_vector,))
        for axes in ('B C', 'B C 1', 'B C 1 1')
    ),
    head=ClassifyHead,
    words=('class', 'softmax', 'logit', 'score', 'prob', 'label'),
    # ImageNet without and with a background, also its larger set; Places.
    class_counts=(1000, 1001, 21841, 21843, 365),
    remedy=REMEDY,
    networks='ResNet, MobileNet, ConvNeXt, ViT and others',
    export='`optimum-cli export onnx --model microsoft/resnet-50 out`',
)
#: Never chosen by `auto`: independent scores and logits have the same shape.
MULTI_LABEL = replace(
    CLASSIFIER,
    name='multi_label',
    layouts=tuple(replace(each, evidence=(lambda network: False,)) for each in CLASSIFIER.layouts),
    head=LabelsHead,
    networks='taggers and networks of attributes: independent labels, with a sigmoid each',
    export='`torch.onnx.export` with the sigmoid',
)
YOLOV8_CLS = Family(
    'yolov8_cls',
    'classify',
    trained('center_crop'),
    layouts=(Layout((Out('B C', 'scores:C'),), guards=(has_vector,), task='classify'),),
    head=ClassifyHead,
    remedy=REMEDY,
    exporter='Ultralytics',
    output_names=('output0',),
    networks='YOLO-cls',
    export='`yolo export model=yolo11n-cls.pt format=onnx`',
)
