"""Drawing of results on pictures, for the nodes and the CLI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trt_ros.draw.labels import Label, draw_label, drawn_name
from trt_ros.draw.masks import depth_view, draw_mask
from trt_ros.draw.objects import draw_detections, draw_keypoints
from trt_ros.draw.style import DEFAULT_STYLE, Style, color_of
from trt_ros.vision.detections import Detections
from trt_ros.vision.labels import begins_with_background
from trt_ros.vision.results import (
    Classification,
    ClassMask,
    Depth,
    Instances,
    OrientedBoxes,
    Poses,
)


def draw_result(
    pixels: np.ndarray,
    result: object,
    class_names: Sequence[str],
    *,
    keypoint_names: Sequence[str] = (),
    opacity: float = 0.5,
    min_visibility: float = 0.5,
    style: Style = DEFAULT_STYLE,
) -> None:
    """
    Draw the result of any task, in place; other objects are ignored.

    :param pixels: uint8, C-contiguous and writable: the image of the result, (H, W, 3) BGR, or,
        but for depth, a transparent picture of its size, (H, W, 4) BGRA.
    :param class_names: by class index; an index beyond them is drawn as a number.
    :param keypoint_names: see draw_keypoints.
    :param opacity: opacity of masks, see draw_mask.
    :param min_visibility: minimum visibility of keypoints, see draw_keypoints.
    """
    if isinstance(result, Instances):
        labels = (result.detections.labels + 1).astype(np.uint16)
        # In the colors of their boxes.
        draw_mask(pixels, result.paint(labels), opacity=opacity, background=0, shift=-1)
    if isinstance(result, ClassMask):
        result = {'': result}
    if isinstance(result, Mapping):
        _draw_masks(pixels, result, class_names, opacity)
    if isinstance(result, (Detections, OrientedBoxes)):
        draw_detections(pixels, result, class_names, style=style)
    if isinstance(result, (Instances, Poses)):
        draw_detections(pixels, result.detections, class_names, style=style)
    if isinstance(result, Poses):
        draw_keypoints(
            pixels, result.keypoints, keypoint_names, min_visibility=min_visibility, style=style
        )
    if isinstance(result, Classification):
        draw_scores(pixels, result, class_names, style=style)
    if isinstance(result, Depth):
        pixels[:] = depth_view(result)


def _draw_masks(
    pixels: np.ndarray, masks: Mapping[str, object], class_names: Sequence[str], opacity: float
) -> None:
    """Draw the first mask, and the others without their class 0, in colors further on."""
    found = [mask for mask in masks.values() if isinstance(mask, ClassMask)]
    for number, mask in enumerate(found):
        has_background = (
            bool(number)
            or begins_with_background(class_names)
            or (mask.is_binary and not class_names)
        )
        draw_mask(
            pixels,
            mask.labels,
            opacity=opacity,
            background=0 if has_background else None,
            shift=number,
        )


def draw_scores(
    pixels: np.ndarray,
    found: Classification,
    class_names: Sequence[str],
    *,
    style: Style = DEFAULT_STYLE,
) -> None:
    """Draw the five best classes into the upper-left corner, in place."""
    if not style.label_size:
        return
    text_scale = style.text_scale(pixels, 800)
    line_height = round(32 * text_scale) + 8
    for line, label in enumerate(found.top(5).tolist()):
        text = f'{drawn_name(class_names, label)} {float(found.scores[label]):.2f}'
        draw_label(
            pixels,
            Label(text, color_of(label)),
            (0, line * line_height),
            text_scale=text_scale,
            thickness=2,
        )
