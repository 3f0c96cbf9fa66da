"""Options of a pipeline; without heavy imports, so that --help is instant."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields, replace
import math
from math import inf
import os
import re
from typing import Any

from trt_ros.errors import ParameterError
from trt_ros.parameter_field import check_options, param, refuse_unknown
from trt_ros.regular_file import FILE_SCHEMES
from trt_ros.runtime.machine_options import EngineOptions, RunOptions

#: Beginnings of a model_path that names a model of an inference server: plain, and with TLS.
REMOTE_SCHEMES = ('grpc://', 'grpcs://')
#: Ends of the path of a bundle.
BUNDLE_SUFFIXES = ('.yaml', '.yml')
# Repeated here because their own modules import NumPy; a test keeps them equal.
MAX_TILES = 64
REGION_RESIZES = ('expand', 'stretch', 'line')
RESIZES = ('letterbox', 'letterbox_topleft', 'stretch', 'center_crop', 'bottom_crop')
#: Largest factor on pixel values; its inverse is the smallest. The results fit into float32.
LARGEST_FACTOR = 1e6


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of images and decoding of outputs."""

    decoder: str = param(
        'auto',
        "Decoder of the network's outputs (a model family); auto recognizes it from the "
        "model's tensors and metadata.",
    )
    strict: bool = param(
        True,
        'Whether decoder auto refuses a network of which nothing but the shape of its outputs '
        'says what it is, which is rather an image or undecoded boxes, or whose outputs a trial '
        'run finds impossible.',
    )
    resize: str = param(
        'auto',
        "Method of fitting the image to the network's input size; auto uses the model family's.",
        choices=('auto', *RESIZES),
    )
    crop_fraction: float = param(
        0.0,
        "Fraction of the image's shorter side that center_crop keeps, or of its height for "
        "bottom_crop; 0.0 uses the model family's.",
        zero_or=(0.01, 1.0),
    )
    antialias: bool = param(
        False,
        'Whether to average pixels when an image is reduced by more than a factor of 2; false '
        'interpolates bilinearly, as most networks were trained.',
    )
    pad_value: int = param(
        -1,
        "Gray level of the letterbox padding, 0 to 255; -1 uses the model family's.",
        between=(-1, 255),
    )
    channel_order: str = param(
        'auto',
        "Channel order of the network's input; auto uses the model family's.",
        choices=('auto', 'rgb', 'bgr'),
    )
    mean: tuple[float, ...] = param(
        (),
        'Mean subtracted from the scaled pixels, one value per channel; empty uses the model '
        "family's.",
        between=(-LARGEST_FACTOR, LARGEST_FACTOR),
        lengths=(0, 1, 3, 4),
    )
    std: tuple[float, ...] = param(
        (),
        'Standard deviation that the pixels are then divided by, one value per channel; empty '
        "uses the model family's.",
        between=(1 / LARGEST_FACTOR, LARGEST_FACTOR),
        lengths=(0, 1, 3, 4),
    )
    scale: float = param(
        0.0,
        "Factor applied to the pixel values 0 to 255; 0.0 uses the model family's.",
        zero_or=(1 / LARGEST_FACTOR, LARGEST_FACTOR),
    )


#: Options that only apply to images.
PREPROCESSING = tuple(each.name for each in fields(Preprocessing))


