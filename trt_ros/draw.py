"""Detections drawn on a picture: boxes, names, scores. Shared by the overlay node and the CLI."""

from __future__ import annotations

from collections.abc import Sequence
import colorsys

import cv2
import numpy as np

from trt_ros.vision.detections import Detections
from trt_ros.vision.results import OrientedBoxes

FONT = cv2.FONT_HERSHEY_SIMPLEX


def colour_of(class_index: int) -> tuple[int, int, int]:
    """
    Choose a bright colour for a class: always the same one, far from its neighbours'.

    :returns: blue, green, red; 0 to 255.
    """
    # Steps of the golden ratio never come close to an earlier hue.
    hue = (class_index * 0.6180339887 + 0.33) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.85, 1.0)
    return round(255 * blue), round(255 * green), round(255 * red)


def draw_detections(
        pixels_bgr: np.ndarray, detections: Detections | OrientedBoxes,
        class_names: Sequence[str]) -> None:
    """
    Draw every box with its name and score, in place; the best one on top.

    :param pixels_bgr: (H, W, 3) uint8, C-contiguous and writable.
    :param class_names: by class index; an index beyond them is shown as a number.
    """
    height, width = pixels_bgr.shape[:2]
    thickness = max(1, round(min(height, width) / 320))
    text_scale = max(0.4, min(height, width) / 1200)
    corners = _corners(detections)
    best_last = reversed(range(len(detections)))
    for index in best_last:
        label = int(detections.labels[index])
        name = class_names[label] if 0 <= label < len(class_names) else str(label)
        colour = colour_of(label)
        left, top = (int(edge) for edge in corners[index].min(axis=0))
        cv2.polylines(pixels_bgr, [corners[index]], True, colour, thickness)
        draw_label(
            pixels_bgr, f'{name} {float(detections.scores[index]):.2f}', (left, top), colour,
            text_scale=text_scale, thickness=thickness)


def _corners(found: Detections | OrientedBoxes) -> np.ndarray:
    """Return (N, 4, 2) int32, in pixels, each box's in turn."""
    if isinstance(found, OrientedBoxes):
        cos, sin = np.cos(found.theta), np.sin(found.theta)
        along = np.stack([cos, sin], axis=1) * found.cxcywh[:, 2:3] / 2
        across = np.stack([-sin, cos], axis=1) * found.cxcywh[:, 3:] / 2
        corners = found.cxcywh[:, None, :2] + np.stack(
            [-along - across, along - across, along + across, across - along], axis=1)
    else:
        corners = found.xyxy[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    return np.asarray(np.rint(np.clip(corners, -1e6, 1e6)).astype(np.int32))


def draw_label(
        pixels_bgr: np.ndarray, text: str, corner_xy: tuple[int, int],
        colour: tuple[int, int, int], *, text_scale: float, thickness: int) -> None:
    """
    Write `text` on a filled background above `corner_xy`, or inside where there is no room.

    :param pixels_bgr: (H, W, 3) uint8, changed in place.
    :param colour: the background's; the text is black or white, whichever can be read on it.
    """
    stroke = max(1, thickness // 2)
    (text_width, text_height), baseline = cv2.getTextSize(text, FONT, text_scale, stroke)
    margin = thickness + 1
    box_width, box_height = text_width + 2 * margin, text_height + baseline + 2 * margin
    left = min(max(corner_xy[0], 0), max(pixels_bgr.shape[1] - box_width, 0))
    top = corner_xy[1] - box_height
    if top < 0:
        top = max(corner_xy[1], 0)
    cv2.rectangle(
        pixels_bgr, (left, top), (left + box_width, top + box_height), colour, cv2.FILLED)
    blue, green, red = colour
    # Luma as BT.601 weighs it: bright backgrounds get black letters.
    is_bright = 0.114 * blue + 0.587 * green + 0.299 * red > 128
    ink = (0, 0, 0) if is_bright else (255, 255, 255)
    cv2.putText(
        pixels_bgr, text, (left + margin, top + margin + text_height), FONT, text_scale, ink,
        stroke, cv2.LINE_AA)
