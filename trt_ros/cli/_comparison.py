"""Comparison of an engine with ONNX Runtime over pictures, videos or random inputs."""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
import json
from pathlib import Path
import sys
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from trt_ros.cli._flags import given_options
from trt_ros.cli._layers import LayerReport, compare_layers
from trt_ros.cli._samples import noise, run_sample, samples
from trt_ros.cli.build import build_options
from trt_ros.errors import ParameterError, TensorMismatchError, printable
from trt_ros.families.registry import DETECTORS
from trt_ros.model.run_inputs import split_inputs
from trt_ros.progress import Reporter
from trt_ros.results.classes import Classification
from trt_ros.runtime.agreement import (
    Agreement,
    BoxAgreement,
    InputAgreement,
    agreements,
    statistics,
)
from trt_ros.runtime.backends import cpu_backend
from trt_ros.runtime.cascade import members_of
from trt_ros.runtime.cpu.pipeline import CpuPipeline
from trt_ros.runtime.fitting import fit, resolve
from trt_ros.runtime.options import BUNDLE_SUFFIXES, LabeledOptions, PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.runtime.runner import CopyingRunner, Runner
from trt_ros.tensors import Arrays
from trt_ros.vision.nms import iou

WORST = 3  # Inputs that are named.


def compare(args: Namespace) -> int:
    """Compare for `trt-ros verify` and print; return 1 when anything differs."""
    from trt_ros.runtime.gpu.open import open_tensor_runner

    options = build_options(args)

    def open_ours(model: Path, engine_cache_dir: Path | str) -> Any:
        # Of a model whose NMS has been cut off, nothing is left to cut.
        return open_tensor_runner(
            model,
            options if model == args.model else replace(options, cut_nms=False),
            backend=args.backend,
            device=args.device,
            engine_cache_dir=engine_cache_dir,
        )

    with ExitStack() as stack:
        reference = stack.enter_context(closing(_on_the_cpu(args.model)))
        ours = stack.enter_context(closing(open_ours(args.model, args.engine_cache_dir)))
        model = _model_with_outputs_of(args.model, ours, stack)
        same = reference
        if model != args.model:
            same = stack.enter_context(closing(_on_the_cpu(model)))
        found = _Comparison(args.min_cosine, args.min_matched)
        for name, inputs, want, got in _runs(args, CopyingRunner(same), CopyingRunner(ours, same)):
            found.add(name, inputs, agreements(got, want))
        found.add_boxes(_boxes(args, ours, reference))
        is_bundle = str(args.model).endswith(BUNDLE_SUFFIXES)
        if args.layers or (found.is_non_finite and not is_bundle):
            print('comparing layers', file=sys.stderr)
            found.layers = compare_layers(
                model,
                found.worst_tensors,
                open_ours,
                min_cosine=args.min_cosine,
                in_reference=found.is_reference_non_finite,
            )
    if args.json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        print(*map(printable, found.lines()), sep='\n')
    return 1 if found.reasons else 0


def _on_the_cpu(model: Path) -> Runner:
    return cpu_backend().open(PipelineOptions(model_path=str(model)), Reporter(), 1)


