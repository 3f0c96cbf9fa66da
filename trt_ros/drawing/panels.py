"""Pictures side by side with captions, and a network's input as a picture."""

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np

from trt_ros.drawing.labels import FONT
from trt_ros.errors import printable
from trt_ros.vision.letterbox import Preprocess

MAX_ASPECT = 4


def input_view(tensor: np.ndarray, prepared: Preprocess) -> np.ndarray:
    """Convert a network's input, without its normalization, back to (H, W, 3) uint8 BGR."""
    values = np.asarray(tensor[0], np.float32)
    values = values.transpose(1, 2, 0) if prepared.layout == 'nchw' else values
    pixels = (values + prepared.bias) / prepared.gain
    pixels = np.clip(np.rint(np.nan_to_num(pixels)), 0, 255).astype(np.uint8)
    if prepared.channels == 1:
        return np.repeat(pixels, 3, axis=2)
    pixels = pixels[..., :3]
    return np.ascontiguousarray(pixels[..., ::-1] if prepared.channel_order == 'rgb' else pixels)


class Panel(NamedTuple):
    """A picture (H, W, 3) uint8 BGR, and its caption."""

    pixels_bgr: np.ndarray
    caption: str


def in_rows(rows: Sequence[Sequence[Panel]], height: int = 480) -> np.ndarray:
    """Arrange pictures with captions in rows of a height, each up to MAX_ASPECT times as wide."""
    strips = [np.hstack([_captioned(panel, height) for panel in row]) for row in rows]
    width = max(strip.shape[1] for strip in strips)
    return np.vstack(
        [
            np.pad(strip, ((0, 0), (0, width - strip.shape[1]), (0, 0)), constant_values=255)
            for strip in strips
        ]
    )


def _captioned(panel: Panel, height: int) -> np.ndarray:
    rows, columns = panel.pixels_bgr.shape[:2]
    scale = min(height / rows, MAX_ASPECT * height / columns)
    size = max(1, round(columns * scale)), max(1, round(rows * scale))
    # Single pixels of a small input stay visible.
    pixels = cv2.resize(
        panel.pixels_bgr, size, interpolation=(cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST)
    )
    caption = printable(panel.caption)
    (text_width, text_height), baseline = cv2.getTextSize(caption, FONT, 0.45, 1)
    strip = np.full((text_height + baseline + 12, max(size[0], text_width + 12), 3), 255, np.uint8)
    cv2.putText(strip, caption, (6, text_height + 6), FONT, 0.45, (0, 0, 0), 1, cv2.LINE_AA)
    around = ((0, height - size[1]), (0, strip.shape[1] - size[0]), (0, 0))
    pixels = np.pad(pixels, around, constant_values=255)
    return np.vstack([strip, pixels])
