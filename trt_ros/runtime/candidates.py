"""Readings of a network: the decoders and preprocessings that it may have been trained with."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trt_ros.engine.builder.profiles import metadata_hw
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families.family import IMAGENET_PREPROCESS
from trt_ros.families.mismatches import UndecidedError
from trt_ros.families.registry import ALL_FAMILIES
from trt_ros.model.run_inputs import image_feeds, is_one_image
from trt_ros.runtime.fitting import ResolvedModel, fit, resolve
from trt_ros.runtime.options import ModelOptions
from trt_ros.runtime.runner import Runner
from trt_ros.vision.letterbox import INTEGERS, Preprocess

#: Normalizations that networks are trained with: scale, mean and std of red, green and blue.
NORMALIZATIONS: tuple[Mapping[str, Any], ...] = (
    {'scale': 1 / 255, 'mean': (0.0,), 'std': (1.0,)},
    {'scale': 1.0, 'mean': (0.0,), 'std': (1.0,)},
    {'scale': 1 / 255, 'mean': (0.5,), 'std': (0.5,)},
    {name: IMAGENET_PREPROCESS[name] for name in ('scale', 'mean', 'std')},
    {'scale': 1.0, 'mean': (123.68, 116.779, 103.939), 'std': (1.0,)},  # Of Caffe.
)
RESIZES: Mapping[str, tuple[str, ...]] = {
    'classify': ('center_crop', 'stretch', 'letterbox'),
    'segment': ('letterbox', 'stretch'),
    'depth': ('letterbox', 'stretch'),
}
RESIZES_OF_OBJECTS = ('letterbox', 'letterbox_topleft', 'stretch')
SIDES = (320, 416, 512, 640, 960)
SIDES_OF_CLASSIFIERS = (224, 256, 384)


@dataclass(frozen=True)
class Candidate:
    """A reading with explicit options, and the preprocessing its family is trained with."""

    options: ModelOptions
    fitted: ResolvedModel[Any]
    trained: Preprocess

    @property
    def changes(self) -> int:
        """Number of choices that are not those of the family."""
        used, trained = self.fitted.preprocess, self.trained
        names = ('resize', 'channel_order', 'input_hw')
        are_normalized_alike = all(
            np.allclose(np.sort(mine), np.sort(theirs), rtol=1e-3)
            for mine, theirs in ((used.gain, trained.gain), (used.bias, trained.bias))
        )
        others = [getattr(used, name) != getattr(trained, name) for name in names]
        return sum([*others, not are_normalized_alike])

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what makes readings different."""
        each = self.fitted.preprocess
        values = np.round(np.concatenate([each.gain, each.bias]), 6).tolist()
        fields = (each.input_hw, each.resize, each.channel_order)
        return (self.fitted.decoder.name, *fields, *values)

    def described(self) -> dict[str, Any]:
        """Return the options that `trt-ros fit` varies, by name."""
        values = {'decoder': self.options.decoder, **_in_force(self.fitted.preprocess)}
        size = self.options.input_size
        return values | ({'input_size': size} if size else {})

    def texts(self) -> dict[str, str]:
        """Return what `trt-ros fit` varies in words."""
        used = self.fitted.preprocess
        normalization = f'scale {used.scale:.6g}'
        if any(used.mean) or any(value != 1 for value in used.std):
            for name, values in (('mean', used.mean), ('std', used.std)):
                normalization += f' {name} {",".join(f"{value:.4g}" for value in values)}'
        height, width = used.input_hw
        return {
            'decoder': self.fitted.decoder.name,
            'input_size': f'{height}x{width}',
            'resize': used.resize,
            'channel_order': 'gray' if used.channels == 1 else used.channel_order,
            'normalization': normalization,
        }


