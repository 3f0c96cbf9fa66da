"""Inputs that are equal in all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trt_ros.model.feeds.base import Feed, Given
from trt_ros.vision.letterbox import Letterbox


@dataclass(frozen=True, eq=False)
class ConstantFeed(Feed):
    """
    A value that is equal in all runs.

    :param value: (1, ..), repeated for each image of a batch.
    """

    value: np.ndarray
    kind = 'constant'

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        """Return the value of each row; see Feed.stage."""
        return (self.value if given.rows == 1 else self.value.repeat(given.rows, axis=0)), ()