class _Comparison:
    """Agreement over all inputs, and on each; `worst_tensors` differ most."""

    def __init__(self, min_cosine: float, min_matched: float) -> None:
        self._min_cosine, self._min_matched = min_cosine, min_matched
        self.outputs: dict[str, Agreement] = {}
        self.inputs: list[InputAgreement] = []
        self.boxes: BoxAgreement | None = None
        self.layers: LayerReport | None = None
        self.worst_tensors: dict[str, np.ndarray] = {}
        self._worst: InputAgreement | None = None

    def add(self, name: str, tensors: Arrays, found: dict[str, Agreement]) -> None:
        self.inputs.append(InputAgreement(name, found))
        for output, each in found.items():
            self.outputs.setdefault(output, Agreement()).add(each)
        if self._worst is None or self.inputs[-1].rank < self._worst.rank:
            self._worst = self.inputs[-1]
            self.worst_tensors = {key: np.array(value) for key, value in tensors.items()}

    def add_boxes(self, found: Iterable[BoxAgreement]) -> None:
        for each, boxes in zip(self.inputs, found):
            each.boxes = boxes
            self.boxes = self.boxes or BoxAgreement()
            self.boxes.add(boxes)

    @property
    def is_non_finite(self) -> bool:
        return any(each.non_finite_here for each in self.outputs.values()) or (
            self.is_reference_non_finite
        )

    @property
    def is_reference_non_finite(self) -> bool:
        return any(each.non_finite_reference for each in self.outputs.values())

    @property
    def reasons(self) -> dict[str, str]:
        """Why each output, the boxes or the layers do not agree; empty where all do."""
        reasons = {name: each.problem(self._min_cosine) for name, each in self.outputs.items()}
        if self.boxes and not self.boxes.share >= self._min_matched:
            reasons['boxes'] = f'{self.boxes.share:.1%} matched is below {self._min_matched:.1%}'
        if self.layers:
            reasons['layers'] = self.layers.error or self.layers.reason
        return {name: reason for name, reason in reasons.items() if reason}

    def as_dict(self) -> dict[str, Any]:
        return {
            'outputs': {name: asdict(each) for name, each in self.outputs.items()},
            'boxes': self.boxes.as_dict() if self.boxes else {},
            'failed': list(self.reasons),
            'reasons': self.reasons,
            'statistics': statistics(self.inputs),
            'inputs': [each.as_dict() for each in self.inputs],
            **({'layers': asdict(self.layers)} if self.layers else {}),
        }

    def lines(self) -> Iterator[str]:
        for name, each in self.outputs.items():
            yield (
                f'{name}: largest difference {each.max_error:.3g}, mean {each.mean_error:.3g} '
                f'(values up to {each.largest:.3g}), cosine {each.cosine:.6f}'
            )
        if self.boxes:
            yield (
                f'boxes: {self.boxes.ours} here, {self.boxes.reference} in ONNX Runtime, '
                f'{self.boxes.share:.1%} matched, smallest IoU {self.boxes.min_iou:.3f}'
            )
        if len(self.inputs) > 1:
            yield from self._statistics()
        for name, reason in self.reasons.items():
            if name != 'layers':
                yield f'{name} differs: {reason}'
        if self.layers:
            yield from self.layers.lines()
        if any(each.overflows_here_only for each in self.outputs.values()):
            yield 'Remedy: float16 holds no more than 65504. Try --precision bf16 or tf32.'
        yield f'differs: {", ".join(self.reasons)}' if self.reasons else 'agrees'

    def _statistics(self) -> Iterator[str]:
        found = statistics(self.inputs)
        line = (
            f'{len(self.inputs)} inputs: cosine lowest {found["cosine_min"]:.6f}, '
            f'5th percentile {found["cosine_p5"]:.6f}, median {found["cosine_median"]:.6f}'
        )
        if self.boxes:
            line += (
                f'; boxes matched lowest {found["boxes_matched_min"]:.1%}, '
                f'median {found["boxes_matched_median"]:.1%}'
            )
        yield line
        worst = sorted(self.inputs, key=lambda each: each.rank)[:WORST]
        yield f'worst: {", ".join(map(str, worst))}'


def _model_with_outputs_of(model: Path, ours: Any, stack: ExitStack) -> Path:
    """Return the model with the engine's outputs: without NMS, where that was cut off."""
    from trt_ros.engine.builder.onnx_cut_nms import write_cut
    from trt_ros.tensors import CUT_NMS

    if CUT_NMS not in ours.metadata:
        return model
    path = Path(stack.enter_context(TemporaryDirectory(prefix='trt_ros'))) / 'cut.onnx'
    write_cut(model, path)
    return path


