"""A detector and a network that runs on the objects it finds, as one pipeline."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from trt_ros.errors import ModelError, ParameterError, TensorMismatchError
from trt_ros.families.registry import CLASSIFIERS, DETECTORS, ORIENTED, POSES, TEXTS
from trt_ros.model.leapp import read_bundle
from trt_ros.model.run_inputs import NO_TENSORS
from trt_ros.results.base import Result
from trt_ros.runtime.future import Future
from trt_ros.runtime.machine_options import EngineOptions, RunOptions
from trt_ros.runtime.options import ModelOptions, PipelineOptions, options_of
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.runtime.runner import Network
from trt_ros.tensors import Arrays
from trt_ros.vision.frame import Frame
from trt_ros.vision.regions import are_in_image
from trt_ros.vision.thresholds import Thresholds

MIN_TURNED = 0.9  # Score of class 1 of the network of turns, as in RapidOCR.

#: Opens a pipeline that is not warmed up: its options, families and batch size.
OpenMember = Callable[[PipelineOptions, Any, int], Pipeline[Any]]


def members_of(options: PipelineOptions) -> tuple[PipelineOptions, list[ModelOptions]]:
    """Return the options of the detector of a cascade, and of the networks for its objects."""
    if options.gpu_share:
        raise ParameterError(
            f'gpu_share is {options.gpu_share}, but the bundle has two networks of images.',
            cause='Each would need a share of its own.',
            remedy='Set gpu_share to 0.0, or run both networks as nodes of their own.',
        )
    bundle = read_bundle(options.model_path)
    detector, *regions = bundle.networks.values()
    shared = {
        each.name: getattr(options, each.name)
        for kind in (EngineOptions, RunOptions)
        for each in fields(kind)
        if each.name != 'model_path'
    }
    members = []
    for each in regions:
        given = dict((bundle.region_options or {})[each.name])
        refused = sorted(given.keys() & {'model_path', 'regions', 'inputs', 'tiles', 'backend'})
        if refused:
            raise ModelError(
                f'The bundle {bundle.path} has options that a network of regions does not take: '
                f'{", ".join(refused)}.',
                remedy='Leave them out.',
            )
        own = options_of(str(each.path), {**shared, **given, 'regions': True})
        assert isinstance(own, ModelOptions)
        members.append(own)
    return replace(options, model_path=str(detector.path)), members


class CascadePipeline(Pipeline[Any]):
    """
    A detector, whose results have a further result per object. Owns both pipelines.

    On a GPU, both run in one captured graph where the GPU decodes the detector's outputs.

    :param regions: opened with `regions`.
    :param max_regions: maximum number of objects that are run per image, best scores first.
    :param turns: opened with `regions`: class 1 are objects upside down, which `regions` then gets
        turned by 180 degrees.
    :raises TensorMismatchError: when the first network does not detect objects.
    """

    regions: Pipeline[Any]

    def __init__(
        self,
        detector: Pipeline[Any],
        regions: Pipeline[Any],
        max_regions: int,
        turns: Pipeline[Any] | None = None,
    ) -> None:
        if detector.decoder.task not in ('detect', 'obb', 'pose'):
            raise TensorMismatchError(
                f'The first network, a {detector.decoder.name}, does not detect objects.',
                remedy='Use a detector as the first model of regions.',
            )
        network = Network()
        network.backend, network.metadata = detector.backend, detector.metadata
        super().__init__(network, detector._fitted)
        self.detector, self.regions, self.max_regions = detector, regions, max_regions
        self.max_batch, self.max_detections = detector.max_batch, detector.max_detections
        self.device, self.turns = detector.device, turns
        self._members = (detector, regions, *([turns] if turns else []))
        if turns is None:
            detector.join(regions, max_regions)

    def start(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays = NO_TENSORS
    ) -> Future[list[Any]]:
        found = self.detector.start(frames, thresholds, tensors)
        return found.map(partial(self._with_regions, frames))

    def _with_regions(self, frames: Sequence[Frame], results: list[Any]) -> list[Any]:
        """Run the objects that the graph of the detector did not."""
        for frame, result in zip(frames, results):
            if len(result) and not result.region_results:
                boxes = result.rotated_boxes()
                chosen = np.flatnonzero(are_in_image(boxes, frame.wh))[: self.max_regions]
                boxes = boxes[chosen]
                if self.turns is not None and len(boxes):
                    sides = self.turns.infer_regions(frame, boxes)
                    boxes[[each.scores[1] > MIN_TURNED for each in sides], 4] += np.pi
                found = self.regions.infer_regions(frame, boxes)
                by_object: list[Result | None] = [None] * len(result)
                for index, each in zip(chosen.tolist(), found):
                    by_object[index] = each
                result.region_results = by_object
        return results

    @property
    def nonfinite_count(self) -> int:
        return sum(each.nonfinite_count for each in self._members)

    def warm_up(self) -> None:
        self.detector.warm_up()
        if not self.detector.has_joined:
            self.regions.warm_up()
        if self.turns is not None:
            self.turns.warm_up()

    def reset_state(self) -> None:
        super().reset_state()
        self.detector.reset_state()

    def _own_log_lines(self) -> tuple[str, ...]:
        return (
            *(line for line in self.detector.log_lines if line not in self._fitted.log_lines),
            *(f'regions: {line}' for line in self.regions.log_lines),
            f'regions: up to {self.max_regions} objects per image, in '
            + ('the same launch' if self.detector.has_joined else 'runs of their own'),
        )

    def _own_diagnostics(self) -> Mapping[str, str]:
        own = self.regions.diagnostics()
        return {
            **self.detector.diagnostics(),
            **{f'{key} of regions': value for key, value in own.items()},
        }

    def _close(self) -> None:
        for each in self._members:  # The graphs of the detector use the other one.
            each.close()


def open_cascade(
    options: PipelineOptions, families: Any, batch: int, open_member: OpenMember
) -> CascadePipeline:
    """Open the networks of a cascade, not warmed up."""
    first, members = members_of(options)
    with ExitStack() as undo:
        own = families or POSES
        own = (*own, *(each for each in (*DETECTORS, *ORIENTED) if each not in own))
        detector = open_member(first, own, batch)
        undo.callback(detector.close)
        gpu = getattr(detector, 'gpu', None)
        opened = []
        for each in members:
            if gpu is not None:
                each = replace(each, device=gpu.index)  # Maybe the least busy one.
            kinds = (*CLASSIFIERS, *TEXTS, *POSES) if each.decoder == 'auto' else None
            opened.append(open_member(each, kinds, each.max_regions))
            undo.callback(opened[-1].close)
        *turns, regions = opened
        if any(each.decoder.task != 'classify' for each in turns):
            raise TensorMismatchError(
                f'The network of turns is a {turns[0].decoder.name}.',
                remedy='Use a classifier, whose class 1 are objects upside down.',
            )
        cascade = CascadePipeline(detector, regions, members[-1].max_regions, *turns)
        undo.pop_all()
        return cascade
