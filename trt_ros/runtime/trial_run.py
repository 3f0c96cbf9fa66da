"""Trial runs of a network on two pictures, with the preprocessing of a family."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from trt_ros.decode.trial import Trial, pictures
from trt_ros.errors import TrtRosError
from trt_ros.families.family import Family, NetworkDescription
from trt_ros.model.feeds.base import Binding
from trt_ros.model.published import Published, read_published
from trt_ros.runtime.image_inputs import ImageInput, image_preprocess, with_settings
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.runner import Network
from trt_ros.tensors import Arrays
from trt_ros.vision.frame import Frame

Infer = Callable[[Arrays], Arrays]


def with_published(network: Network, model_path: str) -> tuple[Network, Published]:
    """Return the description of a network with the metadata of files beside it, and these."""
    published = read_published(model_path, network.metadata)
    found = Network()
    for name in Network.__annotations__:
        if hasattr(network, name):
            setattr(found, name, getattr(network, name))
    found.metadata = published.metadata
    return found, published


def open_trial(
    network: Network,
    options: PipelineOptions,
    bindings: Mapping[str, Binding],
    images: Mapping[str, ImageInput],
    published: Published,
    infer: Infer | None,
) -> Trial | None:
    """Return a trial of a network of one image, which `infer` runs; None for others."""
    [(name, image), *others] = images.items()
    if infer is None or others or image.stack or image.channels == 4:
        return None
    if name in bindings:
        options = with_settings(options, bindings[name].settings)
    count = max(image.spec.shape[0], 1)

    def run(family: Family[Any]) -> list[dict[str, np.ndarray]]:
        described = NetworkDescription(
            network.inputs, network.outputs, network.metadata, image.input_hw
        )
        constants = family.constant_inputs(described)
        found = []
        with suppress(TrtRosError):  # The warm-up reports it.
            trained_with = {**family.preprocess, **published.preprocess}
            preprocess = image_preprocess(options, trained_with, image)
            for pixels in pictures(image.input_hw):
                tensor, _ = preprocess(Frame.from_pixels(pixels))
                outputs = infer({**constants, name: tensor.repeat(count, axis=0)})
                found.append(
                    {
                        key: np.array(each[:1] if count > 1 else each)
                        for key, each in outputs.items()
                    }
                )
        return found if len(found) == 2 else []

    return Trial(run, image.input_hw)
