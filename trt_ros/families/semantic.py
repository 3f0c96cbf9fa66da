"""Semantic segmentation: one class per pixel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trt_ros.families.evidence import claim_of
from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    YOLO_PREPROCESS,
    Family,
    NetworkDescription,
    is_float,
)
from trt_ros.families.head import Head
from trt_ros.families.keypoints import HEATMAP_POSE
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import COCO_CLASSES
from trt_ros.results.masks import ClassMask, ClassMasks, as_confidence, mask_dtype, unlabeled
from trt_ros.tensors import Arrays
from trt_ros.vision.class_masks import best_class, is_probability, mask_confidence
from trt_ros.vision.grid import bilinear, covers, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.masks import cells_of, threshold_masks
from trt_ros.vision.scores import as_float32, sigmoid
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class SemanticHead(Head[ClassMask]):
    """
    A decoder of C scores per cell, (1, C, h, w) or (1, h, w, C), or of one class index per cell.

    Scores are logits, softmax or sigmoid. They are resized to the image (bilinear), and the best
    class of a pixel is taken (the first among equals): as in the postprocessing of torchvision and
    transformers, in another order. With one class, the mask is 1 where its score is above 0.5,
    after a sigmoid if any score is outside 0 to 1. Class indices, integers (1, h, w), (1, 1, h, w)
    or (1, h, w, 1), are taken from the cell under the center of the pixel; a negative index, or
    one beyond the mask's dtype, is `unlabeled`.

    :param confidence: whether to compute the confidence of each pixel.
    """

    confidence: bool = False

    counts_background = True

    @property
    def is_classes(self) -> bool:
        """Whether the output is class indices."""
        return 'classes' in self.reading.layout.roles

    @property
    def class_count(self) -> int | None:
        return self.reading.class_count and max(self.reading.class_count, 2)

    @property
    def classes_by_output(self) -> Mapping[str, int | None]:
        return {self.output_name: self.class_count}

    def with_confidence(self) -> SemanticHead | None:
        return None if self.is_classes else replace(self, confidence=True)

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> ClassMask:
        cells = self.cells(outputs, letterbox.input_hw)
        rows, cols = taps(letterbox, (cells.shape[1], cells.shape[2]))
        if self.is_classes:
            classes = self._classes(cells[0])
            return ClassMask(classes.take(cols.nearest, axis=1)[rows.nearest])
        with np.errstate(invalid='ignore'):
            if len(cells) == 1:
                return self._of_one_class(as_float32(cells[0]), letterbox)
            labels = best_class(cells, rows, cols)
            confidence = mask_confidence(cells, labels, rows, cols) if self.confidence else None
            return ClassMask(labels, confidence)

    def _classes(self, cells: np.ndarray) -> np.ndarray:
        is_small = cells.dtype.itemsize == 1
        named = self.reading.network.class_count or unlabeled(np.uint16)
        dtype = np.uint8 if is_small else mask_dtype(named)
        none, classes = unlabeled(dtype), cells.astype(dtype)
        classes[(cells < 0) | (cells > none)] = none
        return classes

    def _of_one_class(self, plane: np.ndarray, letterbox: Letterbox) -> ClassMask:
        rows, cols = taps(letterbox, (plane.shape[0], plane.shape[1]))
        whole = (0, 0, *letterbox.image_wh)
        is_final = is_probability(plane)
        (mask,) = threshold_masks(
            [plane[cells_of(rows, cols, whole)]], 0.5 if is_final else 0.0, rows, cols, [whole]
        )
        confidence = None
        if self.confidence:
            score = bilinear(plane, rows, cols)
            score = score if is_final else sigmoid(score)
            confidence = as_confidence(np.maximum(score, 1 - score))
        return ClassMask(mask.view(np.uint8), confidence, is_binary=True)


@dataclass(frozen=True)
class MaskHeads(Head[ClassMasks]):
    """Decoders of several outputs of one network, each into a mask of its own, in order."""

    heads: tuple[SemanticHead, ...] = ()

    @classmethod
    def of(cls, heads: Sequence[SemanticHead]) -> MaskHeads:
        """Return the head of several outputs, each with one of its own."""
        return cls(replace(heads[0].reading, parts=()), heads=tuple(heads))

    @property
    def class_count(self) -> int | None:
        """Number of classes of all masks together; None: unknown."""
        counts = [head.class_count for head in self.heads]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def classes_by_output(self) -> Mapping[str, int | None]:
        return {head.output_name: head.class_count for head in self.heads}

    def with_confidence(self) -> MaskHeads | None:
        heads = [head.with_confidence() for head in self.heads]
        scored = tuple(head for head in heads if head is not None)
        return MaskHeads.of(scored) if len(scored) == len(heads) else None

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> ClassMasks:
        return ClassMasks(
            {head.output_name: head(outputs, letterbox, thresholds) for head in self.heads},
            [head.class_count for head in self.heads],
        )


WORDS = (
    *('seg', 'mask', 'class', 'argmax', 'softmax', 'sigmoid', 'logit', 'score', 'prob', 'label'),
    *('lane', 'drive'),
)
#: Cityscapes, VOC, ADE20K, COCO-Stuff: without and with a background.
CLASS_COUNTS = (19, 20, 21, 150, 151, 171, 172, 182)


def _channels(network: NetworkDescription) -> int:
    """Return the number of channels whose meaning nothing states; 0 where anything does."""
    spec = network.only_output
    if len(spec.shape) != 4 or not is_float(spec):
        return 0
    _, first, rows, last = spec.shape
    count = first if covers((rows, last), network.input_hw) else last
    is_stated = count == network.class_count or any(word in spec.name.lower() for word in WORDS)
    return 0 if is_stated else max(count, 0)


def _is_image(network: NetworkDescription) -> bool:
    """Return whether the output is an image: three channels of at least the input's size."""
    if _channels(network) != 3:
        return False
    (height, width), shape = network.input_hw, network.only_output.shape
    rows, columns = shape[2:] if shape[1] == 3 else shape[1:3]
    return min(rows, columns) < 0 or (rows >= height and columns >= width)


