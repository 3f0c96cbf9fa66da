"""Reading of finished runs: results of the GPU decoder, or outputs decoded on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import logging
import threading
from typing import Any

import numpy as np

from trt_ros.families.registry import Decoder
from trt_ros.runtime.feeds import NO_LETTERBOX, state_feeds
from trt_ros.runtime.gpu.frame_slot import Launched
from trt_ros.runtime.gpu.shared_resources import SharedResources
from trt_ros.runtime.gpu.tensorrt_context import widen
from trt_ros.tensors import is_finite
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

log = logging.getLogger('trt_ros.runtime')


@dataclass
class Health:
    """Frame counts for /diagnostics, since warm-up."""

    frames: int = 0
    zero_copy_frames: int = 0
    nonfinite_frames: int = 0


class ResultReader:
    """
    Reads the results of runs that have finished; from any thread.

    :param health: gets the number of frames with non-finite outputs.
    """

    def __init__(self, shared: SharedResources, decoder: Decoder[Any], health: Health) -> None:
        self._shared, self._decoder, self._health = shared, decoder, health
        self._has_state = bool(state_feeds(shared.feeds))
        self._lock = threading.Lock()

    def images(
        self, launched: Launched, frames: Sequence[Frame], thresholds: Thresholds
    ) -> list[Any]:
        """Return the result of each image of a batch, or of the run."""
        readers = launched.captured.readers
        if readers:
            results = []
            for read in readers:
                result, is_nonfinite = read()
                results.append(result)
                if is_nonfinite:
                    self._count_nonfinite()
            return results
        decoded = self._shared.decoded(frames)
        letterboxes = [self._shared.preprocess.letterbox(each.wh) for each in decoded]
        return self._decode_on_cpu(launched, letterboxes or [NO_LETTERBOX], thresholds)

    def regions(self, launched: Launched, count: int, thresholds: Thresholds) -> list[Any]:
        """Return the result of each of `count` regions, in input pixels."""
        crop = self._shared.crop
        assert crop is not None
        return self._decode_on_cpu(launched, [crop.letterbox] * count, thresholds)

    def outputs(self, launched: Launched) -> dict[str, np.ndarray]:
        """Return copies of the raw outputs."""
        return {
            name: widen(head) if head.dtype == np.uint16 else head.copy()
            for name, head in launched.outputs().items()
        }

    def _decode_on_cpu(
        self, launched: Launched, letterboxes: Sequence[Letterbox], thresholds: Thresholds
    ) -> list[Any]:
        outputs = {
            name: widen(head) if head.dtype == np.uint16 else head
            for name, head in launched.outputs().items()
        }
        results = []
        for i, letterbox in enumerate(letterboxes):
            # The outputs of a single image may lack a batch axis.
            own = (
                outputs
                if launched.buffers.batch == 1
                else {name: head[i : i + 1] for name, head in outputs.items()}
            )
            results.append(self._decoder(own, letterbox, thresholds))
            if not all(map(is_finite, own.values())):
                self._count_nonfinite()
        return results

    def _count_nonfinite(self) -> None:
        """Count a frame whose outputs had non-finite values; log the first one."""
        with self._lock:
            self._health.nonfinite_frames += 1
            is_first = self._health.nonfinite_frames == 1
        if is_first:
            log.warning(
                'Network outputs contain NaN or infinite values; their boxes are dropped. A '
                'lower precision may overflow: try precision fp32.%s',
                ' States keep them: reset the states.' if self._has_state else '',
            )
