"""Calibration: histograms of activations over many frames, kept in a file."""

from collections.abc import Iterable, Mapping, Sequence
import io
from pathlib import Path
import time
import zipfile

import numpy as np

from trt_ros.blob import write_atomically
from trt_ros.progress import Reporter
from trt_ros.quantization.formats import QuantFormat
from trt_ros.quantization.frame_network import FrameNetwork
from trt_ros.quantization.histogram import Histogram
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

SAVE_SECONDS = 20.0
NO_BOXES = Thresholds(score=1.0, iou=1.0, max_detections=1)


class Calibration:
    """
    Histograms of activations.

    :param path: file that keeps them, so that an interrupted run and one with other options go
        on where the last one ended.
    :param key: everything they depend on; the contents of a file with another key are replaced.
    :ivar done: number of frames that were added.
    """

    def __init__(self, activations: Sequence[str], path: Path, key: str) -> None:
        self.histograms = {name: Histogram() for name in dict.fromkeys(activations)}
        self._path, self._key = path, key
        self.done = 0
        self._load()

    def run(
        self, network: FrameNetwork, frames: Iterable[Frame], total: int, report: Reporter
    ) -> None:
        """
        Add frames, except those of an earlier run, and keep the histograms.

        :param network: has the activations among its outputs.
        :param total: number of frames, for the progress.
        """
        saved = self.done
        due = time.monotonic() + SAVE_SECONDS
        try:
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
                if time.monotonic() > due:
                    self._save()
                    saved, due = self.done, time.monotonic() + SAVE_SECONDS
        finally:
            if self.done > saved:
                self._save()

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
        )
        buffer.seek(0)
        write_atomically(self._path, buffer)

    def _load(self) -> None:
        try:
            with np.load(self._path) as kept:
                if str(kept['key']) != self._key:
                    return
                loaded: Mapping[str, np.ndarray] = {name: kept[name] for name in kept.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return  # Missing or damaged: begin again.
        self.done = int(loaded['done'])
        for each, counts, (limit, largest) in zip(
            self.histograms.values(), loaded['counts'], loaded['limits']
        ):
            each.counts, each.limit, each.largest = counts, float(limit), float(largest)
