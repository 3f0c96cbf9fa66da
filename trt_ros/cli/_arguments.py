"""Types of command line arguments."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from math import isfinite
from pathlib import Path

from trt_ros.runtime.options import REMOTE_SCHEMES


def finite(text: str) -> float:
    """Parse a finite number."""
    value = float(text)
    if not isfinite(value):
        raise ArgumentTypeError(f'{text} is not a finite number')
    return value


def fraction(text: str) -> float:
    """Parse a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f'{text} is not between 0 and 1')
    return value


def positive(text: str) -> int:
    """Parse an integer above 0."""
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f'{text} is not above 0')
    return value


def model_argument(text: str) -> Path | str:
    """Return the path of a model, or the address of one on an inference server."""
    return text if text.startswith(REMOTE_SCHEMES) else Path(text)


def add_threshold_flags(parser: ArgumentParser) -> None:
    """Declare the thresholds of boxes."""
    parser.add_argument(
        '--score-threshold',
        type=fraction,
        default=0.25,
        metavar='X',
        help='minimum score of a detection (default: 0.25)',
    )
    parser.add_argument(
        '--iou-threshold',
        type=fraction,
        default=0.45,
        metavar='X',
        help='IoU above which the lower-scoring of two boxes of one class is suppressed '
        '(default: 0.45)',
    )
    parser.add_argument(
        '--max-detections',
        type=positive,
        default=100,
        metavar='N',
        help='maximum number of detections per image (default: 100)',
    )
