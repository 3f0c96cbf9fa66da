"""GPU decoders of boxes by the reading of a network: arguments of the kernels for any layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trt_ros.decode.boxes import BoxHead
from trt_ros.families.layout import BoxLayout
from trt_ros.families.places import LevelSlices, Places, Slice, locate
from trt_ros.runtime.gpu.box_args import AnchorCoding, Level
from trt_ros.runtime.gpu.decode import OutputSlice
from trt_ros.runtime.gpu.decode_boxes import GpuBoxes, GpuOrientedBoxes, GpuPoses
from trt_ros.runtime.gpu.decode_masks import GpuInstances
from trt_ros.runtime.gpu.head_outputs import HeadOutputs, Layouts


def gpu_boxes(head: BoxHead, outputs: HeadOutputs) -> GpuBoxes | None:
    """Return the decoder of the boxes of a reading; None if the CPU decodes them."""
    reading, layout = head.reading, head.layout
    places = locate(reading, outputs.shapes, outputs.input_hw)
    if places is None or layout.extras == 'masks':
        return None

    def sliced(place: Slice) -> OutputSlice:
        return OutputSlice(
            place.output, outputs.dtypes[place.output], place.start, place.row, place.column
        )

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


LAYOUTS: Layouts = {BoxHead: gpu_boxes}
