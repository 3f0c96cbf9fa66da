"""Node that detects objects in images."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
import itertools
from typing import Any

from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from trt_ros.errors import ParameterError
from trt_ros.families.registry import DETECTORS, ORIENTED
from trt_ros.nodes.inference import Camera, InferenceParameters
from trt_ros.nodes.labeled import ClassIdParameters, ObjectNode
from trt_ros.nodes.tracking import TrackingParameters, open_tracker, tracking_stamp
from trt_ros.results.boxes import Boxes
from trt_ros.results.text import read_texts
from trt_ros.ros.messages import detection_publish
from trt_ros.ros.parameters import param
from trt_ros.runtime.options import TiledOptions
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import ThresholdOptions, Thresholds


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class DetectorParameters(
    InferenceParameters,
    TrackingParameters,
    ClassIdParameters,
    ThresholdOptions,
    TiledOptions,
):
    """Parameters of the detector node, which are also the options of its pipeline."""

    track: bool = param(
        False,
        'Whether to also publish tracked detections on ~/tracks, with ids that stay the same over '
        'time. Needs SciPy.',
    )


class DetectorOutputs:
    """The publishers of one camera; `tracks` and `text` are None without these."""

    def __init__(
        self,
        method: str,
        detections: Callable[..., None],
        tracks: Callable[..., None] | None,
        ids: Iterator[int],
        text: Callable[..., None] | None,
    ) -> None:
        self._detections, self._tracks, self._text = detections, tracks, text
        self._tracker = open_tracker(method, ids) if tracks else None

    def publish(
        self,
        found: Boxes,
        header: Header,
        parameters: DetectorParameters,
        thresholds: Thresholds,
    ) -> None:
        """Publish the detections and, if configured, text and tracks."""
        if self._text is not None:
            self._text(read_texts(found, thresholds.score), header, 'name')
        if self._tracks is None or self._tracker is None:
            self._detections(found, header, parameters.class_id_format)
            return
        stamp_ns = tracking_stamp(header)  # First: an image that is dropped has no results.
        min_scores = thresholds.min_scores(found.labels)
        shown = found[found.scores >= min_scores]
        self._detections(shown, header, parameters.class_id_format)
        tracked = self._tracker(found, stamp_ns, options=parameters.track_options(min_scores))
        if parameters.publish_lost_tracks:
            tracked = tracked.extended(self._tracker.lost)
        self._tracks(tracked, header, parameters.class_id_format)


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
        """Open the pipeline and create the publishers."""
        super().configure()
        regions = self.pipeline.regions
        if regions is not None and regions.decoder.task not in ('classify', 'text'):
            raise ParameterError(
                f'The second network of the bundle is a {regions.decoder.name}.',
                cause='Its results are neither classes nor text, which the detections could get.',
                remedy='Use a classifier, or run the network with regions in a node of its own.',
            )

    def class_maps(self) -> Mapping[str, Mapping[int, str]]:
        """Return class names by number, also those of the second network of a bundle."""
        regions = self.pipeline.regions
        more = {}
        if regions is not None and regions.decoder.task == 'classify':
            more = {'regions/': dict(enumerate(regions.class_names))}
        return {**super().class_maps(), **more}

    def advertise(self, camera: Camera) -> DetectorOutputs:
        """Create the publishers of a camera's results."""

        def publisher(name: str) -> Callable[..., None]:
            return detection_publish(self, camera.publisher(Detection2DArray, name))

        regions = self.pipeline.regions
        reads_text = regions is not None and regions.decoder.task == 'text'

        return DetectorOutputs(
            self.parameters.track_method,
            publisher('detections'),
            publisher('tracks') if self.parameters.track else None,
            self._ids,
            publisher('text') if reads_text else None,
        )

    def publish(
        self,
        outputs: DetectorOutputs,
        result: Boxes,
        header: Header,
        frame: Frame,
    ) -> None:
        """Publish the result of one image."""
        outputs.publish(result, header, self.parameters, self.class_thresholds)
