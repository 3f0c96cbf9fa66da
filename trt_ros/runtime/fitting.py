"""Feeds, decoder and class names of a network, decided before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
import logging
from typing import Any, Generic, TypeVar

from trt_ros.decode.choice import Decoder, choose_decoder
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families.family import Family, NetworkDescription, padding_mask
from trt_ros.families.head import Head
from trt_ros.families.registry import ALL_FAMILIES, ENHANCERS, TENSORS
from trt_ros.families.vectors import TENSOR, TensorHead
from trt_ros.model.bindings import OTHERS, parse_bindings, part_specs, resolve_bindings
from trt_ros.model.feeds import FEEDS, Feeds
from trt_ros.model.feeds.base import Binding, Feed
from trt_ros.model.feeds.constant import ConstantFeed
from trt_ros.model.feeds.image import ImageFeed, ImagesFeed
from trt_ros.model.feeds.prepared import is_prepared, prepared
from trt_ros.model.run_inputs import image_feeds
from trt_ros.results.labels import (
    begins_with_background,
    class_names,
    describe_names,
    meant_by,
    repeated_names,
)
from trt_ros.runtime.heads import decoders_of_each, names_of, several_masks, with_confidence
from trt_ros.runtime.image_inputs import (
    ImageInput,
    describe_preprocess,
    image_feed,
    image_input,
    is_image,
)
from trt_ros.runtime.options import (
    OF_IMAGES,
    OF_REGIONS,
    LabeledOptions,
    MaskOptions,
    PipelineOptions,
    RegionOptions,
    ignored,
)
from trt_ros.runtime.runner import Network
from trt_ros.runtime.suggestions import unbound_error
from trt_ros.runtime.trial_run import Infer, open_trial, with_published
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Preprocess

ResultT = TypeVar('ResultT')
log = logging.getLogger('trt_ros.runtime')
MAX_NAMED = 3  # Names in a warning.


@dataclass(frozen=True)
class ResolvedModel(Generic[ResultT]):
    """The decisions about a network: what its inputs get, how results come out, and why."""

    feeds: Feeds
    output_specs: tuple[TensorSpec, ...]
    decoder: Decoder[ResultT]
    class_names: tuple[str, ...] = ()
    log_lines: tuple[str, ...] = ()
    bindings: tuple[Binding, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs that are decoded, in order."""
        return tuple(spec.name for spec in self.output_specs)

    @property
    def preprocess(self) -> Preprocess:
        """The preprocessing of the (first) image; raises TensorMismatchError without images."""
        for feed in image_feeds(self.feeds).values():
            return feed.preprocess
        raise TensorMismatchError('The network takes no image.')


def fit(
    network: Network,
    options: PipelineOptions,
    families: tuple[Family[Head[ResultT]], ...],
    infer: Infer | None = None,
) -> ResolvedModel[ResultT]:
    """
    Decide what the inputs of a network get and how its outputs are decoded; or raise.

    Keeps nothing; the only files it reads are `labels_path` and those beside the model.

    :param infer: runs the network, see `Runner.infer`, for a trial run; None: there is none.
    """
    network, published = with_published(network, options.model_path)
    bindings = bindings_of(network, options)
    images = _images(network, options, bindings)
    outputs = _chosen_outputs(network, options)
    labels, labels_path = (
        (options.labels, options.labels_path) if isinstance(options, LabeledOptions) else ((), '')
    )
    given = class_names(labels, labels_path, network.metadata, None)
    awaited = [each for name, each in images.items() if not is_prepared(bindings.get(name))]
    if awaited:
        main = awaited[0]
        is_raw = _is_raw(network, options) and TENSOR in families
        described = NetworkDescription(
            *_of_one_image(network.inputs, outputs, main),
            network.metadata,
            main.input_hw,
            len(given) or None,
            options.strict,
            open_trial(network, options, bindings, images, published, infer),
        )
        name = TENSOR.name if is_raw else options.decoder
        has_background = begins_with_background(given)
        try:
            decoder = choose_decoder(name, described, families, has_background=has_background)
        except TensorMismatchError as error:
            if hint := meant_by(labels):
                remedy = f'{hint}{error.remedy}'
                raise TensorMismatchError(
                    error.problem, cause=error.cause, remedy=remedy
                ) from error
            alone = decoders_of_each(options, described, families)
            decoder = several_masks(options, alone, len(outputs), error)
        decoder = replace(
            decoder,
            preprocess={**decoder.preprocess, **published.preprocess},
            is_training_known=decoder.is_training_known or bool(published.preprocess),
        )
    else:
        decoder = _tensor_decoder(network, options, families)
    if isinstance(options, MaskOptions) and options.confidence:
        decoder = with_confidence(decoder)
    feeds, log_lines = _feeds(network, options, bindings, images, decoder)
    tiles = next((feed.tiles for feed in image_feeds(feeds).values()), None)
    decoder = replace(decoder, tiles=tiles)
    log_lines += _ignored(options, has_images=bool(images))
    if options.outputs:
        log_lines.append(f'outputs {", ".join(options.outputs)} (as configured)')
    names = names_of(labels, labels_path, network.metadata, decoder)
    if isinstance(options, LabeledOptions):
        log_lines.append(describe_names(names, given))
        if (labels or labels_path) and decoder.task in ('depth', 'image', 'embed', 'tensor'):
            log_lines.append(f'Ignored by the decoder {decoder.name}: the names of classes.')
        if repeated := repeated_names(names):
            log.warning('Several classes are named %s.', ' and '.join(repeated[:MAX_NAMED]))
    return ResolvedModel(
        feeds,
        outputs,
        decoder,
        names,
        (f'decoder {decoder.name}: {decoder.reason}', *published.log_lines, *log_lines),
        tuple(bindings.values()),
    )


