"""Node that draws detections on their images."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
import sys
import threading
from typing import Any, Generic, TypeVar

import numpy as np
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from trt_ros.draw import draw_detections
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.media import write_picture
from trt_ros.ros.dds.cdr import CompressedImageView, ImageView, read_stamp
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import subscribe_serialized
from trt_ros.ros.diagnostics import QUEUE_AGE, Diagnostics, FrameCounts, LatencyMeter
from trt_ros.ros.frames import to_frame
from trt_ros.ros.images import (
    ImageInputParameters,
    dropping,
    header_of,
    image_reader,
    image_topic,
    subscribe_images,
    wait_for_input,
    why_images_lost,
    why_no_image,
)
from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.messages import ImageSender, detection_reader
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node
from trt_ros.ros.qos import overridden
from trt_ros.ros.worker import REPLACED, NewestWorker
from trt_ros.vision.frame import to_colour

T = TypeVar('T')
UNMATCHED = 'no detections received'


@dataclass(frozen=True)
class OverlayParameters(NodeParameters, ImageInputParameters):
    """Parameters of the overlay node."""

    output_dir: str = param(
        '',
        'Folder for the annotated images, as PNG files named by their stamps; empty writes none.',
    )
    buffer_size: int = param(
        30,
        'Maximum number of images, and of detection messages, that wait for their counterpart.',
        between=(1, 1000),
    )
    qos_depth: int = param(
        5, 'Queue depth of the image subscription in messages.', between=(1, 1000)
    )
    autostart: bool = param(
        True, 'Whether the node configures and activates itself at startup.', read_only=True
    )


class StampBuffer(Generic[T]):
    """A bounded buffer of messages by stamp; a full one drops its oldest message."""

    def __init__(self, size: int) -> None:
        self._size, self._by_stamp = size, OrderedDict[tuple[int, int], T]()

    def take(self, stamp: tuple[int, int]) -> T | None:
        """Remove and return the message of a stamp; None without one."""
        return self._by_stamp.pop(stamp, None)

    def put(self, stamp: tuple[int, int], message: T) -> bool:
        """Store a message; return whether another one was dropped for it."""
        is_lost = self._by_stamp.pop(stamp, None) is not None
        self._by_stamp[stamp] = message
        if len(self._by_stamp) > self._size:
            self._by_stamp.popitem(last=False)
            is_lost = True
        return is_lost

    def __len__(self) -> int:
        return len(self._by_stamp)


class OverlayNode(ManagedNode):
    """A node that publishes images with the detections of the same stamp drawn on them."""

    Parameters = OverlayParameters

    def __init__(self, name: str = 'overlay', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._counts = FrameCounts()
        self._class_ids: list[str] = []
        self._matching = threading.Lock()  # Images arrive on a thread of their own.
        Diagnostics(
            self, self._counts, task='image', why_no_image=why_no_image, why_lost=why_images_lost
        )

    def configure(self) -> None:
        """Create the output folder and the publisher."""
        self._output_dir: Path | None = None
        if self.parameters.output_dir:
            self._output_dir = Path(self.parameters.output_dir).expanduser()
            try:
                self._output_dir.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ParameterError(
                    f'Folder {self._output_dir} cannot be created.',
                    cause=str(error),
                    remedy='Set output_dir to a writable folder.',
                ) from error
        self._read_detections = detection_reader(self)
        self._drawn = ImageSender(self, self.publisher(Image, '~/image', QoSProfile(depth=5)))

    def activate(self) -> None:
        """Subscribe to images and detections."""
        size = self.parameters.buffer_size
        self._images: StampBuffer[ImageView | CompressedImageView] = StampBuffer(size)
        self._detections: StampBuffer[np.ndarray] = StampBuffer(size)
        self.while_active.callback(self._drop_waiting)
        self._latency = LatencyMeter(self, self._counts)
        self._worker = self.while_active.enter_context(
            closing(
                NewestWorker(
                    self._draw,
                    self._counts.drop,
                    on_taken=partial(self._counts.took, QUEUE_AGE),
                    max_rate_hz=lambda: self.parameters.max_rate_hz,
                )
            )
        )
        self._read = image_reader(self)
        wait_for_input(self, [image_topic(self, self.parameters, 'image')[1]])
        self.while_active.enter_context(
            closing(
                subscribe_images(
                    self,
                    MessageCallbacks(
                        self._on_image, on_lost=self._lose_image, on_missed=self._counts.miss
                    ),
                )
            )
        )
        self.while_active.enter_context(
            closing(
                subscribe_serialized(
                    self,
                    Detection2DArray,
                    'detections',
                    overridden(self, Subscription, 'detections', QoSProfile(depth=10)),
                    MessageCallbacks(self._on_detections),
                )
            )
        )

    def _on_image(self, message: np.ndarray) -> None:
        self._counts.receive()
        with dropping(self, self._counts):
            image = self._read(message)
            with self._matching:
                detections = self._detections.take(image.stamp)
                is_lost = detections is None and self._images.put(image.stamp, image)
            if detections is not None:
                self._worker.put((image, detections))
            elif is_lost:
                self._counts.drop(UNMATCHED)

    def _lose_image(self) -> None:
        self._counts.receive()
        self._counts.drop(REPLACED)

    def _on_detections(self, detections: np.ndarray) -> None:
        try:
            stamp = read_stamp(detections)
        except (
            BadFrameError
        ) as error:  # Not counted as a frame; their image is dropped later as unmatched.
            self.get_logger().error(str(error), throttle_duration_sec=10.0)
            return
        with self._matching:
            image = self._images.take(stamp)
            if image is None:
                self._detections.put(stamp, detections)
        if image is not None:
            self._worker.put((image, detections))

    def _draw(self, pair: tuple[ImageView | CompressedImageView, np.ndarray]) -> None:
        image, detections = pair
        with dropping(self, self._counts):
            frame, header = to_frame(image), header_of(image)
            with self._counts.timed('draw'):
                pixels = self._drawn.begin(header, frame.wh)
                pixels[:] = to_colour(frame, 'bgr')
                boxes, ids = self._read_detections(detections, self._class_ids)
                draw_detections(pixels, boxes, self._class_ids, ids)
            with self._counts.timed('publish'):
                self._drawn.send()
            self._latency.done(image.stamp)
            self._write(pixels, header)
            self._counts.publish()

    def _write(self, pixels: np.ndarray, header: Header) -> None:
        if self._output_dir is None:
            return
        path = self._output_dir / f'{header.stamp.sec}.{header.stamp.nanosec:09d}.png'
        # Renamed when complete, so that a program watching the folder never reads a partial file.
        partial_path = path.with_suffix('.unfinished.png')
        write_picture(partial_path, pixels)
        partial_path.rename(path)

    def _drop_waiting(self) -> None:
        for _ in range(len(self._images)):
            self._counts.drop(UNMATCHED)
        self._images, self._detections = StampBuffer(0), StampBuffer(0)


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal stops it."""
    return run_node(OverlayNode, args)


if __name__ == '__main__':
    sys.exit(main())
