"""Node that detects objects in images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from std_msgs.msg import Header

from trt_ros.errors import ParameterError
from trt_ros.families.registry import DETECTORS, ORIENTED
from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.labeled import ClassIdParameters, ObjectNode
from trt_ros.nodes.tracking import TrackingParameters, open_tracker, tracking_stamp
from trt_ros.results.boxes import Boxes
from trt_ros.results.text import read_texts
from trt_ros.ros.messages import DetectionSender
from trt_ros.ros.parameters import param
from trt_ros.runtime.options import TiledOptions
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import ThresholdOptions, Thresholds

if TYPE_CHECKING:
    from trt_ros.tracking.tracker import Tracker


@dataclass(frozen=True)
class DetectorParameters(
    InferenceParameters, TrackingParameters, ClassIdParameters, ThresholdOptions, TiledOptions
):
    """Parameters of the detector node, which are also the options of its pipeline."""

    track: bool = param(
        False,
        'Whether to also publish tracked detections on ~/tracks, with ids that stay the same over '
        'time. Needs SciPy.',
    )


class DetectorOutputs(NamedTuple):
    """The publishers of one camera; `tracks` with their tracker, and `text`, if configured."""

    detections: DetectionSender
    tracks: tuple[DetectionSender, Tracker] | None
    text: DetectionSender | None


class DetectorNode(ObjectNode):
    """A node that publishes bounding boxes, axis-aligned or oriented."""

    Parameters = DetectorParameters
    families = (*DETECTORS, *ORIENTED)

    def __init__(self, name: str = '', **kwargs: Any) -> None:
        self._ids = itertools.count(1)
        super().__init__(name, **kwargs)

    def thresholds(self) -> Thresholds:
        """Return the thresholds of the pipeline; a tracker needs the weaker detections, too."""
        thresholds = super().thresholds()
        if not self.parameters.track:
            return thresholds
        scores = [thresholds.score, *thresholds.class_scores.values()]
        return replace(
            thresholds, score=min(self.parameters.track_low_threshold, *scores), class_scores={}
        )

    def configure(self) -> None:
        super().configure()
        regions = self.pipeline.regions
        if regions is not None and regions.decoder.task not in ('classify', 'text'):
            raise ParameterError(
                f'The second network of the bundle is a {regions.decoder.name}.',
                cause='Its results are neither classes nor text, which the detections could get.',
                remedy='Use a classifier, or run the network with regions in a node of its own.',
            )

    def class_maps(self) -> Mapping[str, Mapping[int, str]]:
        regions = self.pipeline.regions
        more = {}
        if regions is not None and regions.decoder.task == 'classify':
            more = {'regions/': dict(enumerate(regions.class_names))}
        return {**super().class_maps(), **more}

    def advertise(self, camera: Camera) -> DetectorOutputs:
        regions, tracks = self.pipeline.regions, None
        if self.parameters.track:
            tracks = (
                camera.objects('tracks'),
                open_tracker(self.parameters.track_method, self._ids),
            )
        reads_text = regions is not None and regions.decoder.task == 'text'
        return DetectorOutputs(
            camera.objects('detections'), tracks, camera.objects('text') if reads_text else None
        )

    def publish(
        self, outputs: DetectorOutputs, result: Boxes, header: Header, frame: Frame
    ) -> None:
        parameters, thresholds = self.parameters, self.class_thresholds
        if outputs.text is not None:
            outputs.text.send(read_texts(result, thresholds.score), header, 'name')
        if outputs.tracks is None:
            outputs.detections.send(result, header, parameters.class_id_format)
            return
        tracks, tracker = outputs.tracks
        stamp_ns = tracking_stamp(header)  # First: an image that is dropped has no results.
        min_scores = thresholds.min_scores(result.labels)
        shown = result[result.scores >= min_scores]
        outputs.detections.send(shown, header, parameters.class_id_format)
        tracked = tracker(result, stamp_ns, options=parameters.track_options(min_scores))
        if parameters.publish_lost_tracks:
            tracked = tracked.extended(tracker.lost)
        tracks.send(tracked, header, parameters.class_id_format)
