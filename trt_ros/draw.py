"""Drawing of results on pictures, for the nodes and the CLI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import colorsys
from typing import NamedTuple
import zlib

import cv2
import numpy as np

from trt_ros.errors import printable
from trt_ros.vision.detections import Detections
from trt_ros.vision.keypoints import COCO, LIMBS
from trt_ros.vision.labels import name_of
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.results import (
    Classification,
    ClassMask,
    Depth,
    Instances,
    OrientedBoxes,
    Poses,
)

FONT = cv2.FONT_HERSHEY_SIMPLEX


def colour_of(class_index: int) -> tuple[int, int, int]:
    """
    Return the bright colour of a class: constant, and far from those of its neighbours.

    :returns: blue, green, red; 0 to 255.
    """
    # Multiples of the golden ratio never come close to an earlier hue.
    hue = (class_index * 0.6180339887 + 0.33) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.85, 1.0)
    return round(255 * blue), round(255 * green), round(255 * red)


def draw_result(
    pixels_bgr: np.ndarray,
    result: object,
    class_names: Sequence[str],
    *,
    opacity: float = 0.5,
    min_visibility: float = 0.5,
) -> None:
    """
    Draw the result of any task, in place; other objects are ignored.

    :param pixels_bgr: (H, W, 3) uint8, C-contiguous and writable: the image of the result.
    :param class_names: by class index; an index beyond them is drawn as a number.
    :param opacity: opacity of masks, see draw_mask.
    :param min_visibility: minimum visibility of keypoints, see draw_keypoints.
    """
    if isinstance(result, Instances):
        draw_mask(
            pixels_bgr,
            result.paint((result.detections.labels + 1).astype(np.uint16)),
            opacity=opacity,
            background=0,
        )
    if isinstance(result, ClassMask):
        draw_mask(pixels_bgr, result.labels, opacity=opacity)
    if isinstance(result, Mapping):
        _draw_masks(pixels_bgr, result, opacity)
    if isinstance(result, (Detections, OrientedBoxes)):
        draw_detections(pixels_bgr, result, class_names)
    if isinstance(result, (Instances, Poses)):
        draw_detections(pixels_bgr, result.detections, class_names)
    if isinstance(result, Poses):
        draw_keypoints(pixels_bgr, result.keypoints, min_visibility=min_visibility)
    if isinstance(result, Classification):
        draw_scores(pixels_bgr, result, class_names)
    if isinstance(result, Depth):
        pixels_bgr[:] = depth_view(result)


def _draw_masks(pixels_bgr: np.ndarray, masks: Mapping[str, object], opacity: float) -> None:
    """Draw the first mask, and the others without their class 0, in colours further on."""
    found = [mask.labels for mask in masks.values() if isinstance(mask, ClassMask)]
    for number, labels in enumerate(found):
        shifted = labels.astype(np.uint32)
        shifted[labels > 0] += number
        draw_mask(pixels_bgr, shifted, opacity=opacity, background=0 if number else None)


def draw_scores(pixels_bgr: np.ndarray, found: Classification, class_names: Sequence[str]) -> None:
    """Draw the five best classes into the upper-left corner, in place."""
    text_scale = max(0.4, min(pixels_bgr.shape[:2]) / 800)
    line_height = round(32 * text_scale) + 8
    for line, label in enumerate(found.top(5).tolist(), 1):
        draw_label(
            pixels_bgr,
            f'{name_of(class_names, label)} {float(found.scores[label]):.2f}',
            (0, line * line_height),
            colour_of(label),
            text_scale=text_scale,
            thickness=2,
        )


def depth_view(found: Depth) -> np.ndarray:
    """
    Map depth to colours from the minimum (blue) to the maximum (red); non-finite pixels are black.

    :returns: (H, W, 3) uint8 BGR.
    """
    finite = np.isfinite(found.values)
    values = found.values[finite]
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
    share = np.where(finite, found.values - low, 0) / max(high - low, np.finfo(np.float32).tiny)
    colours = cv2.applyColorMap((share * 255).astype(np.uint8), cv2.COLORMAP_TURBO)
    return np.asarray(colours * finite[..., np.newaxis].astype(np.uint8))


def input_view(tensor: np.ndarray, prepared: Preprocess) -> np.ndarray:
    """
    Convert a network's input back to pixels, undoing the normalisation that made it.

    :param tensor: `prepared.shape`; of 4 channels, the colours are shown.
    :param prepared: the preprocessing that made it.
    :returns: (H, W, 3) uint8 BGR.
    """
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
    """
    Arrange pictures in rows, each resized to `height`, with its caption above.

    :returns: (H, W, 3) uint8 BGR with a white background.
    """
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
    size = max(1, round(columns * height / rows)), height
    # Single pixels of a small input stay visible.
    pixels = cv2.resize(
        panel.pixels_bgr,
        size,
        interpolation=(cv2.INTER_AREA if rows > height else cv2.INTER_NEAREST),
    )
    caption = printable(panel.caption)
    (text_width, text_height), baseline = cv2.getTextSize(caption, FONT, 0.45, 1)
    strip = np.full((text_height + baseline + 12, max(size[0], text_width + 12), 3), 255, np.uint8)
    cv2.putText(strip, caption, (6, text_height + 6), FONT, 0.45, (0, 0, 0), 1, cv2.LINE_AA)
    pixels = np.pad(pixels, ((0, 0), (0, strip.shape[1] - size[0]), (0, 0)), constant_values=255)
    return np.vstack([strip, pixels])


def draw_detections(
    pixels_bgr: np.ndarray,
    detections: Detections | OrientedBoxes,
    class_names: Sequence[str],
    ids: Sequence[str] = (),
) -> None:
    """
    Draw every box with its class name and score, in place; the best box on top.

    :param pixels_bgr: (H, W, 3) uint8, C-contiguous and writable.
    :param class_names: by class index; an index beyond them is drawn as a number.
    :param ids: one per box, '' for a box without; a box with one has the colour of its id.
    """
    height, width = pixels_bgr.shape[:2]
    thickness = max(1, round(min(height, width) / 320))
    text_scale = max(0.4, min(height, width) / 1200)
    corners = _corners(detections)
    best_last = reversed(range(len(detections)))
    for index in best_last:
        label = int(detections.labels[index])
        name, colour = name_of(class_names, label), colour_of(label)
        if ids and ids[index]:
            name = f'{name} {ids[index]}'
            colour = colour_of(zlib.crc32(ids[index].encode()) % 1024)
        left, top = (int(edge) for edge in corners[index].min(axis=0))
        cv2.polylines(pixels_bgr, [corners[index]], True, colour, thickness)
        draw_label(
            pixels_bgr,
            f'{name} {float(detections.scores[index]):.2f}',
            (left, top),
            colour,
            text_scale=text_scale,
            thickness=thickness,
        )


def draw_mask(
    pixels_bgr: np.ndarray, classes: np.ndarray, *, opacity: float, background: int | None = None
) -> None:
    """
    Blend each pixel with the colour of its class, in place.

    :param pixels_bgr: (H, W, 3) uint8, C-contiguous and writable.
    :param classes: (H, W) unsigned integers.
    :param opacity: 0 (only the image) to 1 (only the classes).
    :param background: class whose pixels stay unchanged; None: no class.
    """
    colours = np.array([colour_of(index) for index in range(int(classes.max()) + 1)], np.uint8)
    blended = cv2.addWeighted(pixels_bgr, 1 - opacity, colours[classes], opacity, 0)
    shown = True if background is None else (classes != background)[..., np.newaxis]
    np.copyto(pixels_bgr, blended, where=shown)


def draw_keypoints(
    pixels_bgr: np.ndarray, keypoints: np.ndarray, *, min_visibility: float
) -> None:
    """
    Draw keypoints as dots, in place, each in the colour of its index; those of COCO with limbs.

    :param pixels_bgr: (H, W, 3) uint8, C-contiguous and writable.
    :param keypoints: (N, K, 3): x, y in pixels, and visibility; see `Poses`.
    :param min_visibility: minimum visibility of a drawn keypoint, 0 to 1.
    """
    radius = max(2, round(min(pixels_bgr.shape[:2]) / 160))
    limbs = LIMBS if keypoints.shape[1] == len(COCO) else ()
    for each in keypoints:
        shown = {
            index: (round(x), round(y))
            for index, (x, y, visibility) in enumerate(each.tolist())
            if visibility >= min_visibility and abs(x) < 1e6 and abs(y) < 1e6
        }
        for first, second in limbs:
            if first in shown and second in shown:
                cv2.line(
                    pixels_bgr, shown[first], shown[second], colour_of(first), max(1, radius // 2)
                )
        for index, point in shown.items():
            cv2.circle(pixels_bgr, point, radius, colour_of(index), cv2.FILLED)


def _corners(found: Detections | OrientedBoxes) -> np.ndarray:
    """Compute the corners of boxes: (N, 4, 2) int32, in pixels, in drawing order."""
    if isinstance(found, OrientedBoxes):
        cos, sin = np.cos(found.theta), np.sin(found.theta)
        along = np.stack([cos, sin], axis=1) * found.cxcywh[:, 2:3] / 2
        across = np.stack([-sin, cos], axis=1) * found.cxcywh[:, 3:] / 2
        corners = found.cxcywh[:, None, :2] + np.stack(
            [-along - across, along - across, along + across, across - along], axis=1
        )
    else:
        corners = found.xyxy[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    return np.asarray(np.rint(np.clip(corners, -1e6, 1e6)).astype(np.int32))


def draw_label(
    pixels_bgr: np.ndarray,
    text: str,
    corner_xy: tuple[int, int],
    colour: tuple[int, int, int],
    *,
    text_scale: float,
    thickness: int,
) -> None:
    """
    Draw `text` on a filled background above `corner_xy`, or below it at the upper edge.

    :param pixels_bgr: (H, W, 3) uint8, changed in place.
    :param colour: background colour; the text is black or white, whichever has more contrast.
    """
    stroke, text = max(1, thickness // 2), printable(text)
    (text_width, text_height), baseline = cv2.getTextSize(text, FONT, text_scale, stroke)
    margin = thickness + 1
    box_width, box_height = text_width + 2 * margin, text_height + baseline + 2 * margin
    left = min(max(corner_xy[0], 0), max(pixels_bgr.shape[1] - box_width, 0))
    top = corner_xy[1] - box_height
    if top < 0:
        top = max(corner_xy[1], 0)
    cv2.rectangle(
        pixels_bgr, (left, top), (left + box_width, top + box_height), colour, cv2.FILLED
    )
    blue, green, red = colour
    # Luma by BT.601: black letters on bright backgrounds.
    is_bright = 0.114 * blue + 0.587 * green + 0.299 * red > 128
    ink = (0, 0, 0) if is_bright else (255, 255, 255)
    cv2.putText(
        pixels_bgr,
        text,
        (left + margin, top + margin + text_height),
        FONT,
        text_scale,
        ink,
        stroke,
        cv2.LINE_AA,
    )