@dataclass(frozen=True)
class PipelineOptions(Preprocessing, RunOptions, EngineOptions):
    """
    Inputs and outputs of the network.

    With the options that it inherits, it decides how a network is opened; each is also a node
    parameter and a flag.

    :raises ParameterError: at construction, when a value or a combination is invalid.
    """

    inputs: tuple[str, ...] = param(
        (),
        'Bindings of the network inputs, as in left=image:TOPIC, joints=tensor:TOPIC#TENSOR, '
        'h=state:OUTPUT or k=constant:VALUE; empty for a network of one image.',
    )
    outputs: tuple[str, ...] = param(
        (), 'Names of the network outputs to use, in order; empty uses all.'
    )
    input_size: tuple[int, ...] = param(
        (),
        'Input height and width in pixels of a network with a dynamic input size; empty uses '
        "the model's metadata, else 640 640.",
        between=(1, inf),
        lengths=(0, 2),
    )

    @property
    def is_remote(self) -> bool:
        """Whether an inference server runs the network."""
        return self.model_path.startswith(REMOTE_SCHEMES)

    @property
    def is_bundle(self) -> bool:
        """Whether the model is a bundle of networks."""
        return self.model_path.endswith(BUNDLE_SUFFIXES)

    @property
    def is_cascade(self) -> bool:
        """Whether the model is a bundle of a detector and a network for its objects."""
        from trt_ros.model.leapp import has_regions

        if not self.is_bundle or self.model_path.startswith(FILE_SCHEMES):
            return False
        return has_regions(self.model_path)

    @property
    def has_bindings(self) -> bool:
        """Whether the inputs of the network are bound, by the options or by a bundle."""
        return bool(self.inputs) or (self.is_bundle and not self.is_cascade)

    def __post_init__(self) -> None:
        check_options(self)
        self._check_remote()
        if self.backend == 'onnxruntime' and self.precision not in ('auto', 'fp32'):
            raise ParameterError(
                f'precision is {self.precision!r}, but ONNX Runtime keeps the types of the model.',
                remedy='Leave precision out, or choose backend tensorrt or tensorrt_rtx.',
            )
        if 0 < self.frames_in_flight < self.contexts:
            raise ParameterError(
                f'contexts is {self.contexts}, but frames_in_flight {self.frames_in_flight}.',
                remedy=f'Set frames_in_flight to {self.contexts}, too.',
            )
        if self.resize in ('stretch', 'center_crop', 'bottom_crop') and self.pad_value >= 0:
            raise ParameterError(
                f'pad_value is {self.pad_value}, but resize {self.resize} has no padding.',
                remedy='Leave pad_value out, or choose letterbox.',
            )

    def _check_remote(self) -> None:
        """:raises ParameterError: when model and backend contradict each other."""
        known = (*FILE_SCHEMES, *REMOTE_SCHEMES)
        if re.match(r'\w+://', self.model_path) and not self.model_path.startswith(known):
            raise ParameterError(
                f'model_path {self.model_path} has an unknown scheme.',
                remedy=f'Begin it with one of {", ".join(known)}.',
            )
        if self.is_remote and self.backend not in ('auto', 'triton'):
            raise ParameterError(
                f'model_path is {self.model_path}, but backend is {self.backend}.',
                remedy='Set backend to triton or auto, or model_path to a file.',
            )
        if self.backend == 'triton' and self.model_path and not self.is_remote:
            raise ParameterError(
                f'backend is triton, but model_path is {self.model_path}.',
                remedy='Set model_path to grpc://HOST:8001/NAME, or choose another backend.',
            )


@dataclass(frozen=True)
class RegionOptions:
    """Options of a network that runs on regions of images."""

    regions: bool = param(
        False,
        'Whether to run the network on the objects of `detections`, cut out of the images of the '
        'same stamp, instead of on whole images.',
    )
    max_regions: int = param(
        16,
        'Maximum number of objects per image, highest scores first; they run in one batch if the '
        'network takes batches.',
        between=(1, 1024),
    )
    region_scale: float = param(
        0.0,
        'Factor on width and height of each region; 0.0 uses 1.25 for keypoints but those of '
        'hands, else 1.0.',
        zero_or=(0.01, 100.0),
    )
    region_resize: str = param(
        'auto',
        "Method of fitting a region to the network's input: expand keeps the aspect ratio and "
        'shows more of the image, stretch does not, line pads on the right; auto is stretch for '
        'embeddings, line for text, else expand.',
        choices=('auto', *REGION_RESIZES),
    )


#: Options that have no effect without regions, and without images.
OF_REGIONS = tuple(each.name for each in fields(RegionOptions))
OF_IMAGES = (*(set(PREPROCESSING) - {'decoder', 'strict'}), 'input_size', *OF_REGIONS)


