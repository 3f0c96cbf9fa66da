"""Comparison of detections with the drawn shapes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
import statistics

import numpy as np

from trt_ros.errors import TrtRosError
from trt_ros.results.boxes import Detections
from trt_ros.vision.average_precision import matches


@dataclass(frozen=True)
class Sighting:
    """
    The detections of one image.

    :param picture: checksum of the picture; None when the image was not received.
    :param seconds: time from the image's stamp to the arrival of its detections.
    """

    picture: int | None
    found: Detections
    seconds: float


@dataclass
class Tally:
    """
    Counts of true and false detections.

    :param truth: boxes (N, 4) and labels (N,) per picture, by its checksum.
    """

    truth: Mapping[int, tuple[np.ndarray, np.ndarray]]
    images: int = 0
    detections: int = 0
    drawn: int = 0  # Shapes on received pictures.
    right: int = 0
    wrong: int = 0
    seconds: list[float] = field(default_factory=list)

    def add(self, sightings: Iterable[Sighting]) -> Detections | None:
        """Count sightings; return the detections of the newest, None without any."""
        newest = None
        for each in sightings:
            newest = each.found
            self.images += 1
            self.detections += len(each.found)
            self.seconds.append(each.seconds)
            if each.picture is not None and each.picture in self.truth:
                xyxy, labels = self.truth[each.picture]
                right = int(matches(each.found, xyxy, labels).sum())
                self.drawn += len(labels)
                self.right += right
                self.wrong += len(each.found) - right
        return newest

    def summary(self) -> str:
        """
        Return a summary of two lines.

        :raises TrtRosError: when nothing, or less than half of the drawn shapes, was detected.
        """
        if not self.detections:
            raise TrtRosError(
                'Nothing was detected.',
                cause=f'{self.images} images were processed without a detection.',
                remedy="Read the nodes' logs beside the pictures.",
            )
        lines = (
            f'{self.images} images, {self.detections} detections; median latency '
            f'{1000 * statistics.median(self.seconds):.0f} ms.\n'
            f'{self.right} of {self.drawn} drawn shapes were detected; '
            f'false detections: {self.wrong}.'
        )
        if not self.drawn or self.right < 0.5 * self.drawn:
            raise TrtRosError(
                'Fewer than half of the drawn shapes were detected.',
                cause=lines,
                remedy='Evaluate the model alone: python tools/evaluate_demo.py.',
            )
        return lines
