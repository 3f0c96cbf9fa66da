"""Picture of a network's inputs beside its results, for `trt-ros verify --picture`."""

from argparse import Namespace
from dataclasses import replace
from itertools import islice
from pathlib import Path
import sys
from typing import Any

from trt_ros.cli._flags import given_options
from trt_ros.cli._samples import run_sample, samples
from trt_ros.decode.choice import Decoder
from trt_ros.drawing import draw
from trt_ros.drawing.panels import Panel, in_rows, input_view
from trt_ros.errors import ParameterError
from trt_ros.media import check_picture_path, write_picture
from trt_ros.model.run_inputs import image_feeds
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import to_color
from trt_ros.vision.letterbox import INTEGERS, Preprocess

MAX_DRAWN = 16  # As in the help of --picture.


def draw_network_inputs(args: Namespace) -> None:
    """Draw the network's input beside its result, for the first `MAX_DRAWN` pictures."""
    if not args.images:
        raise ParameterError(
            '--picture has no pictures to draw.', remedy='Add picture files after the model.'
        )
    check_picture_path(args.picture)
    with open_pipeline(args) as pipeline:
        name, preprocess = pipeline.decoder.name, pipeline.preprocess
        if preprocess.dtype not in INTEGERS:
            preprocess = replace(preprocess, dtype='float32')
        differences, caption = _differences(pipeline.decoder, preprocess), ''
        # Networks of many authors have the same outputs: no one knows how this one was trained.
        is_known = pipeline.decoder.is_training_known
        how = f'differs from the training of {name}' if is_known else f'set for this {name}'
        than = 'not' if is_known else 'by default'
        for option, (value, other) in differences.items():
            print(f'{how}: {option} is {value}, {than} {other}', file=sys.stderr)
        if differences and is_known:
            caption = f'; {how}: {", ".join(differences)}'
        rows = []
        for path, inputs in islice(samples(args, pipeline.feeds), MAX_DRAWN):
            name_of_images, feed = next(iter(image_feeds(pipeline.feeds).items()))
            images: Any = inputs[name_of_images]
            tensor, _ = preprocess(*images[: 1 + feed.has_second])
            found = run_sample(pipeline, inputs, args.score_threshold)
            pixels = to_color(images[0], 'bgr').copy()
            draw(pixels, found)
            values = f'input, {tensor.min():.3g} to {tensor.max():.3g}{caption}'
            given = Panel(input_view(tensor, preprocess), values)
            rows.append((given, Panel(pixels, f'{Path(path).name}: result of {name}')))
    write_picture(args.picture, in_rows(rows))
    print(args.picture, file=sys.stderr)


def open_pipeline(args: Namespace) -> Pipeline[Any]:
    """Open the pipeline of the arguments, and print its log lines."""
    pipeline: Pipeline[Any] = Pipeline.open(given_options(args, LabeledOptions))
    print('\n'.join(pipeline.log_lines), file=sys.stderr)
    return pipeline


def _differences(
    decoder: Decoder[object], preprocess: Preprocess
) -> dict[str, tuple[object, object]]:
    trained = Preprocess(preprocess.input_hw, **decoder.preprocess)  # type: ignore[arg-type]
    normalizing = ('scale', 'mean', 'std') if preprocess.dtype not in INTEGERS else ()
    names = ('resize', 'crop_fraction', 'pad_value', 'channel_order', *normalizing)
    return {
        name: (getattr(preprocess, name), getattr(trained, name))
        for name in names
        if getattr(preprocess, name) != getattr(trained, name)
    }
