"""Calibration: histograms of activations over many frames, kept in a file, and their ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
import io
import json
from pathlib import Path
import time
import zipfile

import numpy as np

from trt_ros.progress import Reporter
from trt_ros.quantization.layers import QuantFormat
from trt_ros.quantization.result_agreement import FrameNetwork
from trt_ros.regular_file import write_atomically
from trt_ros.tensors import Arrays
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

BINS = 4096
PERCENTILE = 99.99
MSE_CANDIDATES = 64


class Histogram:
    """
    Absolute values of a tensor over many runs, in bins of equal width from 0.

    If a larger value comes, pairs of bins are merged until it fits.

    :ivar limit: upper edge of the last bin.
    :ivar largest: largest finite value.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.limit = self.largest = 0.0

    def copy(self) -> Histogram:
        """Return an independent copy."""
        found = Histogram()
        found.counts, found.limit, found.largest = self.counts.copy(), self.limit, self.largest
        return found

    def add(self, values: np.ndarray) -> None:
        """Add the finite values of a tensor of any shape."""
        magnitudes = np.abs(values.ravel())
        largest = float(magnitudes.max(initial=0.0))
        if not np.isfinite(largest):
            magnitudes = magnitudes[np.isfinite(magnitudes)]
            largest = float(magnitudes.max(initial=0.0))
        self.largest = max(self.largest, largest)
        if not self.limit:
            if not largest:
                return
            self.limit = largest
        while self.limit < largest:
            half = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate([half, np.zeros_like(half)])
            self.limit *= 2
        indices = np.minimum((magnitudes * (BINS / self.limit)).astype(np.int64), BINS - 1)
        self.counts += np.bincount(indices, minlength=BINS)

    def amax(self, method: str, quant_format: QuantFormat) -> float:
        """
        Return the upper end of the range to quantize.

        :param method: 'max': the largest value; 'percentile': PERCENTILE of the values lie below;
            'mse': smallest mean squared error.
        """
        if method == 'max' or not self.largest:
            return self.largest
        if method == 'percentile':
            below = np.cumsum(self.counts)
            index = int(np.searchsorted(below, below[-1] * (PERCENTILE / 100)))
            return min((index + 1) * self.limit / BINS, self.largest)
        used = np.flatnonzero(self.counts)
        counts, centers = self.counts[used], (used + 0.5) * (self.limit / BINS)
        candidates = self.largest * np.geomspace(1, 1 / 32, MSE_CANDIDATES)
        errors = [
            float(counts @ (quant_format.simulate(centers, each) - centers) ** 2)
            for each in candidates
        ]
        return float(candidates[int(np.argmin(errors))])


SAVE_SECONDS = 20.0
NO_BOXES = Thresholds(score=1.0, iou=1.0, max_detections=1)


class Calibration:
    """
    Histograms of activations.

    :param path: file that keeps them, so that an interrupted run and one with other options go
        on where the last one ended.
    :param key: everything they depend on; the contents of a file with another key are replaced.
    :ivar done: number of frames that were added.
    :ivar errors: measured with these histograms, by names of the caller's choice; kept, too.
    """

    def __init__(self, activations: Sequence[str], path: Path, key: str) -> None:
        self.histograms = {name: Histogram() for name in dict.fromkeys(activations)}
        self._path, self._key = path, key
        self.done = 0
        self.errors: dict[str, float] = {}
        self._load()
        self._saved, self._due = (self.done, len(self.errors)), time.monotonic() + SAVE_SECONDS

    def run(
        self, network: FrameNetwork, frames: Iterable[Frame], total: int, report: Reporter
    ) -> None:
        """Add frames, except those of an earlier run, and keep the histograms."""
        with self.kept():
            for index, frame in enumerate(frames):
                report('calibrating', 100.0 * index / total)
                if index < self.done:
                    continue
                outputs = network.run(frame, NO_BOXES)[1]
                # A frame counts completely or, if interrupted, not at all.
                added = {name: each.copy() for name, each in self.histograms.items()}
                for name, histogram in added.items():
                    histogram.add(outputs[name])
                self.histograms, self.done = added, index + 1
                self.keep(if_due=True)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what changes in this block, also if it raises."""
        try:
            yield
        finally:
            self.keep()

    def keep(self, *, if_due: bool = False) -> None:
        """Write the file if anything changed, and, `if_due`, SAVE_SECONDS after the last time."""
        state = self.done, len(self.errors)
        if state != self._saved and not (if_due and time.monotonic() < self._due):
            self._save()
            self._saved, self._due = state, time.monotonic() + SAVE_SECONDS

    def ranges(self, method: str, quant_format: QuantFormat) -> dict[str, float]:
        """Return the largest absolute value to represent per activation; see Histogram.amax."""
        return {name: each.amax(method, quant_format) for name, each in self.histograms.items()}

    def _save(self) -> None:
        buffer = io.BytesIO()
        every = self.histograms.values()
        np.savez_compressed(
            buffer,
            key=np.array(self._key),
            done=np.array(self.done),
            counts=np.array([each.counts for each in every]),
            limits=np.array([[each.limit, each.largest] for each in every]),
            errors=np.array(json.dumps(self.errors)),
        )
        buffer.seek(0)
        write_atomically(self._path, buffer)

    def _load(self) -> None:
        try:
            with np.load(self._path) as kept:
                if str(kept['key']) != self._key:
                    return
                loaded: Arrays = {name: kept[name] for name in kept.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return  # Missing or damaged: begin again.
        self.done = int(loaded['done'])
        self.errors = json.loads(str(loaded.get('errors', '{}')))
        for each, counts, (limit, largest) in zip(
            self.histograms.values(), loaded['counts'], loaded['limits']
        ):
            each.counts, each.limit, each.largest = counts, float(limit), float(largest)
