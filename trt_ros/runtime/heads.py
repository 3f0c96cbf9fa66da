"""Networks of several outputs that are decoded one by one."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from trt_ros.decode.choice import Decoder, choose_decoder
from trt_ros.errors import ParameterError, TensorMismatchError, counted
from trt_ros.families.family import Family, NetworkDescription
from trt_ros.families.head import Head
from trt_ros.families.mismatches import GUESS, UnrecognizedError, advice
from trt_ros.families.registry import ALL_FAMILIES
from trt_ros.families.semantic import MaskHeads
from trt_ros.results.labels import begins_with_background, class_names
from trt_ros.runtime.options import PipelineOptions

ResultT = TypeVar('ResultT')


def decoders_of_each(
    options: PipelineOptions,
    network: NetworkDescription,
    families: tuple[Family[Head[ResultT]], ...],
) -> dict[str, Decoder[ResultT]]:
    """
    Return the decoder of each output that has one without the others, by output.

    Class scores count only among `families` of classifiers, and the outputs
    of networks that no family decodes only where chosen.

    :param network: with the tensors of a run of one image.
    """
    network = replace(network, class_count=None, strict=False, trial=None)
    if len(network.outputs) < 2 or (not options.outputs and advice(network, ALL_FAMILIES)):
        return {}
    if any(family.task != 'classify' for family in families):  # A vector may be anything.
        families = tuple(family for family in families if family.task != 'classify')
    unnamed = {name: value for name, value in network.metadata.items() if name != 'names'}
    found: dict[str, Decoder[ResultT]] = {}
    strict = options.strict and not options.outputs
    for spec in network.outputs:
        alone = replace(network, outputs=(spec,), metadata=unnamed, strict=strict)
        with suppress(TensorMismatchError):
            found[spec.name] = choose_decoder(options.decoder, alone, families)
    return found


def several_masks(
    options: PipelineOptions,
    alone: Mapping[str, Decoder[Any]],
    count: int,
    error: TensorMismatchError,
) -> Decoder[Any]:
    """Return the decoder of a mask per output, if all are masks, or raise the given error."""
    heads: list[Any] = [each.head for each in alone.values() if each.head.classes_by_output]
    if options.outputs and len(heads) == count:
        first = next(iter(alone.values()))
        reason = f'{count} outputs of one mask each, the first: {first.reason}'
        return replace(first, reason=reason, head=MaskHeads.of(heads))
    fit_together = isinstance(error, UnrecognizedError) and bool(error.choices)
    if not alone or fit_together:
        raise error
    several = ', or to several of them for a mask each' if len(heads) > 1 else ''
    one_of = 'one of ' if len(alone) > 1 else ''
    raise TensorMismatchError(
        error.problem,
        cause=error.cause,
        remedy=f'Set outputs to {one_of}{", ".join(alone)}{several}. {GUESS}{error.remedy}',
    ) from error


def with_confidence(decoder: Decoder[Any]) -> Decoder[Any]:
    """Return a decoder of masks and confidence; raises ParameterError without scores."""
    if decoder.head.finds_instances:  # The scores of its objects.
        return decoder
    head = decoder.head.with_confidence()
    if head is None:
        raise ParameterError(
            f'confidence is true, but decoder {decoder.name} has no scores of pixels.',
            remedy='Set confidence to false, or export the network with the scores of all '
            'classes, without ArgMax.',
        )
    return replace(decoder, head=head)


def names_of(
    labels: Sequence[str], labels_path: str, metadata: Mapping[str, str], decoder: Decoder[Any]
) -> tuple[str, ...]:
    """Return the class names of a network, those of several masks output by output."""
    counts = decoder.head.classes_by_output
    if decoder.task == 'text':
        names = class_names(labels, labels_path, metadata, None)
        # Files of characters name neither `blank` nor the space behind them.
        is_short = 0 < len(names) < (decoder.class_count or 0)
        labels = ('blank', *names, ' ')[: decoder.class_count] if is_short else names
        return class_names(labels, '', metadata, decoder.class_count)
    if len(counts) < 2:
        names = class_names(labels, labels_path, metadata, decoder.class_count)
        is_beside = decoder.class_count is None and not decoder.head.counts_background
        names = names[1:] if is_beside and begins_with_background(names) else names
        return names or decoder.head.own_class_names
    names = class_names(labels, labels_path, {}, None)
    if names and len(names) != decoder.class_count:
        raise ParameterError(
            f'labels or labels_path names {counted(len(names), "class")} of several outputs.',
            cause='Numbers of classes: '
            + ', '.join(f'{name}: {count or "unknown"}' for name, count in counts.items())
            + '.',
            remedy='Leave both out, as the classes of an output are unknown.'
            if decoder.class_count is None
            else 'List the names of all outputs, in the order of `outputs`, with backgrounds.',
        )
    return names
