"""Grids and evidence that the YOLO families share."""

from collections.abc import Mapping
from typing import Any, Literal

from trt_ros.families.family import NetworkDescription
from trt_ros.families.layout import Rows

#: One anchor per cell, without and with the strides of P2 and P6 models.
YOLO = Rows(((8, 16, 32), (4, 8, 16, 32), (8, 16, 32, 64)))
#: Who writes the networks of Ultralytics.
ULTRALYTICS: Mapping[str, Any] = {'exporter': 'Ultralytics', 'output_names': ('output0',)}
#: Three anchors per cell.
TRIPLES = Rows(((8, 16, 32), (8, 16, 32, 64)), per_cell=(3,))


def has_nms(network: NetworkDescription) -> bool:
    """Return whether metadata of Ultralytics says that boxes are decoded and chosen."""
    metadata = network.metadata
    return metadata.get('end2end') == 'True' or "'nms': True" in metadata.get('args', '')


def is_rtdetr(network: NetworkDescription) -> bool:
    """
    Return whether the metadata is that of an RT-DETR exported by Ultralytics.

    Newer metadata names the last layer, older metadata only the network's source file.
    """
    text = network.metadata.get('head', '') + network.metadata.get('description', '')
    return 'task' in network.metadata and 'rtdetr' in text.lower()


def is_raw(network: NetworkDescription) -> Literal[False] | None:
    """Guard boxes before NMS."""
    return False if has_nms(network) or is_rtdetr(network) else None


def is_finished(network: NetworkDescription) -> str | Literal[False] | None:
    """Guard boxes after NMS."""
    if has_nms(network):
        return 'NMS in the metadata'
    return False if is_rtdetr(network) or is_yolov5(network) else None


def is_yolov5(network: NetworkDescription) -> bool:
    """Return whether YOLOv5's exporter wrote the metadata, which is less than Ultralytics' is."""
    return 'stride' in network.metadata and 'task' not in network.metadata


def is_on_no_grid(network: NetworkDescription) -> Literal[False] | None:
    """Guard boxes after NMS: as many as a grid has anchors are before NMS."""
    counts = network.outputs[0].shape[1:2]
    is_grid = any(rows.strides_of(network.input_hw, n) for rows in (YOLO, TRIPLES) for n in counts)
    return False if is_grid and not has_nms(network) else None


def of_yolov5(network: NetworkDescription) -> Literal[False] | None:
    """Guard what only YOLOv5's exporter writes."""
    return None if is_yolov5(network) else False
