"""Output layouts of the families: search for the outputs of one layout in a description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trt_ros.families import cut_nms, detr, instances
from trt_ros.families.boxes import BoxOutputs, box_outputs
from trt_ros.families.embedding import vectors
from trt_ros.families.family import NetworkDescription, is_scores
from trt_ros.families.finished_boxes import find_tensorflow
from trt_ros.families.nanodet import (
    BIN_COUNTS,
    STRIDES_WITH_64,
    DistributionOutputs,
    find_concatenated,
)
from trt_ros.families.paddle import has_scale_input
from trt_ros.families.yolo_rows import rows_of, three_anchor_counts
from trt_ros.families.yolov8 import cell_counts, is_channels_first
from trt_ros.tensors import CUT_NMS, TensorSpec

YOLO_STRIDES = (8, 16, 32)
SCORES_FIRST = -1  # Class offset of class scores in front of the distances to the sides.
# SSD300 with MobileNet (Caffe and PyTorch, TensorFlow) and with VGG, SSD512 with VGG.
SSD_PRIORS = (3000, 1917, 8732, 24564)


# One output: one anchor per column or row, or one decoded box per row.


@dataclass(frozen=True)
class Anchors:
    """
    The only output of a network: (1, channels, count), or (1, count, channels) in row layout.

    :param count: number of anchors; -1 where dynamic.
    :param channels: values per anchor; -1 where dynamic.
    :param class_offset: number of values in front of the class scores in row layout, 4 or 5 (with
        objectness) or `SCORES_FIRST`, decided by the entry of `CLASS_OFFSETS` in `evidence`; 0:
        undecided.
    """

    spec: TensorSpec
    count: int
    channels: int
    class_offset: int = 0
    evidence: str = ''


#: Evidence for (1, N, 4 + C) or (1, N, 5 + C), boxes without or with objectness, or for (1, N, C +
#: 4 bins): the first entry that applies to the network and its channels counts. `output0` is the
#: name that Ultralytics' exporter writes, `output` the one of YOLOX's and NanoDet's, `outputs`
#: YOLOv6's.
CLASS_OFFSETS: tuple[tuple[int, Callable[[NetworkDescription, int], object], str], ...] = (
    (4, lambda net, channels: 'task' in net.metadata, "its metadata is Ultralytics'"),
    (
        4,
        lambda net, channels: net.class_count and channels == 4 + net.class_count,
        '{channels} is 4 and {network.class_count} classes',
    ),
    (
        5,
        lambda net, channels: net.class_count and channels == 5 + net.class_count,
        '{channels} is 5 and {network.class_count} classes',
    ),
    (
        SCORES_FIRST,
        lambda net, channels: (
            net.class_count and channels - net.class_count in [4 * bins for bins in BIN_COUNTS]
        ),
        '{channels} is {network.class_count} classes and the bins of four sides',
    ),
    (4, lambda net, channels: net.only_output.name == 'output0', "its name is Ultralytics'"),
    (
        SCORES_FIRST,
        lambda net, channels: channels == 112,
        '112 is the 80 classes of COCO and eight bins per side',
    ),
    (5, lambda net, channels: net.only_output.name == 'output', "its name is YOLOX's"),
    (5, lambda net, channels: net.only_output.name == 'outputs', "its name is YOLOv6's"),
    (4, lambda net, channels: channels == 84, '84 is 4 and the 80 classes of COCO'),
    (5, lambda net, channels: channels == 85, '85 is 5 and the 80 classes of COCO'),
)


def anchor_rows(network: NetworkDescription) -> Anchors | None:
    """Find an only output in row layout, with the evidence for its class offset."""
    spec = only_raw_output(network)
    if spec is None:
        return None
    _, count, channels = spec.shape
    for class_offset, applies, evidence in CLASS_OFFSETS:
        if applies(network, channels):
            reason = evidence.format(network=network, channels=channels)
            return Anchors(spec, count, channels, class_offset, reason)
    return Anchors(spec, count, channels)


def only_raw_output(network: NetworkDescription) -> TensorSpec | None:
    """Return the only output where it can be a raw head; None: it cannot, or there are more."""
    if len(network.outputs) != 1 or not is_scores(network.only_output):
        return None
    return network.only_output


def yolov8_columns(network: NetworkDescription) -> Anchors | None:
    """Find boxes and class scores of YOLOv8, one anchor per column."""
    if not _may_be_yolov8(network) or not is_channels_first(network):
        return None
    _, channels, count = network.only_output.shape
    named = network.class_count if 'task' in network.metadata else None
    if 0 < channels < 5 or (named and channels not in (-1, 4 + named)):  # More than boxes.
        return None
    return Anchors(network.only_output, count, channels)


def has_columns_of_coco(network: NetworkDescription) -> bool:
    """Return whether the columns are those of the detectors of COCO: a box and 80 classes."""
    found = yolov8_columns(network)
    return found is not None and found.channels == 84


def yolov8_rows(network: NetworkDescription) -> Anchors | None:
    """Find boxes and class scores of YOLOv8, one anchor per row."""
    found = anchor_rows(network)
    if found is None or not _may_be_yolov8(network) or is_channels_first(network):
        return None
    fits = found.count in (-1, *cell_counts(network)) and not 0 < found.channels < 5
    return found if fits else None


def _may_be_yolov8(network: NetworkDescription) -> bool:
    """Return False for boxes after NMS and for RT-DETR, which have one row per box."""
    return (
        only_raw_output(network) is not None
        and is_task(network, 'detect')
        and (network.metadata.get('end2end') != 'True' and not network.is_ultralytics_rtdetr)
    )


def yolov5_rows(network: NetworkDescription) -> Anchors | None:
    """Find boxes with objectness, three anchors per cell."""
    found = anchor_rows(network)
    if found is None or 'task' in network.metadata:  # The ultralytics package has no objectness.
        return None
    fits = found.count in (-1, *three_anchor_counts(network)) and not 0 < found.channels < 6
    return found if fits else None


def yolov6_rows(network: NetworkDescription) -> Anchors | None:
    """Find decoded boxes with objectness, one per cell, by the name that YOLOv6 gives them."""
    found = anchor_rows(network)
    if found is None or 'task' in network.metadata or found.spec.name != 'outputs':
        return None
    return found if found.count in cell_counts(network) and found.class_offset == 5 else None


def yolox_rows(network: NetworkDescription) -> Anchors | None:
    """Find boxes with objectness, one anchor per cell."""
    found = anchor_rows(network)
    if found is None or 0 < found.channels < 6 or yolov6_rows(network):
        return None
    if found.count < 0 and has_yolov5_metadata(network):
        return None
    return found if found.count in (-1, network.anchor_count(YOLO_STRIDES)) else None


def distribution_rows(
    network: NetworkDescription, strides: tuple[int, ...]
) -> DistributionOutputs | None:
    """Find class scores and the bins of four sides, one cell per row."""
    found, rows = find_concatenated(network, strides), anchor_rows(network)
    if found is None or rows is None or rows.class_offset == SCORES_FIRST:
        return found
    is_named = strides == STRIDES_WITH_64 and rows.spec.name == 'output'  # YOLOX has no such grid.
    return found if rows.count >= 0 and (not rows.class_offset or is_named) else None


def decoded_rows(network: NetworkDescription) -> TensorSpec | None:
    """Find decoded boxes, one per row: x1, y1, x2, y2, score, class."""
    spec = only_raw_output(network)
    if spec is None or not is_task(network, 'detect') or network.is_ultralytics_rtdetr:
        return None
    if spec.shape[1] in three_anchor_counts(network) or has_yolov5_metadata(network):
        return None  # YOLOv5 and YOLOv7 with one class have six values, too.
    return spec if spec.shape[2] in (6, -1) else None


def has_yolov5_metadata(network: NetworkDescription) -> bool:
    """
    Return whether the metadata is that of YOLOv5's exporter.

    It writes less than the ultralytics package; the other exporters write nothing.
    """
    return 'stride' in network.metadata and 'task' not in network.metadata


def is_task(network: NetworkDescription, task: str) -> bool:
    """Return whether the metadata names this task, as Ultralytics writes it, or no task."""
    return network.metadata.get('task', task) == task


# Boxes and scores as separate outputs.


def plain_boxes(network: NetworkDescription) -> BoxOutputs | None:
    """Find boxes and scores without evidence for another family."""
    parts = box_outputs(network)
    if parts is None or parts.count is not None or CUT_NMS in network.metadata:
        return None
    if find_tensorflow(network):  # Their boxes begin with y.
        return None
    if any(word in parts.scores.name for word in ('logits', 'label')):  # RF-DETR's are labels.
        return None
    if any(detr.SIZES_INPUT in spec.name for spec in network.inputs) or has_scale_input(network):
        return None
    return parts


def ssd_boxes(network: NetworkDescription) -> BoxOutputs | None:
    """Find boxes and per-class scores that need not be the cells of YOLO grids."""
    parts = plain_boxes(network)
    if parts is None or not parts.batched or parts.score_axes != 2:
        return None
    return None if on_a_yolo_grid(network, parts) else parts


def boxes_without_background(network: NetworkDescription) -> BoxOutputs | None:
    """Find boxes with as many scores as named classes, where both are known."""
    parts = plain_boxes(network)
    if parts is None or None in (network.class_count, parts.class_count):
        return parts
    return parts if network.class_count == parts.class_count else None


def on_a_yolo_grid(network: NetworkDescription, parts: BoxOutputs) -> bool:
    """Return whether there is one box per cell: boxes in pixels, without a background class."""
    return parts.score_axes == 2 and parts.boxes.shape[-2] == network.anchor_count(YOLO_STRIDES)


def on_ssd_priors(network: NetworkDescription, parts: BoxOutputs) -> bool:
    """Return whether there is one box per prior of a known SSD, and no classes are named."""
    return (
        parts.score_axes == 2 and parts.boxes.shape[-2] in SSD_PRIORS and not network.class_count
    )


def has_unknown_scale(network: NetworkDescription, parts: BoxOutputs) -> bool:
    """Return whether coordinates may be input pixels as well as 0 to 1 of the input."""
    return parts.batched and not (on_a_yolo_grid(network, parts) or on_ssd_priors(network, parts))


def on_stride_16(network: NetworkDescription, parts: tuple[TensorSpec, TensorSpec]) -> bool:
    """Return whether the grids have one cell per 16 x 16 pixels of the input."""
    return all(
        cells in (-1, -(-pixels // 16))
        for cells, pixels in zip(parts[0].shape[2:], network.input_hw)
    )


def before_cut_nms(network: NetworkDescription) -> Mapping[str, Any]:
    """Return the attributes of the NMS that was cut off and the outputs; empty: none was."""
    settings = cut_nms.nms_settings(network)
    return settings and {**settings, 'outputs': ', '.join(map(str, network.outputs))}


# Other tasks.


def masked_rows(network: NetworkDescription) -> tuple[TensorSpec, TensorSpec] | None:
    """Find boxes with mask coefficients, and the prototypes."""
    parts = instances.find_outputs(network)
    return parts if parts and rows_of(network, parts[0], parts[1].shape[1]) else None


def is_of_yolov7_nms(network: NetworkDescription) -> bool:
    """Return whether the output is image, box, class, score per row: YOLOv7 with --max-wh."""
    if len(network.outputs) != 1 or len(network.only_output.shape) != 2:
        return False
    rows, values = network.only_output.shape
    image_count = network.inputs[0].shape[0] if network.inputs else -1
    return values == 7 and rows not in (1, image_count) and network.class_count != 7


def only_vector(network: NetworkDescription) -> TensorSpec | None:
    """Find the only output that is one vector per image."""
    found = vectors(network)
    if len(found) != 1 or 'task' in network.metadata or is_of_yolov7_nms(network):
        return None
    return found[0]