def _ignored(options: PipelineOptions, *, has_images: bool) -> tuple[str, ...]:
    if not has_images:
        return ignored(options, OF_IMAGES, 'a network without images')
    if isinstance(options, RegionOptions) and options.regions:
        return ()
    return ignored(options, OF_REGIONS, 'a network of whole images')


def default_families(network: Network, options: PipelineOptions) -> tuple[Family[Head[Any]], ...]:
    """
    Return the families of every task.

    Outputs are not decoded where that is chosen by name, where no input gets an image, or where a
    bundle is given without a decoder.
    """
    bindings = _given(network, options)
    has_no_image = bindings and not any(
        issubclass(FEEDS[each.kind], ImageFeed) and not is_prepared(each) for each in bindings
    )
    is_raw = options.decoder in [family.name for family in TENSORS] or (
        options.decoder == 'auto' and network.bindings
    )
    if options.decoder in [family.name for family in ENHANCERS]:
        return ENHANCERS
    return TENSORS if is_raw or has_no_image else ALL_FAMILIES


def resolve(
    network: Network,
    options: PipelineOptions,
    families: tuple[Family[Head[Any]], ...] | None = None,
) -> ResolvedModel[Any]:
    """
    Decide as `fit`; without `options.decoder`, a network that no family fits returns raw outputs.

    Evidence beside the shape is not needed, whatever `options.strict` is. An only input of the
    shape of an image gets an image, other inputs get tensors. A bundle, or one with several
    bindings or a stack of images, is not decoded without `options.decoder`, as in the node
    `tensor`: the actions of a policy may have the shape of boxes, and an optical flow that of a
    mask.

    :param families: None: `default_families`.
    """
    if _is_raw(network, options):
        return fit(network, replace(options, decoder=TENSOR.name), TENSORS)
    try:
        loose = replace(options, strict=False)
        return fit(network, loose, families or default_families(network, options))
    except TensorMismatchError:
        if options.decoder not in ('auto', TENSOR.name):
            raise
        options = replace(options, decoder=TENSOR.name)
    if not options.inputs and (len(network.inputs) > 1 or not is_image(network.inputs[0])):
        options = replace(options, inputs=(f'{OTHERS}=tensor:tensors',))
    return fit(network, options, TENSORS)


def _given(network: Network, options: PipelineOptions) -> tuple[Binding, ...]:
    """Return the bindings of the options, and those of the network for its other inputs."""
    given = parse_bindings(options.inputs)
    names = {binding.input for binding in given}
    own = parse_bindings(network.bindings)
    return (*given, *(binding for binding in own if binding.input not in names))


def _is_raw(network: Network, options: PipelineOptions) -> bool:
    """
    Return whether outputs are not decoded where the families include `tensor`.

    Those of bundles and of runs of several inputs, or a stack of images, without a decoder.
    """
    if options.decoder != 'auto':
        return False
    bindings = _given(network, options)
    is_stack = any(FEEDS[each.kind] is ImagesFeed for each in bindings)
    return bool(network.bindings) or len(bindings) > 1 or is_stack


def bindings_of(network: Network, options: PipelineOptions) -> dict[str, Binding]:
    """Return the bindings by input, in order; raise ParameterError for unknown names."""
    bindings = _given(network, options)
    if not bindings:
        return {}
    names = [spec.name for spec in network.inputs]
    has_others = any(binding.input == OTHERS for binding in bindings)
    outputs = [spec.name for spec in network.outputs]
    constants = () if has_others else names  # Which inputs are constant is known with the decoder.
    resolved = resolve_bindings(bindings, names, outputs, constants=constants)
    return {binding.input: binding for binding in resolved}


