"""Base classes of whatever executes a network, with the defaults of a backend that needs less."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import sys
from typing import Generic, TypeVar

import numpy as np

from trt_ros.errors import GpuFailedError, TensorMismatchError
from trt_ros.runtime.feeds import RunInputs
from trt_ros.runtime.future import Future
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

ResultT_co = TypeVar('ResultT_co', covariant=True)


class Network:
    """
    An open network; the caller that opened it closes it.

    :ivar backend: name of the backend that runs it ('onnxruntime', 'tensorrt', 'tensorrt_rtx',
        'triton'); that of an engine file may differ from the parameter `backend`.
    :ivar inputs: in the network's own order, as are `outputs`.
    :ivar metadata: of the ONNX file.
    :ivar log_lines: lines for the log.
    """

    backend: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: Mapping[str, str]
    log_lines: tuple[str, ...] = ()

    def on_fault(self, callback: Callable[[GpuFailedError], None]) -> None:
        """Call `callback` once, on any thread, when the GPU has failed; never without a GPU."""

    def close(self) -> None:
        """Release all resources; may be called twice."""
        raise NotImplementedError


class Runner(Network):
    """
    An open network that runs from arrays to arrays.

    :cvar overlaps: whether runs of several threads gain from overlapping.
    """

    overlaps = False

    def infer(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """
        Run the network once.

        :param tensors: one array per input, C-contiguous, of the input's dtype and shape.
        :returns: one array per output; valid until the next call.
        :raises TensorMismatchError: when an input is missing, or has another shape or dtype.
        :raises ClosedError: after close().
        """
        raise NotImplementedError

    def diagnostics(self) -> dict[str, str]:
        """Return values for /diagnostics by their key."""
        return {}

    def tune_threads(self, tensors: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        """
        Choose the number of CPU threads for inputs like `tensors`, after a first infer().

        :returns: lines for the log; none where there is no choice.
        """
        return ()


class FrameRunner(Generic[ResultT_co]):
    """
    A network that runs from frames and tensors to results. Owns the network.

    `infer`, `infer_all` and `submit` are for networks of one image beside constants.

    :cvar max_detections: maximum number of detections per image, whatever the thresholds allow.
    """

    max_detections: int = sys.maxsize

    @property
    def log_lines(self) -> tuple[str, ...]:
        """Lines for the log."""
        return ()

    @property
    def max_batch(self) -> int:
        """Maximum number of frames per run."""
        return 1

    @property
    def expected_image_nbytes(self) -> int:
        """Bytes of the largest image to expect in registered memory; 0 if unknown."""
        return 0

    def warm_up(self) -> None:
        """Run on gray frames, which allocates memory and shows whether the network runs."""

    def infer(self, frame: Frame, thresholds: Thresholds) -> ResultT_co:
        """
        Run one image; the thresholds are for boxes.

        :returns: the task's result, in the image's pixels.
        :raises BadFrameError: when the image cannot be read as its encoding declares.
        :raises ClosedError: after close().
        """
        return self.infer_all([frame], thresholds)[0]

    def infer_all(self, frames: Sequence[Frame], thresholds: Thresholds) -> Sequence[ResultT_co]:
        """
        Run several images, in as few runs as the network allows.

        :param frames: of any sizes and encodings; may be empty.
        :returns: one result per frame.
        :raises BadFrameError: when one of them cannot be read as its encoding declares.
        :raises ClosedError: after close().
        """
        raise NotImplementedError

    def submit(
        self, frames: Sequence[Frame], thresholds: Thresholds
    ) -> Future[Sequence[ResultT_co]]:
        """
        Start a run of one to `max_batch` images; without a GPU, finish it too.

        :raises BadFrameError: when one of them cannot be read as its encoding declares.
        :raises ClosedError: after close().
        """
        found = self.infer_all(frames, thresholds)
        return Future(lambda: found)

    def infer_regions(
        self, frame: Frame, maps: np.ndarray, thresholds: Thresholds
    ) -> Sequence[ResultT_co]:
        """
        Run regions of an image, in as few runs as the network allows. Return [] without regions.

        The feed of the only image has a `crop`.

        :param maps: (N, 2, 3) float32, as Crop.maps() returns them.
        :returns: one result per region, in the image's pixels.
        :raises BadFrameError: when the image cannot be read as its encoding declares.
        :raises ClosedError: after close().
        """
        raise NotImplementedError

    def infer_inputs(self, inputs: RunInputs, thresholds: Thresholds) -> ResultT_co:
        """
        Run the network once, on an image or array for each of its inputs but states and constants.

        :returns: the task's result; boxes are in pixels of the first image.
        :raises TensorMismatchError: when an input is missing, unknown, or does not fit.
        :raises BadFrameError: when an image cannot be read as its encoding declares.
        :raises ClosedError: after close().
        """
        return self.submit_inputs(inputs, thresholds).result()[0]

    def submit_inputs(
        self, inputs: RunInputs, thresholds: Thresholds
    ) -> Future[Sequence[ResultT_co]]:
        """Start a run as `infer_inputs`, of one result; without a GPU, finish it too."""
        raise NotImplementedError

    def reset_state(self) -> None:
        """Set the states to zeros before the next run."""

    def open_jpeg_decoder(self) -> str:
        """
        Decode frames that are JpegFrame on the GPU from now on, where that is possible.

        :returns: why it is not; '' when it is.
        """
        return 'the network does not run on a GPU'

    def diagnostics(self) -> Mapping[str, str]:
        """Return values for /diagnostics by their key."""
        return {}

    def on_fault(self, callback: Callable[[GpuFailedError], None]) -> None:
        """Call `callback` once, on any thread, when the GPU has failed; never without a GPU."""

    def register(self, memory: np.ndarray) -> None:
        """
        Prepare `memory`, (N,) uint8, for a GPU to read frames in place, where it can.

        The caller keeps it in place until `unregister` or close().

        :raises TrtRosError: when it cannot be page-locked.
        """

    def unregister(self, memory: np.ndarray) -> None:
        """
        Stop using registered memory.

        :raises TrtRosError: when it cannot be unlocked.
        """

    def close(self) -> None:
        """Release all resources, the network's too; may be called twice."""
        raise NotImplementedError


def check_inputs(specs: Sequence[TensorSpec], tensors: Mapping[str, np.ndarray]) -> None:
    """
    Check that `tensors` are the network's inputs.

    :raises TensorMismatchError: when an input is missing, unknown, or of another shape or dtype.
    """
    for spec in specs:
        tensor = tensors.get(spec.name)
        if tensor is None:
            raise TensorMismatchError(
                f'The input {spec} is missing.',
                cause=f'The inputs given are: {", ".join(tensors) or "none"}.',
            )
        if not spec.accepts(tensor):
            shape = ', '.join(str(size) for size in tensor.shape)
            raise TensorMismatchError(
                f'The network takes {spec}, but {spec.name} came as ({shape}) {tensor.dtype}.'
            )
    if len(tensors) > len(specs):
        unknown = sorted(tensors.keys() - {spec.name for spec in specs})
        raise TensorMismatchError(
            f'The network has no input named {", ".join(unknown)}.',
            cause=f'It takes {"; ".join(str(spec) for spec in specs)}.',
        )
