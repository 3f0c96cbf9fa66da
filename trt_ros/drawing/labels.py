"""Colors and sizes, and labels of boxes, placed where they cover little else."""

from collections.abc import Sequence
import colorsys
from dataclasses import dataclass
import unicodedata

import cv2
import numpy as np

from trt_ros.errors import printable
from trt_ros.results.labels import name_of

FONT = cv2.FONT_HERSHEY_SIMPLEX

Color = tuple[int, int, int]  # Blue, green, red; 0 to 255.


@dataclass(frozen=True)
class Style:
    """
    The sizes of lines and labels.

    :param label_size: factor on the height of labels; 0 draws none.
    :param line_width: width of the lines of boxes in pixels; 0 chooses it by the image size.
    """

    label_size: float = 1.0
    line_width: int = 0

    def thickness(self, pixels: np.ndarray) -> int:
        """Return the width of lines on a picture."""
        return self.line_width or max(1, round(min(pixels.shape[:2]) / 320))

    def text_scale(self, pixels: np.ndarray, divisor: float = 1200) -> float:
        """Return the scale of FONT on a picture."""
        return float(self.label_size * max(0.4, min(pixels.shape[:2]) / divisor))


DEFAULT_STYLE = Style()


def color_of(class_index: int) -> Color:
    """Return the bright color of a class: constant, and far from those of its neighbors."""
    # Multiples of the golden ratio never come close to an earlier hue.
    hue = (class_index * 0.6180339887 + 0.33) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.85, 1.0)
    return round(255 * blue), round(255 * green), round(255 * red)


def ink(pixels: np.ndarray, color: Color) -> tuple[int, ...]:
    """Return an opaque color for OpenCV, on (H, W, 3) BGR or (H, W, 4) BGRA."""
    return color if pixels.shape[2] == 3 else (*color, 255)


# Further labels are above their boxes, and further boxes may be covered: time and memory grow with
# the product.
MAX_PLACED, MAX_NEIGHBOURS = 300, 1000
# Costs in shares of a covered box: of the own box, of a placed label, and of each further choice.
OWN, LABEL, NEXT = 0.5, 1.0, 0.05

# Latin letters that are no letter with an accent.
_LETTERS = str.maketrans(
    {'ß': 'ss', 'æ': 'ae', 'Æ': 'AE', 'œ': 'oe', 'ø': 'o', 'Ø': 'O', 'ł': 'l', 'Ł': 'L', 'ı': 'i'}
)


@dataclass(frozen=True)
class Label:
    """A text and its background color."""

    text: str
    color: Color


def drawn_name(class_names: Sequence[str], index: int) -> str:
    """
    Return the name of a class in the letters that FONT has; its index, if it has none of them.

    >>> drawn_name(['Möhre', '麦'], 0), drawn_name(['Möhre', '麦'], 1)
    ('Mohre', '1')
    """
    letters = unicodedata.normalize('NFKD', name_of(class_names, index).translate(_LETTERS))
    return letters.encode('ascii', 'ignore').decode().strip() or str(index)


def draw_labels(
    pixels: np.ndarray, labels: Sequence[Label], boxes: np.ndarray, style: Style
) -> None:
    """Draw the labels of boxes, (N, 4) x1, y1, x2, y2 in pixels, in place; the first on top."""
    if not style.label_size or not labels:
        return
    scale, thickness = style.text_scale(pixels), style.thickness(pixels)
    sizes = np.array([_size(label.text, scale, thickness)[0] for label in labels], float)
    corners = place_labels(boxes.astype(float), sizes, (pixels.shape[1], pixels.shape[0]))
    for label, (left, top) in reversed(list(zip(labels, corners.tolist()))):
        draw_label(pixels, label, (left, top), text_scale=scale, thickness=thickness)


def place_labels(boxes: np.ndarray, sizes: np.ndarray, image_wh: tuple[int, int]) -> np.ndarray:
    """
    Place each label above, below, inside or beside its box.

    The place is chosen that covers the least share of other boxes, which counts small ones most,
    and of labels placed before.

    :param boxes: (N, 4) x1, y1, x2, y2; the first chooses first.
    :param sizes: (N, 2) width and height of the labels.
    :returns: (N, 2) int32, upper-left corners, within the image where the label fits into it.
    """
    left, top, right, bottom = boxes.T
    width, height = sizes.T
    above, beside = (left, top - height), (left - width, top)
    corners = np.array([above, (left, bottom), (left, top), (right, top), beside])
    corners = corners.transpose(2, 0, 1)
    room = np.maximum(np.array(image_wh) - sizes, 0)
    corners = np.clip(corners, 0, room[:, None])
    places = np.concatenate([corners, corners + sizes[:, None]], axis=2)[:MAX_PLACED]
    shares = covered(places, boxes[:MAX_NEIGHBOURS])
    own = np.arange(len(places))
    costs = shares.sum(axis=2) - (1 - OWN) * shares[own, :, own] + NEXT * np.arange(5)
    chosen = np.zeros(len(boxes), np.intp)
    for index, place in enumerate(places):
        taken = places[:index][np.arange(index), chosen[:index]]
        chosen[index] = np.argmin(costs[index] + LABEL * covered(place, taken).sum(axis=1))
    return np.asarray(corners[np.arange(len(boxes)), chosen]).astype(np.int32)


def covered(places: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Compute the share of each box (N, 4) that places (..., 4) cover: (..., N), 0 to 1."""
    low = np.maximum(places[..., None, :2], boxes[:, :2])
    high = np.minimum(places[..., None, 2:], boxes[:, 2:])
    areas = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 1), axis=1)
    return np.asarray(np.prod(np.maximum(high - low, 0), axis=-1) / areas)


def draw_label(
    pixels: np.ndarray,
    label: Label,
    corner_xy: tuple[int, int],
    *,
    text_scale: float,
    thickness: int,
) -> None:
    """Draw a black or white text on a filled background from its upper-left corner, in place."""
    (left, top), margin = corner_xy, thickness + 1
    (width, height), text_height = _size(label.text, text_scale, thickness)
    background = ink(pixels, label.color)
    cv2.rectangle(pixels, (left, top), (left + width, top + height), background, cv2.FILLED)
    blue, green, red = label.color
    # Luma by BT.601: black letters on bright backgrounds.
    is_bright = 0.114 * blue + 0.587 * green + 0.299 * red > 128
    cv2.putText(
        pixels,
        printable(label.text),
        (left + margin, top + margin + text_height),
        FONT,
        text_scale,
        ink(pixels, (0, 0, 0) if is_bright else (255, 255, 255)),
        max(1, thickness // 2),
        cv2.LINE_AA,
    )
    if pixels.shape[2] == 4:  # OpenCV 5 writes how much of a pixel the letters cover.
        pixels[max(top, 0) : top + height + 1, max(left, 0) : left + width + 1, 3] = background[3]


def _size(text: str, text_scale: float, thickness: int) -> tuple[tuple[int, int], int]:
    """Return width and height of a label, and the height of its text above the baseline."""
    (width, height), baseline = cv2.getTextSize(
        printable(text), FONT, text_scale, max(1, thickness // 2)
    )
    return (width + 2 * (thickness + 1), height + baseline + 2 * (thickness + 1)), height
