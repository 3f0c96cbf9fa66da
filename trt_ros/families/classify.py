"""Image classification."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.embedding import has_vector, is_vector, vector
from trt_ros.families.family import IMAGENET_PREPROCESS, Family, Head
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.results.classes import Classification
from trt_ros.tensors import Arrays
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds


@dataclass(frozen=True)
class ClassifyHead(Head[Classification]):
    """
    A decoder of class scores (1, C).

    They are probabilities, and used unchanged, when none is negative and their sum is 1 (within
    0.01, for float16); else logits, to which softmax is applied. Non-finite values score 0.
    """

    output_name: str
    class_count: int | None

    counts_background = True
    takes_regions = True

    def __call__(
        self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> Classification:
        """Decode the scores of one image; see `Head`."""
        scores = vector(outputs, self.output_name)
        if self.class_count not in (None, len(scores)):
            raise TensorMismatchError(
                f'The output {self.output_name!r} has {len(scores)} scores, expected '
                f'{self.class_count}.'
            )
        finite = np.isfinite(scores)
        is_softmax = finite.all() and scores.min() >= 0 and abs(scores.sum() - 1) < 0.01
        if is_softmax:
            return Classification(np.minimum(scores, 1))  # Rounding.
        if not finite.any():
            return Classification(np.zeros_like(scores))
        shifted = np.where(finite, scores - scores[finite].max(), np.float32(-np.inf))
        powers = np.exp(shifted)
        return Classification(powers / powers.sum())


def _head(reading: Reading) -> ClassifyHead:
    (part,) = reading.parts
    return ClassifyHead(part.spec.name, reading.class_count)


REMEDY = 'Export with the class scores as the only output.'
#: Validation of torchvision and timm: 224 of 256 pixels are kept; newer weights keep more.
CROPPED: Mapping[str, object] = {
    **IMAGENET_PREPROCESS,
    'resize': 'center_crop',
    'crop_fraction': 0.875,
}

CLASSIFIER = Family(
    'classifier',
    'classify',
    CROPPED,
    layouts=tuple(
        Layout((Out(axes, 'scores:C'),), known={}, guards=(has_vector,), evidence=(is_vector,))
        for axes in ('B C', 'B C 1', 'B C 1 1')
    ),
    head=_head,
    exporter='none',
    words=('class', 'softmax', 'logit', 'score', 'prob', 'label'),
    # ImageNet without and with a background, also its larger set; Places.
    class_counts=(1000, 1001, 21841, 21843, 365),
    remedy=REMEDY,
    networks='ResNet, MobileNet, ConvNeXt, ViT and others',
    export='`optimum-cli export onnx --model microsoft/resnet-50 out`',
)
YOLOV8_CLS = Family(
    'yolov8_cls',
    'classify',
    {'resize': 'center_crop', 'channel_order': 'rgb', 'scale': 1 / 255},
    layouts=(Layout((Out('B C', 'scores:C'),), guards=(has_vector,), task='classify'),),
    head=_head,
    remedy=REMEDY,
    exporter='Ultralytics',
    output_names=('output0',),
    networks='YOLO-cls',
    export='`yolo export model=yolo11n-cls.pt format=onnx`',
)
