"""Runs to warm up with: gray images, and images like those of the last time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
import json
import logging
from pathlib import Path
import threading
from typing import Any

import numpy as np

from trt_ros.blob import Blob
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.files import make_private
from trt_ros.errors import BadFrameError, ParameterError, TrtRosError
from trt_ros.model.run_inputs import NO_TENSORS, REGIONS, example_inputs, split_inputs
from trt_ros.runtime.gpu.shared_resources import SharedResources
from trt_ros.vision.frame import Frame
from trt_ros.vision.regions import whole_image

log = logging.getLogger('trt_ros.runtime')

MAX_RECENT = 4  # Each keeps page-locked memory of its size while the node is configured.
MAX_NBYTES = 1 << 28  # Larger images are not remembered.

#: Geometries of the images of a run, and whether all were read without a copy on the host.
Recent = tuple[tuple[tuple[int, int, int, str, bool], ...], bool]


def example_runs(
    shared: SharedResources, frame: Frame | None
) -> Iterator[tuple[Sequence[Frame], Mapping[str, np.ndarray]]]:
    """Yield images (`frame` or gray) and tensors of each kind of run; none if dynamic."""
    inputs = example_inputs(shared.feeds)
    if inputs is None:
        return
    frames, tensors = split_inputs(shared.feeds, inputs)
    if frame is not None:
        frames = (frame,) * len(frames)
    if shared.crop is not None:
        for regions in example_tensors(shared):
            yield frames, regions
        return
    for images in range(shared.batches[-1], 0, -1):
        yield frames * images, tensors


def example_tensors(shared: SharedResources) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield the tensors of runs of one image: regions for each batch size, or none."""
    crop = shared.crop
    if crop is None:
        yield NO_TENSORS
        return
    for batch in reversed(shared.batches):
        yield {REGIONS: whole_image(crop, crop.preprocess.input_hw[::-1], batch)}


class RecentImages:
    """Sizes of an engine's last images, newest first; `blob` None: for this process only."""

    def __init__(self, blob: Blob | None) -> None:
        self._blob = blob
        self._recent = _parse(blob.load() if blob is not None else None)
        self._saving: threading.Thread | None = None

    @classmethod
    def open(cls, engine_cache_dir: Path | str, engine_key: str) -> RecentImages:
        """Read the file of an engine in the engine cache, where there is one."""
        if not engine_key:
            return cls(None)
        try:
            root = EngineCache(engine_cache_dir).root
            make_private(root / '.images', root)
            return cls(Blob(root / '.images' / f'{engine_key}.json'))
        except (ParameterError, OSError) as error:
            log.info('Image sizes are not remembered for the next start. %s', error)
            return cls(None)

    def warm_up(
        self,
        run: Callable[[list[Frame]], None],
        register: Callable[[np.ndarray], None],
        unregister: Callable[[np.ndarray], None],
    ) -> None:
        """Run black images of each kind, as they were read; refused ones are skipped."""
        for _ in range(2):  # An image larger than those before releases their graphs.
            for memory, frames, zero_copy in self.frames():
                with suppress(TrtRosError), ExitStack() as undo:
                    if zero_copy:
                        register(memory)
                        undo.callback(unregister, memory)
                    run(frames)

    def frames(self) -> Iterator[tuple[np.ndarray, list[Frame], bool]]:
        """Yield the memory, black images in it, and whether they were read without a copy."""
        for geometries, zero_copy in self._recent:
            with suppress(BadFrameError):  # Of another version of trt_ros.
                sizes = [_nbytes(*geometry) for geometry in geometries]
                memory, frames, end = np.zeros(sum(sizes), np.uint8), [], 0
                for geometry, nbytes in zip(geometries, sizes):
                    frames.append(Frame(memory[end : end + nbytes], *geometry))
                    end += nbytes
                yield memory, frames, zero_copy

    def zero_copy_nbytes(self) -> int:
        """Return the bytes of the largest image that was read without a copy; 0 for none."""
        return max(
            (
                frame.data.size
                for _, frames, zero_copy in self.frames()
                if zero_copy
                for frame in frames
            ),
            default=0,
        )

    def add(self, frames: Sequence[Frame], zero_copy: bool) -> None:
        """Remember the images of a run; the caller runs one call at a time."""
        recent = (
            tuple([(f.width, f.height, f.step, f.encoding, bool(f.is_bigendian)) for f in frames]),
            zero_copy,
        )
        if recent in self._recent or sum(frame.nbytes for frame in frames) > MAX_NBYTES:
            return
        self._recent = (recent, *self._recent[: MAX_RECENT - 1])
        self.wait()
        # Not in this thread: the file is flushed to disk.
        self._saving = threading.Thread(target=self._save, name='recent images')
        self._saving.start()

    def _save(self) -> None:
        if self._blob is not None:
            self._blob.save(json.dumps(self._recent).encode())

    def wait(self) -> None:
        """Wait until the file is written."""
        if self._saving is not None:
            self._saving.join()


def _parse(data: bytes | None) -> tuple[Recent, ...]:
    try:
        values: Any = json.loads(data or b'[]')
        return tuple(
            (
                tuple(
                    (int(width), int(height), int(step), str(encoding), bool(is_bigendian))
                    for width, height, step, encoding, is_bigendian in geometries
                ),
                bool(zero_copy),
            )
            for geometries, zero_copy in values[:MAX_RECENT]
        )
    except (ValueError, TypeError):
        return ()


def _nbytes(width: int, height: int, step: int, encoding: str, is_bigendian: bool) -> int:
    rows = height * 3 // 2 if encoding in ('nv12', 'nv21') else height
    if width <= 0 or not 0 < rows * step <= MAX_NBYTES:
        raise BadFrameError('zero size', f'An image of {rows} rows of {step} bytes is impossible.')
    return rows * step
