"""Maximum size of images that are decoded."""

from dataclasses import dataclass

from trt_ros.errors import BadFrameError
from trt_ros.parameter_field import param

MAX_IMAGE_PIXELS = 1 << 26
_OPENCV_MAX_PIXELS = 1 << 30
TOO_MANY_PIXELS = 'too many pixels'  # The kind of the error.


@dataclass(frozen=True)
class PixelLimit:
    """Parameter of nodes that decode images."""

    max_image_pixels: int = param(
        MAX_IMAGE_PIXELS,
        'Maximum number of pixels (width times height) of a compressed image, picture or video; '
        'larger ones are refused before they are decoded.',
        between=(1, _OPENCV_MAX_PIXELS),
    )


def check_pixels(width: int, height: int, max_pixels: int) -> None:
    """Raise BadFrameError 'too many pixels' for a larger encoded image or video."""
    if width * height > max_pixels:
        raise BadFrameError(
            TOO_MANY_PIXELS,
            f'The image has {width} × {height} pixels, more than max_image_pixels = {max_pixels}.',
            remedy=f'Set max_image_pixels to {width * height} or more, if you trust the source.',
        )
