"""Grids and evidence that the YOLO families share."""

from __future__ import annotations

from trt_ros.families.family import NetworkDescription
from trt_ros.families.layout import Rows

#: One anchor per cell, without and with the strides of P2 and P6 models.
YOLO = Rows(((8, 16, 32), (4, 8, 16, 32), (8, 16, 32, 64)))
#: Three anchors per cell.
TRIPLES = Rows(((8, 16, 32), (8, 16, 32, 64)), per_cell=(3,))


def has_nms(network: NetworkDescription) -> bool:
    """Return whether metadata of Ultralytics says that boxes are decoded and chosen."""
    metadata = network.metadata
    return metadata.get('end2end') == 'True' or "'nms': True" in metadata.get('args', '')


def is_raw(network: NetworkDescription) -> bool | None:
    """Guard boxes before NMS."""
    return False if has_nms(network) or network.is_ultralytics_rtdetr else None


def is_finished(network: NetworkDescription) -> bool | None:
    """Guard boxes after NMS."""
    if has_nms(network):
        return True
    return False if network.is_ultralytics_rtdetr or is_yolov5(network) else None


def is_yolov5(network: NetworkDescription) -> bool:
    """Guard what YOLOv5's exporter writes: its metadata has less than that of Ultralytics."""
    return 'stride' in network.metadata and 'task' not in network.metadata
