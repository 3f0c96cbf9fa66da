"""Node that draws detections on their images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection3DArray

from trt_ros.drawing.boxes_3d import draw_boxes_3d
from trt_ros.drawing.objects import Trails, draw_detections, object_labels
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.media import write_picture
from trt_ros.nodes.drawing import DrawingParameters
from trt_ros.regular_file import reading
from trt_ros.results.boxes import Boxes
from trt_ros.ros.camera_info import CameraInfoStream, intrinsics_of
from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.codecs.detections import BoxCodec, DetectionCodec
from trt_ros.ros.codecs.images import image_codec
from trt_ros.ros.diagnostics import CountingNode, FrameCounts
from trt_ros.ros.inputs import ImageInputParameters, SynchronizationParameters
from trt_ros.ros.lifecycle import NodeParameters
from trt_ros.ros.messages import ImageSender, boxes_in_space
from trt_ros.ros.parameters import mutable_param, param, with_default
from trt_ros.ros.qos import DRAWN_IMAGES
from trt_ros.ros.stream import TopicStream
from trt_ros.ros.topic import Topic, without_partner
from trt_ros.runtime.future import Finished
from trt_ros.vision.boxes_3d import box_corners
from trt_ros.vision.frame import Frame


@dataclass(frozen=True)
class OverlayParameters(
    NodeParameters, SynchronizationParameters, DrawingParameters, ImageInputParameters
):
    """Parameters of the overlay node."""

    boxes_3d: bool = param(
        False,
        'Whether to draw the boxes of `detections_3d`, by the calibration on camera_info, instead '
        'of `detections`.',
    )
    trail_seconds: float = mutable_param(
        0.0,
        'Time in seconds over which the path of each tracked box is drawn; 0.0 draws none.',
        zero_or=(0.1, 3600.0),
    )

    output_dir: str = param(
        '',
        'Folder for the annotated images, as PNG files named by their stamps; empty writes none.',
    )
    queue_size: int = with_default(SynchronizationParameters, 'queue_size', 30)
    qos_depth: int = param(
        5, 'Queue depth of the image subscription in messages.', between=(1, 1000)
    )
    autostart: bool = with_default(NodeParameters, 'autostart', True)


class OverlayNode(CountingNode):
    """A node that publishes images with the detections or boxes of their stamp drawn on them."""

    Parameters = OverlayParameters

    def __init__(self, name: str = '', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._class_ids = ClassIds()

    def configure(self) -> None:
        self._output_dir: Path | None = None
        if self.parameters.output_dir:
            self._output_dir = Path(self.parameters.output_dir).expanduser()
            remedy = 'Set output_dir to a writable folder.'
            with reading(f'Folder {self._output_dir}', remedy, ParameterError, done='created'):
                self._output_dir.mkdir(parents=True, exist_ok=True)
        if self.parameters.boxes_3d:
            found: DetectionCodec = DetectionCodec(self, 'detections_3d', Detection3DArray)
        else:
            found = BoxCodec(self, 'detections', self._class_ids)
        self._topics = [
            Topic(self, 'image', image_codec(self), FrameCounts(self._counts)),
            Topic(self, found.topic, found, FrameCounts()),
        ]
        self._drawn = ImageSender(self, self.publisher(Image, '~/image', DRAWN_IMAGES))

    def activate(self) -> None:
        self._trails = Trails()
        if self.parameters.boxes_3d:
            self._camera_info = CameraInfoStream(self)
        self.while_active.own(
            TopicStream(
                self,
                self._counts,
                self._topics,
                Finished,  # Drawn into the message, which begins with the header.
                self._publish,
                in_sets=True,
                is_wanted=lambda _: self._output_dir is not None or self._drawn.is_wanted(),
            )
        )

    def _publish(self, _: int, result: Any, header: Header, values: Sequence[Any]) -> None:
        frame, found = values
        with self._counts.timed('draw'):
            pixels = self.parameters.begin_drawing(self._drawn, header, frame)
            if self.parameters.boxes_3d:
                self._draw_boxes_3d(pixels, found, frame, header.frame_id)
            else:
                self._draw_detections(pixels, found, header)
        self._drawn.send()
        self._write(pixels, header)

    def _why_no_result(self) -> str:
        return without_partner(self, self._topics, 'detections need the stamp of their image')

    def _draw_detections(self, pixels: np.ndarray, found: Boxes, header: Header) -> None:
        parameters: OverlayParameters = self.parameters
        stamp_ns = header.stamp.sec * 1_000_000_000 + header.stamp.nanosec
        if parameters.trail_seconds:
            self._trails.add(found, stamp_ns, parameters.trail_seconds)
            self._trails.draw(pixels, parameters.style())
        draw_detections(pixels, found, style=parameters.style())

    def _draw_boxes_3d(
        self, pixels: np.ndarray, message: Detection3DArray, frame: Frame, frame_id: str
    ) -> None:
        camera = intrinsics_of(self._camera_info.newest, 'camera_info', frame.wh)
        boxes = boxes_in_space(message, self._class_ids)
        if boxes.frame_id != frame_id:
            raise BadFrameError(
                'boxes in another frame',
                f'The boxes are in the frame {boxes.frame_id!r}, but the image in {frame_id!r}.',
                remedy='Register the depth image to this image, and leave target_frame of '
                'detections_3d empty.',
            )
        draw_boxes_3d(
            pixels,
            box_corners(boxes.centers, boxes.sizes, boxes.quaternions),
            object_labels(
                boxes.labels, boxes.scores, self._class_ids, [each.id for each in boxes.detections]
            ),
            camera,
            style=self.parameters.style(),
        )

    def _write(self, pixels: np.ndarray, header: Header) -> None:
        if self._output_dir is None:
            return
        path = self._output_dir / f'{header.stamp.sec}.{header.stamp.nanosec:09d}.png'
        # Renamed when complete, so that a program watching the folder never reads a partial file.
        partial_path = path.with_suffix('.unfinished.png')
        write_picture(partial_path, pixels)
        partial_path.rename(path)