def _is_detector(network: NetworkDescription) -> bool:
    """Return whether channels are raw boxes: 80 classes and 4 or 5 values for some anchors."""
    count = _channels(network)
    return count > 0 and any(count % (values + COCO_CLASSES) == 0 for values in (4, 5))


def _is_no_other(network: NetworkDescription) -> bool:
    """
    Return whether the output is no image, no boxes, no depth by its name, and no heatmaps.

    These are those of a person: by the name, or COCO in 3:4.
    """
    if network.strict and (_is_image(network) or _is_detector(network)):
        return False
    spec, (height, width) = network.only_output, network.input_hw
    is_depth = 'depth' in spec.name and 1 in (spec.shape[1], spec.shape[-1])
    claim = claim_of(HEATMAP_POSE, network)
    is_named = claim and claim.reading.layout.outputs[0].names and spec.shape[1] != 1
    return not (is_depth or is_named or (claim and 3 * height == 4 * width))


REMEDY = 'Export only that output, or choose another decoder.'
_LAYOUTS = (
    *(Layout((Out(axes, 'scores:1'),), ignores_names=True) for axes in ('B 1 h w', 'B h w 1')),
    *(Layout((Out(axes, 'scores:C'),), known={}) for axes in ('B C h w', 'B h w C')),
    *(
        Layout((Out(axes, 'classes:1', is_float=False),), ignores_names=True)
        for axes in ('B h w', 'B 1 h w', 'B h w 1')
    ),
)
SEMANTIC = Family(
    'semantic',
    'segment',
    IMAGENET_PREPROCESS,
    layouts=tuple(replace(layout, evidence=(_is_no_other,)) for layout in _LAYOUTS),
    head=SemanticHead,
    remedy=REMEDY,
    words=WORDS,
    class_counts=CLASS_COUNTS,
    near_misses=tuple(
        (Layout((Out(axes, 'values:C'),), guards=(guard,)), text)
        for axes in ('B C h w', 'B h w C')
        for guard, text in (
            (
                _is_image,
                'Three channels of the size of the input are an image, such as one that was '
                'enhanced: use the node `enhancer` or, in `trt-ros infer`, `decoder` image, '
                'image_255 or image_signed. If they are scores of classes, set `decoder` '
                'to semantic.',
            ),
            (
                _is_detector,
                'As many channels are 4 or 5 values and 80 class scores per cell, the undecoded '
                'boxes of a detector: export it with decoded boxes. If they '
                'are scores of classes, set `decoder` to semantic.',
            ),
        )
    ),
    networks='SegFormer, DeepLab, FCN, LR-ASPP, PeopleSemSegNet',
    export='`optimum-cli export onnx --model nvidia/segformer-b0-finetuned-ade-512-512 out`',
)
YOLO_SEMANTIC = Family(
    'yolo_semantic',
    'segment',
    YOLO_PREPROCESS,
    exporter='any',
    layouts=tuple(replace(layout, task='semantic') for layout in _LAYOUTS),
    head=SemanticHead,
    remedy=REMEDY,
    networks='YOLO-sem: one class per pixel',
    export='`yolo export model=yolo26n-sem.pt format=onnx`',
)
