"""What was found, compared with what was drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
import statistics

import numpy as np

from trt_ros.demo.evaluate import matches
from trt_ros.errors import TrtRosError
from trt_ros.vision.detections import Detections


@dataclass(frozen=True)
class Sighting:
    """
    What was found on one image.

    :param picture: the checksum of the picture it showed; None when the image did not reach us.
    :param seconds: from the image's stamp until its detections reached us.
    """

    picture: int | None
    found: Detections
    seconds: float


@dataclass
class Tally:
    """
    Counts sightings.

    :param truth: boxes (N, 4) and labels (N,) of each picture, by its checksum.
    """

    truth: Mapping[int, tuple[np.ndarray, np.ndarray]]
    images: int = 0
    detections: int = 0
    drawn: int = 0  # Shapes on pictures that we know.
    right: int = 0
    wrong: int = 0
    seconds: list[float] = field(default_factory=list)

    def add(self, sightings: Iterable[Sighting]) -> Detections | None:
        """Count them; give what was found on the newest."""
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
        Say it in two lines.

        :raises TrtRosError: when nothing, or not even half of what was drawn, was detected.
        """
        if not self.detections:
            raise TrtRosError(
                'Nothing was detected.',
                cause=f'{self.images} images came back without a shape.',
                remedy="Read the nodes' logs beside the pictures.",
            )
        lines = (
            f'{self.images} images, {self.detections} detections; half of them came within '
            f'{1000 * statistics.median(self.seconds):.0f} ms of their image.\n'
            f'{self.right} of the {self.drawn} shapes drawn were found; '
            f'wrong detections: {self.wrong}.'
        )
        if not self.drawn or self.right < 0.5 * self.drawn:
            raise TrtRosError(
                'What was detected is not what was drawn.',
                cause=lines,
                remedy='Measure the model by itself: python -m trt_ros.demo.evaluate.',
            )
        return lines
