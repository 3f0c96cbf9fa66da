"""Inputs of a network to compare its runs with: pictures and noise, as its bindings say."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._option_flags import add_option_flags
from trt_ros.cli._pictures import frames, raise_bad
from trt_ros.cli.build import ENGINE_OPTIONS, build_options
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.runtime.options import PREPROCESSING, LabeledOptions
from trt_ros.vision.pixel_limit import PixelLimit

if TYPE_CHECKING:
    import numpy as np

    from trt_ros.model.feeds import Feeds
    from trt_ros.model.run_inputs import RunInput, RunInputs
    from trt_ros.runtime.pipeline import Pipeline
    from trt_ros.vision.frame import Frame

#: Options of preprocessing and decoding.
INPUT_OPTIONS = (*PREPROCESSING, 'labels', 'labels_path', 'inputs', 'outputs')


def add_input_flags(parser: ArgumentParser) -> None:
    """Declare the options of preprocessing, decoding and bindings."""
    add_option_flags(
        parser.add_argument_group('inputs and outputs', 'as the parameters of the nodes'),
        INPUT_OPTIONS,
    )
    add_option_flags(parser, cls=PixelLimit)


def input_options(args: Namespace) -> LabeledOptions:
    """Return the options of a command line with add_input_flags() and add_build_arguments()."""
    return LabeledOptions(
        model_path=str(args.model),
        input_size=build_options(args).input_size,
        **{name: getattr(args, name) for name in ('backend', *ENGINE_OPTIONS, *INPUT_OPTIONS)},
    )


def samples(args: Namespace, feeds: Feeds) -> Iterator[tuple[str, RunInputs]]:
    """Yield named inputs of runs: as many pictures as image topics, else noise; or raise."""
    import numpy as np

    from trt_ros.model.run_inputs import array_specs, image_feeds, measured_inputs

    rng = np.random.default_rng(0)
    topics = _image_topics(args, list(image_feeds(feeds)))
    names = list(dict.fromkeys(topic for each in topics.values() for topic in each))
    tensors = {
        name: value
        for name, value in measured_inputs(feeds, None).items()
        if name in array_specs(feeds)
    }
    for name, images in _images(args, names, rng):
        by_topic = dict(zip(names, images))
        inputs: dict[str, RunInput] = {
            each: [by_topic[topic] for topic in sources] for each, sources in topics.items()
        }
        for each, zeros in tensors.items():
            inputs[each] = zeros
            if isinstance(zeros, np.ndarray):  # Not gray images.
                inputs[each] = noise(rng, zeros.shape, zeros.dtype)
        yield name, inputs


def run_sample(pipeline: Pipeline[Any], inputs: RunInputs, score: float) -> Any:
    """Return the result of one of samples(); boxes of a score from `score` on."""
    from trt_ros.vision.thresholds import Thresholds

    thresholds = Thresholds(score=score, max_detections=300)
    if not pipeline.is_one_image:
        return pipeline.infer(inputs, thresholds)
    images: Any = inputs[next(name for name in inputs)]
    (frame,) = images  # Networks of a fixed batch run as a whole, too.
    return pipeline.infer(frame, thresholds)


def noise(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return noise of both signs, or 0 to 1 for images (else 0 to 255) and bool."""
    import numpy as np

    values = rng.random(shape, np.float32)
    kind = np.dtype(dtype).kind
    if kind == 'f' and len(shape) != 4:
        return rng.standard_normal(shape, np.float32).astype(dtype)
    if kind == 'b':
        return values > 0.5
    return (values if kind == 'f' else values * 255).astype(dtype)


def _image_topics(args: Namespace, images: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the image topics of each network input that takes images."""
    from trt_ros.model.bindings import parse_bindings

    bound = {each.input: each.sources for each in parse_bindings(args.inputs)}
    return {name: bound.get(name, (name,)) for name in images}


def _images(
    args: Namespace, topics: Sequence[str], rng: np.random.Generator
) -> Iterator[tuple[str, list[Frame]]]:
    import numpy as np

    from trt_ros.vision.frame import Frame

    if not args.images:
        for index in range(args.random):  # With alpha, for networks of one, three and four.
            pixels = [rng.integers(0, 256, (480, 640, 4), dtype=np.uint8) for _ in topics]
            yield f'random input {index}', [Frame.from_pixels(each, 'bgra8') for each in pixels]
        return
    if not topics:
        raise ParameterError(
            'The network takes no pictures.',
            cause=f'inputs is {list(args.inputs)}.' if args.inputs else 'It has no --inputs.',
            remedy='Bind an input to an image, as in --inputs x=image:camera, or leave the '
            'pictures out.',
        )
    # A picture of several that is left out would pair the others wrongly.
    pictures = frames(
        args.images, args.max_image_pixels, _report_bad if len(topics) == 1 else raise_bad
    )
    count = 0
    while group := list(islice(pictures, len(topics))):
        if len(group) < len(topics):
            raise ParameterError(
                f'The last run has {len(group)} pictures, but takes {len(topics)}.',
                cause=f'The image topics are {", ".join(topics)}.',
                remedy='Give one picture per topic and run, in this order.',
            )
        yield ' + '.join(name for name, _ in group), [frame for _, frame in group]
        count += 1
    if not count:
        raise ParameterError('The files have no images.', remedy='Use some images.')


def _report_bad(error: BadFrameError) -> None:
    _report_once(f'left out: {error.problem} {error.cause}'.strip())


@cache
def _report_once(text: str) -> None:
    """Print a line once, although the pictures are read several times."""
    print(text, file=sys.stderr)