def _runs(
    args: Namespace, reference: Runner, ours: Runner
) -> Iterator[tuple[str, Arrays, Arrays, Arrays]]:
    """Yield name and inputs of each run, pictures as bound or noise, and the outputs of both."""
    if args.images or args.inputs:
        fitted = resolve(reference, given_options(args, LabeledOptions))
        both: list[CpuPipeline[Any]] = [CpuPipeline(each, fitted) for each in (reference, ours)]
        for name, sample in samples(args, fitted.feeds):
            frames, arrays = split_inputs(fitted.feeds, sample)
            staged, _ = both[0].stage(frames, arrays)
            # Each side has its own states.
            (inputs, want), (_, got) = (each.run_network(staged, arrays) for each in both)
            yield name, inputs, want, got
        return
    rng = np.random.default_rng(0)
    for index in range(args.random):
        tensors = {}
        for spec in reference.inputs:
            shape = tuple(size if size > 0 else 1 for size in spec.shape)
            if len(shape) == 4 and min(spec.shape[2:]) < 0:
                height, width = build_options(args).input_size or (640, 640)
                shape = (shape[0], 3, height, width)
            tensors[spec.name] = noise(rng, shape, spec.dtype)
        yield f'random input {index}', tensors, reference.infer(tensors), ours.infer(tensors)


def _boxes(args: Namespace, ours: Any, reference: Any) -> Iterator[BoxAgreement]:
    """Compare the detections of both; yield nothing without a decoder. Closes `ours`."""
    from trt_ros.runtime.gpu.measure import frames_of

    options = given_options(args, LabeledOptions)
    try:
        fitted = fit(reference, options, DETECTORS)
    except TensorMismatchError:
        return
    on_cpu: CpuPipeline[Any] = CpuPipeline(reference, fitted)
    score = args.score_threshold
    with frames_of(ours, options, DETECTORS, batch=build_options(args).batch) as pipeline:
        for _, inputs in samples(args, fitted.feeds):
            want = run_sample(on_cpu, inputs, score)
            yield BoxAgreement.of(run_sample(pipeline, inputs, score), want)


MAX_DIFFERENCE = 0.02  # Of the score of a class; TF32, and boxes that differ by a little.


def compare_cascade(args: Namespace) -> int:
    """Compare networks, objects and classes for verify; return 1 when anything differs."""
    if args.json:
        raise ParameterError(
            '--json is for one network, but this is a bundle of two.', remedy='Leave it out.'
        )
    options = given_options(args, LabeledOptions)
    has_failed = 0
    detector, members = members_of(options)
    # The networks of regions get noise: they do not take whole pictures.
    for member, images in ((detector, args.images), *((each, []) for each in members)):
        print(f'{member.model_path}:')
        own: dict[str, Any] = {'model': Path(member.model_path), 'images': images}
        has_failed |= compare(Namespace(**{**vars(args), **own}))
    print('objects and their classes:')
    on_cpu = replace(options, backend='onnxruntime', precision='auto')
    boxes, matches = BoxAgreement(), list[bool]()
    ours: Pipeline[Any]
    reference: Pipeline[Any]
    with Pipeline.open(options) as ours, Pipeline.open(on_cpu) as reference:
        for _, inputs in samples(args, ours.feeds):
            got = run_sample(ours, inputs, args.score_threshold)
            want = run_sample(reference, inputs, args.score_threshold)
            boxes.add(BoxAgreement.of(got, want))
            matches += _matches(got, want)
    print(
        f'boxes: {boxes.ours} here, {boxes.reference} in ONNX Runtime, {boxes.share:.1%} matched; '
        f'{sum(matches)} of {len(matches)} have the same classes'
    )
    is_equal = all(matches) and boxes.share >= args.min_matched
    print('agrees' if is_equal else 'differs')
    return 1 if has_failed or not is_equal else 0


def _matches(got: Any, want: Any) -> list[bool]:
    """Return whether each region of the reference has the scores of its matching object."""
    found = []
    for each in want:
        overlaps = iou(each.xyxy, got.xyxy) if len(got) else np.zeros(1)
        best = int(overlaps.argmax())
        if overlaps[best] < 0.5 or not isinstance(each.region, Classification):
            continue
        other = got[best].region
        found.append(
            isinstance(other, Classification)
            and bool(np.abs(other.scores - each.region.scores).max() <= MAX_DIFFERENCE)
        )
    return found
