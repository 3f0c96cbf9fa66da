"""Choice of the GPU decoder that equals a head: layouts as arguments of the kernels."""

from collections.abc import Callable, Mapping, Sequence
import math
from typing import Any

from trt_ros.decode.boxes import BoxHead
from trt_ros.decode.choice import Decoder
from trt_ros.decode.cuda.boxes import GpuBoxes, GpuOrientedBoxes, GpuPoses
from trt_ros.decode.cuda.decoder import GpuDecoder, Output, Outputs
from trt_ros.decode.cuda.dense import GpuArgmax, GpuDepth, GpuGrids, GpuPicture, GpuQueries
from trt_ros.decode.cuda.masks import GpuInstances
from trt_ros.decode.cuda.tiles import GpuTiles
from trt_ros.decode.cuda.vectors import GpuClasses, GpuPoints, GpuText
from trt_ros.decode.points import PointHead
from trt_ros.families import lanes
from trt_ros.families.depth import DepthHead
from trt_ros.families.head import Head
from trt_ros.families.image import PictureHead
from trt_ros.families.maskformer import MaskFormerHead
from trt_ros.families.match import fitted
from trt_ros.families.places import locate
from trt_ros.families.semantic import MaskHeads, SemanticHead
from trt_ros.families.text import TextHead
from trt_ros.families.vectors import ClassifyHead
from trt_ros.results.arrays import Depth
from trt_ros.results.masks import ClassMasks
from trt_ros.tensors import Shape, TensorSpec, item_nbytes
from trt_ros.vision.regions import Tiles


def gpu_decoder(
    decoder: Decoder[Any],
    outputs: Sequence[TensorSpec],
    shapes: Mapping[str, Shape],
    input_hw: tuple[int, int],
    tiles: Tiles | None = None,
) -> GpuDecoder | None:
    """
    Return the GPU decoder that equals `decoder`; None where only the CPU can decode.

    Inconsistent shapes (for the present inputs) are left to the CPU, which reports the error.
    """
    dtypes = {spec.name: spec.dtype for spec in outputs}
    found = _open(decoder.head, Outputs(shapes, dtypes, input_hw))
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


def _open(head: Head[Any], outputs: Outputs) -> GpuDecoder | None:
    open_decoder = _DECODERS.get(type(head))
    if open_decoder is None or fitted(head.reading, outputs.shapes, outputs.input_hw) is None:
        return None
    return open_decoder(head, outputs)


#: By meaning of the extras.
_KINDS: Mapping[str, type[GpuBoxes]] = {
    '': GpuBoxes,
    'keypoints': GpuPoses,
    'angle': GpuOrientedBoxes,
    'coefficients': GpuInstances,
    'masks': GpuInstances,
}


def _boxes(head: BoxHead, outputs: Outputs) -> GpuBoxes | None:
    places = locate(head.reading, outputs.shapes, outputs.input_hw)
    return None if places is None else _KINDS[head.layout.extras](head, places, outputs)


def _cells(
    head: Head[Any], outputs: Outputs, name: str = ''
) -> tuple[Output, int, tuple[int, int], bool]:
    """Return the fields of `GpuDense` for an output, by default the first."""
    name = name or head.output_name
    _, *size = outputs.shapes[name]
    is_first = head.reading.parts[0].out.has_channels_first
    size = [1, *size] if len(size) == 2 else size
    channels, rows, columns = size if is_first else (size[2], *size[:2])
    return outputs[name], channels, (rows, columns), is_first


def _semantic(head: SemanticHead, outputs: Outputs) -> GpuArgmax | None:
    return None if head.is_classes else GpuArgmax(*_cells(head, outputs), head.confidence)


def _masks(head: MaskHeads, outputs: Outputs) -> GpuGrids | None:
    found: dict[str, Any] = {each.output_name: _open(each, outputs) for each in head.heads}
    if None in found.values():
        return None
    counts = [max(mask.classes, 2) for mask in found.values()]
    return GpuGrids(found, lambda masks: ClassMasks(masks, counts))


def _queries(head: MaskFormerHead, outputs: Outputs) -> GpuQueries:
    names = head.names[0], head.names[-1]
    (_, queries, entries), (_, _, rows, columns) = (outputs.shapes[name] for name in names)
    return GpuQueries(
        Output('', 'float32'),
        entries - 1,
        (rows, columns),
        channels_first=True,
        confidence=head.confidence,
        outputs=tuple(outputs[name] for name in names),
        queries=queries,
    )


