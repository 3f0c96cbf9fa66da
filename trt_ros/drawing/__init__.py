"""Drawing of results on pictures, for the nodes, the CLI and Python programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from trt_ros.drawing.labels import DEFAULT_STYLE, Label, Style, color_of, draw_label, drawn_name
from trt_ros.drawing.objects import depth_view, draw_detections, draw_keypoints, draw_mask
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.results.arrays import Depth
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.results.classes import Classification
from trt_ros.results.labels import begins_with_background
from trt_ros.results.masks import ClassMask, ClassMasks, Instances
from trt_ros.results.poses import Poses
from trt_ros.results.text import Text


@dataclass(frozen=True)
class _Options:
    keypoint_names: Sequence[str]
    opacity: float
    min_visibility: float
    style: Style


def draw(
    pixels: np.ndarray,
    result: object,
    *,
    keypoint_names: Sequence[str] = (),
    opacity: float = 0.5,
    min_visibility: float = 0.5,
    style: Style = DEFAULT_STYLE,
) -> np.ndarray:
    """
    Draw the result of any task, with names and ids, in place; of tensors, nothing.

    :param pixels: uint8, C-contiguous and writable: the image of the result, (H, W, 3) BGR, or,
        but for depth, a transparent picture of its size, (H, W, 4) BGRA.
    :param keypoint_names: see draw_keypoints.
    :param opacity: opacity of masks, see draw_mask.
    :param min_visibility: minimum visibility of keypoints, see draw_keypoints.
    :returns: `pixels`.
    :raises BadFrameError: when `pixels` are no such array.
    :raises ParameterError: when `result` is no result.
    """
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape[2:] not in ((3,), (4,))
        or not pixels.size
        or not (pixels.flags.writeable and pixels.flags.c_contiguous)
    ):
        is_array = isinstance(pixels, np.ndarray)
        got = f'{pixels.shape} {pixels.dtype}' if is_array else type(pixels).__name__
        raise BadFrameError(
            'wrong data',
            f'Cannot draw on pixels of {got}.',
            remedy='Pass a writable, C-contiguous array (H, W, 3) uint8 that is not empty: '
            'image.copy().',
        )
    _draw(result, pixels, _Options(keypoint_names, opacity, min_visibility, style))
    return pixels


@singledispatch
def _draw(result: object, pixels: np.ndarray, options: _Options) -> None:
    raise ParameterError(
        f'An object of type {type(result).__name__} is no result of a network.',
        remedy='Draw one result at a time: draw(image, found).',
    )


@_draw.register
def _(result: Result, pixels: np.ndarray, options: _Options) -> None:
    """Draw nothing."""


@_draw.register
def _(result: Objects, pixels: np.ndarray, options: _Options) -> None:
    draw_detections(pixels, result, style=options.style)


@_draw.register
def _(result: Instances, pixels: np.ndarray, options: _Options) -> None:
    labels = (result.labels + 1).astype(np.uint16)
    # In the colors of their boxes.
    draw_mask(pixels, result.paint(labels), opacity=options.opacity, background=0, shift=-1)
    draw_detections(pixels, result, style=options.style)


@_draw.register
def _(result: Poses, pixels: np.ndarray, options: _Options) -> None:
    draw_detections(pixels, result, style=options.style)
    draw_keypoints(
        pixels,
        result.keypoints,
        options.keypoint_names,
        min_visibility=options.min_visibility,
        style=options.style,
    )


@_draw.register(ClassMask)
@_draw.register(ClassMasks)
def _(result: ClassMask | ClassMasks, pixels: np.ndarray, options: _Options) -> None:
    """Draw the first mask, and the others without their class 0, in colors further on."""
    for number, mask in enumerate(result.class_masks()):
        names = mask.class_names
        has_background = number or begins_with_background(names) or (mask.is_binary and not names)
        background, opacity = 0 if has_background else None, options.opacity
        draw_mask(pixels, mask.labels, opacity=opacity, background=background, shift=number)


@_draw.register
def _(result: Depth, pixels: np.ndarray, options: _Options) -> None:
    pixels[:] = depth_view(result)


@_draw.register
def _(result: Text, pixels: np.ndarray, options: _Options) -> None:
    _draw(Classification(result.scores, class_names=(result.text,)), pixels, options)


@_draw.register
def _(result: Classification, pixels: np.ndarray, options: _Options) -> None:
    """Draw the five best classes into the upper-left corner."""
    style = options.style
    if not style.label_size:
        return
    text_scale = style.text_scale(pixels, 800)
    line_height = round(32 * text_scale) + 8
    for line, label in enumerate(result.top(5).tolist()):
        text = f'{drawn_name(result.class_names, label)} {float(result.scores[label]):.2f}'
        drawn, at = Label(text, color_of(label)), (0, line * line_height)
        draw_label(pixels, drawn, at, text_scale=text_scale, thickness=2)
