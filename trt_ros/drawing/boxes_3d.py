"""Drawing of boxes in space on the image of a camera."""

from collections.abc import Sequence

import cv2
import numpy as np

from trt_ros.drawing.labels import DEFAULT_STYLE, Label, Style, draw_labels, ink
from trt_ros.vision.depth_points import Intrinsics

NEAR = 0.05  # Meters; what is nearer to the camera is not drawn.
_FRONT, _BACK = ((0, 1), (1, 2), (2, 3), (3, 0)), ((4, 5), (5, 6), (6, 7), (7, 4))
_EDGES = np.array([*_FRONT, *_BACK, (0, 4), (1, 5), (2, 6), (3, 7)])


def draw_boxes_3d(
    pixels: np.ndarray,
    corners: np.ndarray,
    labels: Sequence[Label],
    camera: Intrinsics,
    *,
    style: Style = DEFAULT_STYLE,
) -> None:
    """
    Draw the edges and labels of boxes in space, in place; the first box on top.

    :param pixels: (H, W, 3) BGR or (H, W, 4) BGRA, uint8, C-contiguous and writable.
    :param corners: (N, 8, 3) as of box_corners(), in the optical frame of the camera.
    :param labels: one per box, in whose color it is drawn.
    :param camera: calibration of the (rectified) image.
    """
    thickness, shown, outlines = style.thickness(pixels), [], []
    for label, box in reversed(list(zip(labels, corners))):
        lines = project_edges(box, camera)
        if not len(lines):  # Behind the camera, or not finite.
            continue
        color = ink(pixels, label.color)
        for first, second in lines.tolist():
            cv2.line(pixels, first, second, color, thickness)
        points = lines.reshape(-1, 2)
        outlines.append([*points.min(axis=0), *points.max(axis=0)])
        shown.append(label)
    if shown:
        draw_labels(pixels, shown[::-1], np.array(outlines[::-1]), style)


def project_edges(corners: np.ndarray, camera: Intrinsics) -> np.ndarray:
    """
    Project the edges of a box, cut off in front of the camera.

    :param corners: (8, 3) meters in the optical frame; none is projected unless all are finite.
    :returns: (E, 2, 2) int32, both ends of each visible edge in pixels.
    """
    if not np.isfinite(corners).all():
        return np.zeros((0, 2, 2), np.int32)
    first, second = corners[_EDGES[:, 0]], corners[_EDGES[:, 1]]
    ends = []
    for here, there in ((first, second), (second, first)):
        depth, step = here[:, 2], there[:, 2] - here[:, 2]
        with np.errstate(divide='ignore', invalid='ignore'):
            share = np.where(depth < NEAR, (NEAR - depth) / step, 0)
        ends.append(here + np.nan_to_num(share)[:, None] * (there - here))
    visible = np.maximum(first[:, 2], second[:, 2]) > NEAR
    points = np.stack(ends, axis=1)[visible]
    scale, center = np.array([camera.fx, camera.fy]), np.array([camera.cx, camera.cy])
    places = points[..., :2] / points[..., 2:] * scale + center
    return np.asarray(np.rint(np.clip(places, -30000, 30000)).astype(np.int32))
