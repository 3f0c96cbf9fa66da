"""Inputs of a run: an image or an array per network input that takes one."""

from collections.abc import Mapping, Sequence

import numpy as np

from trt_ros.errors import TensorMismatchError, meant
from trt_ros.model.feeds import Feeds
from trt_ros.model.feeds.base import Binding
from trt_ros.model.feeds.image import Image, ImageFeed
from trt_ros.tensors import Arrays, TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox

#: Placement of the image in a network without one; the decoder ignores it.
NO_LETTERBOX = Letterbox((1.0, 1.0), (0.0, 0.0), (1, 1), (1, 1))
#: What a run gets by network input: an image (or several), or an array. Other inputs, such as
#: states and constants, are absent.
RunInput = Image | Sequence[Image]
RunInputs = Mapping[str, RunInput]
#: The tensors of a run without any.
NO_TENSORS: Arrays = {}
#: Name of the maps of a run's regions among its tensors, one row per image of the batch.
REGIONS = 'regions of the image'


def image_feeds(feeds: Feeds) -> dict[str, ImageFeed]:
    """Return the feeds of images."""
    return {name: feed for name, feed in feeds.items() if isinstance(feed, ImageFeed)}


def array_specs(feeds: Feeds) -> dict[str, TensorSpec]:
    """Return the arrays that a run gets, by network input."""
    return {name: feed.array for name, feed in feeds.items() if feed.array is not None}


def has_memory(feeds: Feeds) -> bool:
    """Return whether a run depends on the one before it."""
    return any(feed.has_memory for feed in feeds.values())


def only_image(feeds: Feeds) -> str | None:
    """Return the network input that gets the only image of a run without arrays, else None."""
    names = [name for name, feed in feeds.items() for _ in range(feed.image_count)]
    return names[0] if len(names) == 1 and not array_specs(feeds) else None


def is_one_image(feeds: Feeds) -> bool:
    """Return whether runs get one image each, beside constants, so that images can be batched."""
    return only_image(feeds) is not None and not has_memory(feeds)


def by_input(feeds: Feeds, bindings: Sequence[Binding], inputs: RunInputs) -> RunInputs:
    """Return inputs by the names of the network; a topic stands for those it feeds alike."""
    found: dict[str, RunInput] = {}
    for name, value in inputs.items():
        fed = [each for each in bindings if each.topics == (name,)]
        is_topic = name not in feeds and len({each.sources for each in fed}) == 1
        found.update(dict.fromkeys((each.input for each in fed) if is_topic else [name], value))
    return found


def inputs_of_image(feeds: Feeds, image: Image) -> RunInputs:
    """Return the inputs of a run of one image; raise TensorMismatchError if runs get more."""
    name = only_image(feeds)
    if name is None:
        raise TensorMismatchError(
            'The network takes other inputs than one image.',
            cause='; '.join(f'{name}: {feed.kind}' for name, feed in feeds.items()),
            remedy='Give an image or array for each of them: in Python a dict, `trt-ros infer` a '
            '.npz file of numpy.savez().',
        )
    return {name: image}


def split_inputs(
    feeds: Feeds, inputs: RunInputs
) -> tuple[tuple[Frame, ...], dict[str, np.ndarray]]:
    """
    Split the inputs of a run into images, in the order of their feeds, and arrays.

    :raises TensorMismatchError: when an input is missing, unknown or of the wrong kind, or an
        array has another shape than the network's input.
    """
    frames: list[Frame] = []
    tensors: dict[str, np.ndarray] = {}
    taken = 0
    for name, feed in feeds.items():
        spec = feed.array
        if spec is None and not isinstance(feed, ImageFeed):
            continue
        given = feed.origin or name
        value = inputs.get(given)
        taken += given == name
        if value is None:
            others = [str(other) for other in inputs if inputs[other] is not None]
            raise TensorMismatchError(
                f'The network input {given!r} is missing.',
                cause=f'The inputs given are: {", ".join(others) or "none"}.',
                remedy=f'Pass an input named {given!r}.',
            )
        if isinstance(feed, ImageFeed):
            frames += feed.frames_of(name, value)
        elif spec is not None:
            tensors[name] = feed.check(value)
    if len(inputs) > taken:
        unknown = [
            str(name)
            for name in inputs
            if name not in feeds
            or feeds[name].origin
            or not (feeds[name].image_count or feeds[name].array)
        ]
        raise TensorMismatchError(
            f'The network takes no image or tensor named {", ".join(unknown)}.',
            cause='; '.join(f'{name}: {feed.kind}' for name, feed in feeds.items()),
            remedy=f'{meant(unknown[0], (name for name in feeds if name not in unknown))}'
            'Pass only images and tensors of the network.',
        )
    return tuple(frames), tensors


def zeros_of(feeds: Feeds) -> dict[str, RunInput]:
    """Return zeros for the arrays of fixed shapes that a run gets, by network input."""
    zeros = {name: feed.zeros() for name, feed in feeds.items() if not feed.origin}
    return {name: value for name, value in zeros.items() if value is not None}


def example_inputs(feeds: Feeds) -> dict[str, RunInput] | None:
    """Return gray images and zeros to warm up with; None where an array has a dynamic shape."""
    inputs: dict[str, RunInput] = {
        name: [feed.example()] * feed.image_count for name, feed in image_feeds(feeds).items()
    }
    inputs.update(zeros_of(feeds))
    is_complete = all(
        name in inputs
        for name, feed in feeds.items()
        if feed.array is not None and not feed.origin
    )
    return inputs if is_complete else None


def measured_inputs(feeds: Feeds, frame: Frame | None) -> RunInputs:
    """Return the inputs of a run to measure: `frame`, or gray images of the network's size."""
    inputs = example_inputs(feeds)
    if inputs is None:
        raise TensorMismatchError(
            'The network takes tensors of dynamic shapes, which cannot be measured.',
            cause='; '.join(map(str, array_specs(feeds).values())),
            remedy='Export it with fixed shapes, or set ?capacity= in inputs.',
        )
    if frame is not None:
        inputs.update(
            {name: [frame] * feed.image_count for name, feed in image_feeds(feeds).items()}
        )
    return inputs
