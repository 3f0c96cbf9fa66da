"""Parameters of drawn images."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from std_msgs.msg import Header

from trt_ros.drawing import draw
from trt_ros.drawing.labels import Style
from trt_ros.ros.messages import ImageSender
from trt_ros.ros.parameters import mutable_param
from trt_ros.vision.frame import Frame, to_color


@dataclass(frozen=True)
class DrawingParameters:
    """Parameters of nodes that draw their results."""

    label_size: float = mutable_param(
        1.0, 'Factor on the height of drawn labels; 0.0 draws none.', zero_or=(0.1, 10.0)
    )
    line_width: int = mutable_param(
        0,
        'Width of drawn lines in pixels; 0 chooses it by the size of the image.',
        between=(0, 100),
    )
    transparent_background: bool = mutable_param(
        False,
        'Whether drawn images have only what is drawn, on a transparent background (bgra8); false '
        'draws on the image (bgr8).',
    )

    def style(self) -> Style:
        """Return the sizes of lines and labels."""
        return Style(self.label_size, self.line_width)

    def begin_drawing(self, sender: ImageSender, header: Header, frame: Frame) -> np.ndarray:
        """Return the pixels to draw on: (H, W, 3) BGR, or transparent (H, W, 4) BGRA."""
        if self.transparent_background:
            pixels = sender.begin(header, frame.wh, 'bgra8')
            pixels[:] = 0
        else:
            pixels = sender.begin(header, frame.wh)
            pixels[:] = to_color(frame, 'bgr')
        return pixels

    def publish_drawn(
        self, sender: ImageSender, header: Header, frame: Frame, result: object, **options: Any
    ) -> None:
        """Publish an image with a result drawn on it, if it is wanted; `options` of draw()."""
        if sender.is_wanted():
            draw(self.begin_drawing(sender, header, frame), result, style=self.style(), **options)
            sender.send()
