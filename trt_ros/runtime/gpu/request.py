"""The request of a run: its thresholds in memory that the decoding kernels read."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int

import numpy as np

from trt_ros.vision.thresholds import Thresholds

REQUEST_NBYTES = 32


class RequestArgs(ctypes.Structure):
    """
    Parameters that may differ between frames of one graph; common.cu: struct Request.

    The table of minimum scores by class follows.
    """

    _fields_ = [
        ('score_threshold', c_float),
        ('iou_threshold', c_float),
        ('max_detections', c_int),
        ('class_agnostic', c_int),
        ('table_size', c_int),
        ('reserved', c_int * 3),
    ]


def header_nbytes(thresholds: Thresholds, class_count: int = 0) -> int:
    """
    Return the bytes of a request: its header in a slot, which keeps the images behind it aligned.

    :param class_count: classes that later thresholds may choose from, so that the size stays.
    """
    table, _ = thresholds.class_table()
    return -(-(REQUEST_NBYTES + 4 * max(len(table), class_count)) // 256) * 256


def write_request(memory: np.ndarray, thresholds: Thresholds) -> None:
    """Write the request into pinned bytes, (header_nbytes,) uint8 or more."""
    table, others = thresholds.class_table()
    request = RequestArgs.from_buffer(memory.data)
    request.score_threshold, request.iou_threshold = others, thresholds.iou
    request.max_detections = thresholds.max_detections
    request.class_agnostic = thresholds.class_agnostic
    request.table_size = len(table)
    if len(table):
        memory[REQUEST_NBYTES : REQUEST_NBYTES + table.nbytes].view(np.float32)[:] = table
