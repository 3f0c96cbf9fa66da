"""Comparison of both networks of a cascade, and of its results, with ONNX Runtime."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trt_ros.cli._comparison import compare
from trt_ros.cli._samples import input_options, run_sample, samples
from trt_ros.cli.build import build_options
from trt_ros.errors import ParameterError
from trt_ros.results.classes import Classification
from trt_ros.runtime.agreement import BoxAgreement
from trt_ros.runtime.cascade import members_of
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.nms import iou

MAX_DIFFERENCE = 0.02  # Of the score of a class; TF32, and boxes that differ by a little.


def compare_cascade(args: Namespace) -> int:
    """Compare networks, objects and classes for verify; return 1 when anything differs."""
    if args.json:
        raise ParameterError(
            '--json is for one network, but this is a bundle of two.', remedy='Leave it out.'
        )
    options = replace(input_options(args), precision=build_options(args).precision)
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