def first_candidates(network: Runner, options: ModelOptions) -> list[Candidate]:
    """Return a reading per decoder that fits the outputs, with its preprocessing; or raise."""
    found = []
    for name in _decoders(network, options):
        chosen = replace(options, decoder=name)
        fitted = resolve(network, chosen)
        if not is_one_image(fitted.feeds) or fitted.preprocess.channels == 4:
            raise ParameterError(
                'The network does not run on one image of gray levels or colors.',
                cause=f'Its inputs are {"; ".join(map(str, network.inputs))}.',
                remedy='Set the preprocessing in inputs as its authors do (docs/inputs.md).',
            )
        if fitted.decoder.task == 'image':
            raise ParameterError(
                f'Readings of the decoder {name} are not ranked.',
                cause='An image that a network makes may differ from its picture in any way.',
                remedy='Use the node `enhancer` with decoder auto, which compares them, or look '
                f'at the images of `trt-ros infer --decoder {name}`.',
            )
        if fitted.decoder.task == 'segment':
            with suppress(ParameterError):  # Of classes without scores.
                fitted = resolve(network, replace(chosen, confidence=True))
                chosen = replace(chosen, confidence=True)
        used = fitted.preprocess
        found.append(Candidate(replace(chosen, **_in_force(used)), fitted, used))
    return found


def _decoders(network: Runner, options: ModelOptions) -> tuple[str, ...]:
    """Return the decoder of the options, or those that the evidence leaves."""
    if options.decoder != 'auto':
        return (options.decoder,)
    try:
        fitted = fit(network, replace(options, strict=True), ALL_FAMILIES, network.infer)
        return (fitted.decoder.name,)
    except UndecidedError as error:
        drawable = [family.name for family in ALL_FAMILIES]  # Embeddings show nothing.
        return tuple(name for name in error.decoders if name in drawable) or error.decoders


def _in_force(used: Preprocess) -> dict[str, Any]:
    """Return the options that state a preprocessing."""
    values: dict[str, Any] = {'resize': used.resize}
    if used.channels == 3:
        values['channel_order'] = used.channel_order
    if used.dtype not in INTEGERS:
        values |= {'scale': used.scale, 'mean': used.mean, 'std': used.std}
    return values


def normalized(network: Runner, first: Candidate, given: ModelOptions) -> Iterator[Candidate]:
    """Yield readings of other normalizations and channel orders, the family's first."""
    used, options = first.fitted.preprocess, first.options
    orders = ('rgb', 'bgr') if used.channels == 3 and given.channel_order == 'auto' else ()
    own: dict[str, Any] = {'scale': used.scale, 'mean': used.mean, 'std': used.std}
    if used.channel_order == 'bgr':
        own |= {name: own[name][::-1] for name in ('mean', 'std')}
    normalizations: list[Mapping[str, Any]] = [{}]
    if used.dtype not in INTEGERS:
        normalizations = [own, *NORMALIZATIONS]
        if used.channels == 1:
            normalizations = [each for each in normalizations if len({*each['mean']}) == 1]
    for values in normalizations:
        for order in orders or (options.channel_order,):
            turned = {
                name: value[::-1] if order == 'bgr' and isinstance(value, tuple) else value
                for name, value in values.items()
                if not getattr(given, name)
            }
            yield from _changed(network, first, {**turned, 'channel_order': order})


def resized(network: Runner, first: Candidate, given: ModelOptions) -> Iterator[Candidate]:
    """Yield readings of other methods to fit the picture into the input."""
    if given.resize == 'auto':
        task = first.fitted.decoder.task
        for resize in RESIZES.get(task, RESIZES_OF_OBJECTS):
            yield from _changed(network, first, {'resize': resize})


def sized(network: Runner, first: Candidate, given: ModelOptions) -> Iterator[Candidate]:
    """Yield readings of other input sizes of a network that states none."""
    (name,) = image_feeds(first.fitted.feeds)
    sizes = next(spec.shape for spec in network.inputs if spec.name == name)
    used: Preprocess = first.fitted.preprocess
    sizes = sizes[2:] if used.layout == 'nchw' else sizes[1:3]
    if given.input_size or -1 not in sizes or metadata_hw(network.metadata):
        return
    is_classifier = first.fitted.decoder.task == 'classify'
    for side in SIDES_OF_CLASSIFIERS if is_classifier else SIDES:
        hw = tuple(size if size > 0 else side for size in sizes)
        yield from _changed(network, first, {'input_size': hw})


def _changed(network: Runner, first: Candidate, values: Mapping[str, Any]) -> Iterator[Candidate]:
    """Yield a reading with other options, if it is another one and the network takes them."""
    with suppress(TensorMismatchError, ParameterError):
        options = replace(first.options, **values)
        found = Candidate(options, resolve(network, options), first.trained)
        if found.key != first.key:
            yield found