def _images(
    network: Network, options: PipelineOptions, bindings: Mapping[str, Binding]
) -> dict[str, ImageInput]:
    """Return the image inputs in the order of their bindings; without any, the only one."""
    specs = {spec.name: spec for spec in network.inputs}
    if bindings:
        return {
            name: image_input(network, specs[name], options, binding)
            for name, binding in bindings.items()
            if issubclass(FEEDS[binding.kind], ImageFeed)
        }
    mask = padding_mask(network.inputs)  # Constant.
    if not network.inputs:
        raise TensorMismatchError(
            'The network has no inputs.', remedy='Export it with its inputs.'
        )
    images = [spec for spec in network.inputs if len(spec.shape) == 4 and spec != mask]
    if len(network.inputs) > 1 and len(images) != 1:
        raise unbound_error(network, [spec.name for spec in network.inputs], options)
    spec = images[0] if images else network.inputs[0]
    return {spec.name: image_input(network, spec, options)}


def _chosen_outputs(network: Network, options: PipelineOptions) -> tuple[TensorSpec, ...]:
    specs = {spec.name: spec for spec in network.outputs}
    unknown = [name for name in options.outputs if name not in specs]
    if unknown:
        raise ParameterError(
            f'outputs names {", ".join(unknown)}, which the network does not have.',
            cause=f'Its outputs are {"; ".join(map(str, network.outputs))}.',
            remedy='Choose among the outputs of the network.',
        )
    if len(set(options.outputs)) < len(options.outputs):
        raise ParameterError(
            f'outputs has duplicates: {", ".join(options.outputs)}.',
            remedy='List each output once.',
        )
    return tuple(specs[name] for name in options.outputs or network.default_outputs or specs)


def _tensor_decoder(
    network: Network, options: PipelineOptions, families: tuple[Family[Head[ResultT]], ...]
) -> Decoder[ResultT]:
    """Return the decoder of a network without images: its outputs are not decoded."""
    for family in families:
        if family.name == TENSOR.name:
            if options.decoder not in ('auto', TENSOR.name):
                raise ParameterError(
                    f'decoder is {options.decoder}, but the network gets no image.',
                    remedy='Set decoder to auto, or bind an input to an image, as in '
                    f'{network.inputs[0].name}=image:image.',
                )
            head: Any = TensorHead()
            return Decoder(family.name, 'the network gets no image', family.task, {}, head)
    raise TensorMismatchError(
        'The network gets no image.',
        cause=f'inputs is {list(options.inputs)}.',
        remedy='Run the node `tensor`, or bind an input to an image, not held and no history.',
    )


def _feeds(
    network: Network,
    options: PipelineOptions,
    bindings: Mapping[str, Binding],
    images: Mapping[str, ImageInput],
    decoder: Decoder[ResultT],
) -> tuple[Feeds, list[str]]:
    """Return the feed of each network input, and log lines."""
    specs = {spec.name: spec for spec in network.inputs}
    parts = part_specs(bindings, network.inputs, network.outputs)
    feeds: dict[str, Feed] = {}
    log_lines: list[str] = []
    for name in bindings or images:
        binding = bindings.get(name)
        if name in images:
            image = images[name]
            feeds[name] = feed = image_feed(options, binding, image, decoder)
            line = describe_preprocess(feed.preprocess, image.size_reason, feed.crop, feed.tiles)
            if isinstance(feed, ImagesFeed):
                line = f'{feed.image_count} images, {line}'
            if binding is not None and is_prepared(binding):
                feeds[name] = prepared(feed, binding.settings, specs[name], image.stack)
                line += feeds[name].details
            log_lines.append(f'{name}: {line}' if bindings else line)
        elif binding is not None:
            spec = parts.get(name) or specs[name]
            feeds[name] = FEEDS[binding.kind].bind(binding, spec, network.outputs)
            log_lines.append(feeds[name].describe(name))
    # What is joined comes after its parts.
    ordered = sorted(feeds, key=lambda name: bool(feeds[name].parts))
    feeds = {name: feeds[name].joined(feeds) for name in ordered}
    for name, value in decoder.constant_inputs.items():
        feeds.setdefault(name, ConstantFeed(value))
    missing = [name for name in specs if name not in feeds]
    if missing:
        raise unbound_error(network, missing, options)
    return feeds, log_lines


def _of_one_image(
    inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], main: ImageInput
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return inputs and outputs as in a run of one image, or raise TensorMismatchError."""
    image = main.spec
    if main.stack:
        one = replace(image, shape=(1, *image.shape[-3:]))
        return tuple(one if spec == image else spec for spec in inputs), outputs
    batch = image.shape[0]
    if batch in (1, -1):
        return inputs, outputs
    if batch == 0 or any(spec.shape[:1] not in ((batch,), (-1,)) for spec in outputs):
        raise TensorMismatchError(
            f'The input {image} has a batch size of {batch}, which the outputs do not have.',
            cause='; '.join(str(spec) for spec in outputs),
            remedy='Export with a batch size of 1, or a dynamic one.',
        )

    def of_one(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(
            replace(spec, shape=(1, *spec.shape[1:])) if spec.shape[:1] == (batch,) else spec
            for spec in specs
        )

    return of_one(inputs), of_one(outputs)
