"""Colors and sizes of drawings."""

import colorsys
from dataclasses import dataclass

import cv2
import numpy as np

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