def _depth(head: DepthHead, outputs: Outputs) -> GpuDecoder:
    names = [name for name in (head.output_name, head.confidence_name) if name]
    found = {name: GpuDepth(*_cells(head, outputs, name)) for name in names}
    if len(found) == 1:
        return found[head.output_name]
    depth, confidence = found

    def combine(results: Mapping[str, Depth]) -> Depth:
        sure = head.confidence(results[confidence].values)
        return Depth(results[depth].values, sure)

    return GpuGrids(found, combine)


def _picture(head: PictureHead, outputs: Outputs) -> GpuPicture:
    return GpuPicture(*_cells(head, outputs), head, outputs.input_hw)


def _classes(head: ClassifyHead, outputs: Outputs) -> GpuClasses:
    return GpuClasses(outputs[head.output_name], outputs.shapes[head.output_name][1])


def _text(head: TextHead, outputs: Outputs) -> GpuText:
    _, steps, count = outputs.shapes[head.output_name]
    return GpuText(outputs[head.output_name], count, steps)


def _points(head: PointHead, outputs: Outputs) -> GpuPoints:
    layout, (height, width) = head.layout, outputs.input_hw
    names = {next(iter(part.out.fields)): part.spec.name for part in head.reading.parts}
    shapes = {role: outputs.shapes[name] for role, name in names.items()}

    def parts(*roles: str) -> tuple[Output | None, ...]:
        return tuple(outputs[names[role]] if role in names else None for role in roles)

    if layout.form == 'heatmaps':
        _, count, rows, columns = shapes['heatmaps']
        steps = ((width - 1) / max(columns - 1, 1), (height - 1) / max(rows - 1, 1))
        return GpuPoints(layout.form, parts('heatmaps'), 1, count, steps, (columns, rows))
    if layout.form == 'bins':
        (_, count, columns), (_, _, rows) = shapes['columns'], shapes['rows']
        steps = (width / columns, height / rows)
        return GpuPoints(layout.form, parts('columns', 'rows'), 1, count, steps, (columns, rows))
    steps = (float(width), float(height)) if layout.is_normalized else (1.0, 1.0)
    return GpuPoints(
        layout.form,
        parts('points', 'score', 'side'),
        1,
        math.prod(shapes['points'][1:]) // layout.values,
        steps,
        is_y_first=layout.is_y_first,
        values=layout.values,
    )


def _ufld(head: lanes.UfldHead, outputs: Outputs) -> GpuPoints:
    _, bins, rows, count = outputs.shapes[head.output_name]
    height, width = outputs.input_hw
    return GpuPoints(
        'row cells',
        (outputs[head.output_name],),
        count,
        rows,
        (width / (bins - 2), 1.0),
        (bins - 1, 0),
        has_labels=True,
        least=(lanes.MIN_POINTS, 0),
        places=(tuple(lanes.anchors_of(rows, height).tolist()),),
    )


def _ufld_v2(head: lanes.UfldV2Head, outputs: Outputs) -> GpuPoints:
    size, top = head.anchors.uncropped(outputs.input_hw)
    rows, columns = head.anchors.places(size)
    cells = outputs.shapes[head.names[0]][1], outputs.shapes[head.names[1]][1]
    least = [int(len(at) * share) + 1 for at, share in zip((rows, columns), lanes.LEAST_SHARES)]
    return GpuPoints(
        'best cells',
        tuple(outputs[name] for name in head.names),
        lanes.LANES,
        head.keypoint_count,
        (size[0] / (cells[0] - 1), size[1] / (cells[1] - 1)),
        cells,
        has_labels=True,
        counts=(len(rows), len(columns)),
        least=(least[0], least[1]),
        places=(tuple(rows.tolist()), tuple(columns.tolist())),
        top=top,
    )


def _lstr(head: lanes.LstrHead, outputs: Outputs) -> GpuPoints:
    _, count, kinds = outputs.shapes[head.output_name]
    height, width = outputs.input_hw
    return GpuPoints(
        'curves',
        tuple(outputs[name] for name in head.names),
        count,
        lanes.CURVE_POINTS,
        (width, height),
        (kinds, 0),
        least=(lanes.MIN_CURVE_POINTS, 0),
        places=(tuple(lanes.SHARES.tolist()),),
    )


#: By class of the head: the decoder for a head and its outputs, None where there is none.
_DECODERS: Mapping[type, Callable[[Any, Outputs], GpuDecoder | None]] = {
    BoxHead: _boxes,
    SemanticHead: _semantic,
    MaskHeads: _masks,
    DepthHead: _depth,
    PictureHead: _picture,
    ClassifyHead: _classes,
    TextHead: _text,
    MaskFormerHead: _queries,
    PointHead: _points,
    lanes.UfldHead: _ufld,
    lanes.UfldV2Head: _ufld_v2,
    lanes.LstrHead: _lstr,
}
