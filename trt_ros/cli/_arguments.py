"""Types and uses of command line arguments."""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

from trt_ros.cli._option_flags import given_options
from trt_ros.errors import ParameterError
from trt_ros.regular_file import FILE_SCHEMES
from trt_ros.runtime.options import BUNDLE_SUFFIXES, REMOTE_SCHEMES
from trt_ros.vision.thresholds import ThresholdOptions, Thresholds


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
    """Return the path of a model, or its address."""
    return text if text.startswith((*FILE_SCHEMES, *REMOTE_SCHEMES)) else Path(text)


def add_min_cosine(add: Callable[..., Any]) -> None:
    """Declare the flag of the similarity that an engine must reach."""
    add(
        '--min-cosine',
        type=finite,
        default=0.99,
        metavar='X',
        help='fail below this cosine similarity of any output (default: 0.99)',
    )


def refuse_layers(args: Namespace) -> None:
    """Raise ParameterError if --layers is given for a bundle."""
    if args.layers and str(args.model).endswith(BUNDLE_SUFFIXES):
        raise ParameterError(
            f'--layers is for one network, but {args.model} is a bundle.',
            remedy='Give the ONNX file of one of its networks.',
        )


def make_output_folder(folder: Path) -> None:
    """Create the folder of --output, or raise ParameterError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(
            f'The output folder {folder} cannot be created.',
            cause=error.strerror or '',
            remedy='Choose another folder with --output.',
        ) from error


def thresholds_of(args: Namespace) -> Thresholds:
    """Return the thresholds of a command line; raise ParameterError if a score is invalid."""
    return given_options(args, ThresholdOptions).thresholds()
