"""Options of trackers."""

from dataclasses import dataclass
from math import inf
from numbers import Real

import numpy as np

from trt_ros.errors import ParameterError

#: Least and largest values of TrackOptions.
LIMITS = {
    **dict.fromkeys(('high_score', 'low_score', 'min_iou', 'min_similarity'), (0, 1)),
    **{'buffer_seconds': (0, inf), 'min_hits': (1, inf), 'min_size': (0, inf)},
}


@dataclass(frozen=True)
class TrackOptions:
    """
    Options of a tracker; they may change from image to image.

    :param high_score: minimum score of a detection that starts a track; one for all, or (N,), one
        per detection.
    :param low_score: minimum score of a detection that continues one; above `high_score`, that.
    :param min_iou: minimum IoU of a detection with the predicted box of its track.
    :param buffer_seconds: time for which a track without detections is kept.
    :param min_hits: number of consecutive detections after which a track gets its identity.
    :param across_classes: whether a track may continue with a detection of another class.
    :param min_similarity: minimum cosine similarity of a detection with a track that it does not
        overlap, from 0; only for detections with appearance vectors.
    :param min_size: minimum side in meters of boxes in space when they are compared.
    :raises ParameterError: when an option is out of its range.
    """

    high_score: float | np.ndarray = 0.25
    low_score: float = 0.1
    min_iou: float = 0.2
    buffer_seconds: float = 1.0
    min_hits: int = 2
    across_classes: bool = False
    min_similarity: float = 0.7
    min_size: float = 0.3

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if name == 'high_score' and isinstance(value, np.ndarray):
                continue  # Infinity for a class that is not wanted.
            if not (isinstance(value, Real) and least <= float(value) <= most):
                allowed = f'{least} or more' if most == inf else f'{least} to {most}'
                raise ParameterError(f'{name} is {value!r}.', remedy=f'Set it to {allowed}.')
        if not isinstance(self.across_classes, (bool, np.bool_)):
            raise ParameterError(
                f'across_classes is {self.across_classes!r}.', remedy='Set it to True or False.'
            )


DEFAULT_OPTIONS = TrackOptions()