@dataclass(frozen=True)
class LabeledOptions(PipelineOptions):
    """Options of a network with classes."""

    labels: tuple[str, ...] = param(
        (),
        'Class names in index order, or one of ade20k, cityscapes, coco, coco_91, imagenet, voc; '
        'empty reads labels_path.',
    )
    labels_path: str = param(
        '',
        'Path of a text file with one class name per line, or of YAML or JSON with `names`; empty '
        "uses the model's metadata.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels and self.labels_path:
            raise ParameterError(
                'Both labels and labels_path are given.', remedy='Give one of them.'
            )


@dataclass(frozen=True)
class TiledOptions(LabeledOptions):
    """Options of a network that finds objects, maybe small ones in large images."""

    tiles: str = param(
        '',
        'Columns and rows of tiles that each image is cut into, as in 4x2: the network gets them '
        'as one batch, and NMS merges their boxes; empty runs on whole images.',
    )
    tile_overlap: float = param(
        0.2,
        'Fraction of width and height that neighboring tiles share; objects up to this size are '
        'whole in one of them.',
        between=(0.0, 0.9),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tiles:
            if self.tile_overlap != TiledOptions.tile_overlap:
                raise ParameterError(
                    f'tile_overlap is {self.tile_overlap}, but there are no tiles.',
                    remedy='Set tiles, as in 4x2, or leave tile_overlap out.',
                )
            return
        if not 1 < math.prod(self.tile_grid) <= MAX_TILES:
            raise ParameterError(
                f'tiles is {self.tiles!r}, expected 2 to {MAX_TILES} tiles.',
                remedy='Each tile costs as much as an image.',
            )
        if self.has_bindings:
            raise ParameterError(
                f'tiles is {self.tiles!r}, but the inputs of the network are bound.',
                remedy='Leave tiles out, or use a network of one image without inputs.',
            )

    @property
    def tile_grid(self) -> tuple[int, int]:
        """Columns and rows of tiles; 0, 0 without; raises ParameterError if `tiles` is no grid."""
        if not self.tiles:
            return 0, 0
        match = re.fullmatch('([1-9][0-9]?)x([1-9][0-9]?)', self.tiles)
        if match is None:
            raise ParameterError(
                f'tiles is {self.tiles!r}.', remedy='Write columns and rows, as in 4x2.'
            )
        return int(match[1]), int(match[2])


@dataclass(frozen=True)
class MaskOptions:
    """Options of a network of masks."""

    confidence: bool = param(
        False, 'Whether to compute the confidence of each pixel of a mask, 0 to 255.'
    )


@dataclass(frozen=True)
class ModelOptions(RegionOptions, MaskOptions, TiledOptions):
    """All options of a network."""


def changed_options(options: Any, names: Container[str]) -> list[str]:
    """Return those of the names whose values in a dataclass are not the defaults."""
    return [
        each.name
        for each in fields(options)
        if each.name in names and getattr(options, each.name) != each.default
    ]


def ignored(options: PipelineOptions, names: Container[str], ignoring: str) -> tuple[str, ...]:
    """
    Return the line for the log about options without effect; () if there are none.

    They are no errors, since one parameter file serves several machines and networks.
    """
    found = changed_options(options, names)
    return (f'Ignored by {ignoring}: {", ".join(found)}.',) if found else ()


def options_of(
    model: PipelineOptions | str | os.PathLike[str], changes: Mapping[str, Any]
) -> PipelineOptions:
    """Return a model's options with changes by name; raises ParameterError for an unknown one."""
    if not isinstance(model, (PipelineOptions, str, os.PathLike)):
        raise ParameterError(
            f'The model is of type {type(model).__name__}.', remedy='Pass its path, or options.'
        )
    kind = type(model) if isinstance(model, PipelineOptions) else ModelOptions
    refuse_unknown(kind, changes)
    if isinstance(model, PipelineOptions):
        return replace(model, **changes) if changes else model
    return ModelOptions(model_path=os.fspath(model), **changes)
