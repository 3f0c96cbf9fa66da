"""Choice of the GPU decoder that equals a head: layouts as arguments of the kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import math
from typing import Any

from trt_ros.decode.boxes import BoxHead
from trt_ros.decode.choice import Decoder
from trt_ros.decode.cuda.box_args import AnchorCoding, Level
from trt_ros.decode.cuda.boxes import GpuBoxes, GpuOrientedBoxes, GpuPoses
from trt_ros.decode.cuda.classes import GpuClasses
from trt_ros.decode.cuda.decoder import GpuDecoder, OutputSlice
from trt_ros.decode.cuda.dense import GpuArgmax, GpuDense, GpuDepth, GpuMasks
from trt_ros.decode.cuda.masks import GpuInstances
from trt_ros.decode.cuda.tiles import GpuTiles
from trt_ros.families.classify import ClassifyHead
from trt_ros.families.depth import DepthHead
from trt_ros.families.layout import BoxLayout
from trt_ros.families.places import LevelSlices, Places, Slice, locate
from trt_ros.families.semantic import MaskHeads, SemanticHead
from trt_ros.tensors import Shape, TensorSpec, item_nbytes
from trt_ros.vision.tiles import Tiles


def gpu_decoder(
    decoder: Decoder[Any],
    outputs: Sequence[TensorSpec],
    shapes: Mapping[str, Shape],
    input_hw: tuple[int, int],
    tiles: Tiles | None = None,
) -> GpuDecoder | None:
    """
    Return the GPU decoder that equals `decoder`; None where only the CPU can decode.

    Inconsistent shapes are left to the CPU decoder too, which reports the error.

    :param shapes: shapes of the outputs for the present inputs.
    :param input_hw: size of the network's images.
    :param tiles: tiles of an image, which the outputs are for.
    """
    open_decoder = _DECODERS.get(type(decoder.head))
    if open_decoder is None:
        return None
    dtypes = {spec.name: spec.dtype for spec in outputs}
    found = open_decoder(decoder.head, HeadOutputs(shapes, dtypes, input_hw))
    if found is None or not found.is_supported:
        return None
    if tiles is None:
        return found
    assert isinstance(found, GpuBoxes)  # Others are refused with tiles.
    strides = {
        name: math.prod(shape[1:]) * item_nbytes(dtypes[name]) for name, shape in shapes.items()
    }
    tiled = GpuTiles(found, tiles, strides)
    return tiled if tiled.is_supported else None


@dataclass(frozen=True)
class HeadOutputs:
    """
    Shapes and dtypes of the outputs of a network.

    :param shapes: for the present inputs.
    :param input_hw: size of the network's images.
    """

    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    input_hw: tuple[int, int]

    def slice(self, output: str, start: int, row: int, column: int = 1) -> OutputSlice:
        """Return a slice of an output, see `OutputSlice`."""
        return OutputSlice(output, self.dtypes[output], start, row, column)


def gpu_boxes(head: BoxHead, outputs: HeadOutputs) -> GpuBoxes | None:
    """Return the decoder of the boxes of a reading; None if the CPU decodes them."""
    reading, layout = head.reading, head.layout
    places = locate(reading, outputs.shapes, outputs.input_hw)
    if places is None or layout.extras == 'masks':
        return None

    def sliced(place: Slice) -> OutputSlice:
        return outputs.slice(place.output, place.start, place.row, place.column)

    def level(each: LevelSlices) -> Level:
        slices = {role: sliced(place) for role, place in each.slices.items()}
        scores, objectness = slices['scores'], slices.get('objectness')
        if objectness and layout.objectness_only and places.classes == 1:
            scores, objectness = objectness, None
        return Level(
            slices.get('box'),
            scores,
            slices.get('sizes'),
            objectness,
            slices.get('extras'),
            each.grid,
        )

    first, coding = places.levels[0].slices, layout.coding
    form: Any = coding.form
    if coding.is_anchored:
        form = AnchorCoding(
            **vars(coding),
            bins=places.bins,
            is_planar=places.is_planar,
            class_step=places.class_step,
        )
    kind, fields = _kind(head, places, outputs)
    if 'extras' in first:
        fields['extra_count'] = first['extras'].values
    if layout.is_limited:
        fields['limit'] = places.rows
    return kind(
        _selection(layout, first),
        places.rows,
        places.classes,
        tuple(map(level, places.levels)),
        form,
        labels=sliced(first['label']) if 'label' in first else None,
        count=sliced(places.tensors['count']) if 'count' in places.tensors else None,
        label_offset=layout.label_offset,
        activation=layout.activation,
        uses_nms=layout.uses_nms,
        normalized=coding.is_normalized,
        is_y_first=coding.is_y_first,
        has_root=layout.has_root,
        is_peak=layout.is_peak,
        **fields,
    )


def _selection(layout: BoxLayout, slices: Mapping[str, Slice]) -> str:
    """Return the kernel that selects rows and classes."""
    if layout.select == 'each' or 'label' in slices:
        return 'each'
    scores = slices['scores']
    return 'rows' if scores.column == 1 else 'columns'


def _kind(
    head: BoxHead, places: Places, outputs: HeadOutputs
) -> tuple[type[GpuBoxes], dict[str, Any]]:
    """Return the class of the decoder and its further fields."""
    layout = head.layout
    if layout.extras == 'keypoints':
        finish = head.with_regions if layout.regions else None
        return GpuPoses, {'values': head.reading.values_per_keypoint, 'finish': finish}
    if layout.extras == 'angle':
        return GpuOrientedBoxes, {}
    if layout.extras == 'coefficients':
        name = places.tensors['prototypes'].output
        _, _, rows, columns = outputs.shapes[name]
        return GpuInstances, {
            'prototypes': outputs.slice(name, 0, 0),
            'grid_hw': (rows, columns),
            'input_hw': outputs.input_hw,
        }
    return GpuBoxes, {}


def _semantic(head: SemanticHead, outputs: HeadOutputs) -> GpuArgmax | None:
    if head.is_classes:
        return None
    _, *size = outputs.shapes[head.output_name]
    classes, rows, columns = size if head.channels_first else (size[2], *size[:2])
    cells = outputs.slice(head.output_name, 0, 0)
    return GpuArgmax(cells, classes, (rows, columns), head.channels_first, head.confidence)


def _masks(head: MaskHeads, outputs: HeadOutputs) -> GpuMasks | None:
    found = {each.output_name: _semantic(each, outputs) for each in head.heads}
    masks = {name: mask for name, mask in found.items() if mask is not None}
    return GpuMasks(masks) if len(masks) == len(found) else None


def _depth(head: DepthHead, outputs: HeadOutputs) -> GpuDepth | None:
    _, *size = outputs.shapes[head.output_name]
    if len(size) == 3:
        channels = size.pop(0 if head.channels_first else 2)
        if channels != 1:
            return None
    rows, columns = size
    return GpuDepth(outputs.slice(head.output_name, 0, 0), 1, (rows, columns), True)


def _classes(head: ClassifyHead, outputs: HeadOutputs) -> GpuClasses | None:
    _, count, *ones = outputs.shapes[head.output_name]
    if head.class_count not in (None, count) or any(size != 1 for size in ones):
        return None
    return GpuClasses(outputs.slice(head.output_name, 0, 0), count)


#: By class of the head: the decoder for a head and its outputs, None where there is none.
_DECODERS: Mapping[
    type,
    Callable[[Any, HeadOutputs], GpuBoxes | GpuDense | GpuMasks | GpuClasses | None],
] = {
    BoxHead: gpu_boxes,
    SemanticHead: _semantic,
    MaskHeads: _masks,
    DepthHead: _depth,
    ClassifyHead: _classes,
}
