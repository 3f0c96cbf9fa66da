"""PP-OCR: lines of text in an image, and the characters of a line."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trt_ros.families.family import Family, NetworkDescription, trained
from trt_ros.families.head import Head
from trt_ros.families.layout import Layout, Out
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.results.labels import class_names
from trt_ros.results.text import Text
from trt_ros.tensors import Arrays
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import as_float32, finite_or_zero, passing
from trt_ros.vision.thresholds import Thresholds

MIN_PROBABILITY = 0.3  # Of a cell of text.
MIN_SIDE = 3  # Of a shrunk line, in cells.
GROWTH = 1.6  # Lines are trained as shrunk polygons: area / perimeter times this is missing.
UPRIGHT = 1.5  # Lines that are higher than wide by this factor are read downwards.


@dataclass(frozen=True)
class TextBoxHead(Head[OrientedBoxes]):
    """
    A decoder of the probability of text per cell, (1, 1, h, w), to the rectangles of lines.

    Connected cells above 0.3 are a line; its score is the mean probability in its rectangle.
    Contours are followed cell by cell, which the CPU does.
    """

    class_count = 1
    own_class_names = ('text',)

    def decode(
        self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds
    ) -> OrientedBoxes:
        import cv2

        (plane,) = self.cells(outputs, letterbox.input_hw)
        cells = finite_or_zero(as_float32(plane))
        passes = (cells > MIN_PROBABILITY).astype(np.uint8)
        is_text = cv2.dilate(passes, np.ones((2, 2), np.uint8))
        contours, _ = cv2.findContours(is_text, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
        corners: list[np.ndarray] = [np.zeros((0, 4, 2))]
        scores: list[float] = []
        for contour in contours:
            center, (width, height), angle = cv2.minAreaRect(contour)
            if min(width, height) < MIN_SIDE:
                continue
            score = _mean(cells, cv2.boxPoints((center, (width, height), angle)))
            grown = GROWTH * width * height / (width + height)
            size = width + grown, height + grown
            if passing(np.array(score), thresholds.score) and min(size) >= MIN_SIDE + 2:
                corners.append(cv2.boxPoints((center, size, angle))[None])
                scores.append(score)
        steps = np.array(letterbox.input_hw[::-1]) / cells.shape[::-1]
        points = np.concatenate(corners).reshape(-1, 2) * steps
        boxes = _boxes(letterbox.points_to_image(points).reshape(-1, 4, 2))
        best = np.argsort(-np.array(scores, np.float32), kind='stable')
        labels = np.zeros(len(scores), np.int32)
        found = OrientedBoxes(boxes[:, :4], boxes[:, 4], np.array(scores, np.float32), labels)
        return found.take(best[: thresholds.max_detections]).wanted(thresholds)


def _mean(cells: np.ndarray, corners: np.ndarray) -> float:
    import cv2

    height, width = cells.shape
    low = np.clip(np.floor(corners.min(axis=0)), 0, (width - 1, height - 1)).astype(int)
    high = np.clip(np.ceil(corners.max(axis=0)), 0, (width - 1, height - 1)).astype(int)
    part = cells[low[1] : high[1] + 1, low[0] : high[0] + 1]
    mask = np.zeros(part.shape, np.uint8)
    cv2.fillPoly(mask, [(corners - low).astype(np.int32)], 1)
    return float((part * mask).sum() / max(mask.sum(), 1))


def _boxes(corners: np.ndarray) -> np.ndarray:
    """Return (N, 5) center, size and angle of (N, 4, 2) corners; the width is read along."""
    first = (corners[:, 1] - corners[:, 0] + corners[:, 2] - corners[:, 3]) / 2
    second = (corners[:, 3] - corners[:, 0] + corners[:, 2] - corners[:, 1]) / 2
    is_first = (abs(first[:, 0]) >= abs(first[:, 1]))[:, None]
    flat, steep = np.where(is_first, first, second), np.where(is_first, second, first)
    is_upright = np.linalg.norm(steep, axis=1) >= UPRIGHT * np.linalg.norm(flat, axis=1)
    along, across = (
        np.where(is_upright[:, None], *pair) for pair in ((steep, flat), (flat, steep))
    )
    ahead = along[np.arange(len(along)), abs(along).argmax(axis=1)]
    along = along * np.where(ahead < 0, -1, 1)[:, None]  # To the right, or down.
    size = [np.linalg.norm(side, axis=1) for side in (along, across)]
    theta = np.arctan2(along[:, 1], along[:, 0])
    return np.column_stack([corners.mean(axis=1), *size, theta]).astype(np.float32)


@dataclass(frozen=True)
class TextHead(Head[Text]):
    """
    A decoder of the scores of symbols per step, (1, T, C), by CTC: symbol 0 is none.

    The best symbol of each step counts once where steps repeat it. Scores are probabilities or
    logits, as those of a classifier; non-finite ones are lower than all others.
    """

    takes_regions = True

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Text:
        scores = as_float32(self.arrays(outputs, letterbox.input_hw)[0])
        is_finite = np.isfinite(scores)
        finite = np.where(is_finite, scores, np.float32(-np.inf))
        best = finite.argmax(axis=1)
        highest = finite.max(axis=1, initial=-np.inf)
        with np.errstate(invalid='ignore'):
            is_final = is_finite.all(axis=1) & (scores.min(axis=1) >= 0)
            is_final &= abs(scores.sum(axis=1) - 1) < 0.01
            powers = np.exp(finite - highest[:, None]).sum(axis=1)
        odds = np.where(is_final, np.minimum(highest, 1), 1 / powers)
        return Text.of_steps(best, np.nan_to_num(odds))


def _reads_text(network: NetworkDescription) -> str | bool:
    """Return whether the classes are characters, between none and a space."""
    names = class_names((), '', network.metadata, None)
    is_text = bool(names) and (names[0], names[-1]) == ('blank', ' ')
    return is_text and 'names of characters in the metadata'


_PREPROCESS = trained('stretch', 'bgr', pad_value=127, mean=(0.5,) * 3, std=(0.5,) * 3)
#: Source: DB (Liao et al., arXiv:1911.08947); the numbers are those of PP-OCR in RapidOCR.
PP_OCR_DET: Family[Any] = Family(
    'pp_ocr_det',
    'obb',
    _PREPROCESS,
    layouts=(
        Layout((Out('B 1 h w', 'text:1', ('sigmoid_.*', 'fetch_name_.*')),)),
        Layout((Out('B 1 h w', 'text:1'),), by_name=True),
    ),
    head=TextBoxHead,
    networks='text detection of PP-OCR (DB): lines of text',
    export='the wheel `rapidocr`, or Paddle2ONNX',
)
#: Source: CTC (Graves et al., ICML 2006).
PP_OCR_REC: Family[Any] = Family(
    'pp_ocr_rec',
    'text',
    _PREPROCESS,
    layouts=tuple(
        Layout((Out('B T C', 'scores:C'),), ignores_names=True, known={}, **fields)
        for fields in ({'guards': (_reads_text,)}, {'by_name': True})
    ),
    head=TextHead,
    networks='text recognition of PP-OCR, and others with CTC: the characters of a line',
    export='the wheel `rapidocr`, or Paddle2ONNX',
)
