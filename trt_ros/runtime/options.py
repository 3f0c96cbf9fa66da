"""What a pipeline is asked to be; imports nothing heavy, so that --help is instant."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from trt_ros.errors import ParameterError

# Named here once more because their own modules import NumPy; a test holds them equal.
BACKENDS = ('auto', 'tensorrt', 'tensorrt_rtx', 'onnxruntime')
PRECISIONS = ('auto', 'fp32', 'tf32', 'fp16', 'bf16')
#: What only images are taken through.
PREPROCESSING = (
    'decoder',
    'resize',
    'crop_fraction',
    'antialias',
    'pad_value',
    'channel_order',
    'mean',
    'std',
    'scale',
)
#: Of pixels, and its inverse the smallest: float32 holds all that comes of them.
LARGEST_FACTOR = 1e6
RESIZES = ('letterbox', 'letterbox_topleft', 'stretch', 'center_crop')


def option(
    default: Any,
    description: str,
    *,
    choices: tuple[str, ...] = (),
    between: tuple[float, float] | None = None,
    or_zero: bool = False,
) -> Any:
    """A field of options: what it does, and what it may be; `between` includes both ends."""
    return field(
        default=default,
        metadata={
            'description': description,
            'choices': choices,
            'between': between,
            'or_zero': or_zero,
        },
    )


@dataclass(frozen=True)
class PipelineOptions:
    """
    All that decides what is opened; each field is a node parameter and a flag of the same name.

    :raises ParameterError: at construction, when a value or a combination makes no sense.
    """

    model_path: str = option('', 'ONNX file of the network, or a TensorRT engine of it.')
    backend: str = option(
        'auto', 'What runs the network; auto takes the best this machine has.', choices=BACKENDS
    )
    precision: str = option(
        'auto',
        "Arithmetic of a TensorRT engine; auto: the model's own, TF32 allowed.",
        choices=PRECISIONS,
    )
    dla_core: int = option(
        -1,
        'Deep learning accelerator (Jetson) that an engine is built for, with the GPU for '
        'what it cannot do; -1: none. Backend tensorrt only.',
        between=(-1, 7),
    )
    device: int = option(
        0,
        'CUDA device index, in PCI bus order as in nvidia-smi; counts only the GPUs of '
        'CUDA_VISIBLE_DEVICES where that is set.',
        between=(0, 63),
    )
    engine_cache_dir: str = option(
        '', 'Where built engines are kept; empty: $XDG_CACHE_HOME/trt_ros, ~/.cache/trt_ros.'
    )
    engine_in_memory: bool = option(
        False, 'Where that cannot be written, build in memory at each start instead of failing.'
    )
    gpu_wait: str = option(
        'spin',
        'How to wait for the GPU: spin has the lowest latency; block is 0.1 to 0.4 ms '
        'later, and frees the CPU core meanwhile.',
        choices=('spin', 'block'),
    )
    gpu_timeout: float = option(
        10.0,
        'Seconds after which a GPU that does not answer counts as failed; 0.0: never.',
        between=(0.001, 3600.0),
        or_zero=True,
    )
    stream_priority: int = option(
        0, "Of this node's work among all on the GPU; negative goes first.", between=(-10, 0)
    )
    unified_memory: str = option(
        'auto',
        'Whether kernels read images in pinned memory in place; auto: where the GPU has '
        'no memory of its own (Jetson).',
        choices=('auto', 'on', 'off'),
    )
    cpu_threads: int = option(
        0,
        'Threads that ONNX Runtime runs the network with; 0: as few as are about as fast as '
        'all CPUs, measured at configure. Backend onnxruntime only.',
        between=(0, 1024),
    )
    decoder: str = option(
        'auto', 'How the outputs are read (a model family); auto tells by their shapes.'
    )
    resize: str = option(
        'auto',
        "How the image is fitted to the network's input; auto: as the family wants it.",
        choices=('auto', *RESIZES),
    )
    crop_fraction: float = option(
        0.0,
        "With center_crop, what the network sees of the image's shorter side; 0.0: the family's.",
        between=(0.01, 1.0),
        or_zero=True,
    )
    antialias: bool = option(
        False,
        'Average what an image is shrunk by, where that is more than 2; else sample it '
        'bilinearly, as most networks were trained.',
    )
    pad_value: int = option(
        -1, "Grey (0 to 255) around a letterboxed image; -1: the family's.", between=(-1, 255)
    )
    channel_order: str = option(
        'auto',
        "Order of colours the network wants; auto: the family's.",
        choices=('auto', 'rgb', 'bgr'),
    )
    mean: tuple[float, ...] = option(
        (), "Subtracted from the scaled pixels, one a channel; empty: the family's."
    )
    std: tuple[float, ...] = option(
        (), "What is then divided by, one a channel; empty: the family's."
    )
    scale: float = option(
        0.0,
        "Factor on the pixels' 0 to 255; 0.0: the family's.",
        between=(1 / LARGEST_FACTOR, LARGEST_FACTOR),
        or_zero=True,
    )
    input_size: tuple[int, ...] = option(
        (),
        "Height and width for a network that leaves them open; empty: its metadata's, "
        'else 640 640.',
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            choices, value = each.metadata['choices'], getattr(self, each.name)
            if choices and value not in choices:
                raise ParameterError(
                    f'{each.name} is {value!r}.', remedy=f'Choose one of {", ".join(choices)}.'
                )
            low, high = each.metadata['between'] or (value, value)
            or_zero = each.metadata['or_zero']
            if not (low <= value <= high or (or_zero and value == 0)):
                raise ParameterError(
                    f'{each.name} is {value}.',
                    remedy=f'Give {"0.0, or " if or_zero else ""}{low} to {high}.',
                )
        for name, low in (('mean', -LARGEST_FACTOR), ('std', 1 / LARGEST_FACTOR)):
            values = getattr(self, name)
            if len(values) not in (0, 3):
                raise ParameterError(
                    f'{name} is {list(values)}.',
                    remedy='Give three numbers, one a channel, or none.',
                )
            if not all(low <= value <= LARGEST_FACTOR for value in values):
                raise ParameterError(
                    f'{name} is {list(values)}.',
                    remedy=f'Give numbers from {low} to {LARGEST_FACTOR}.',
                )
        if len(self.input_size) not in (0, 2) or any(size < 1 for size in self.input_size):
            raise ParameterError(
                f'input_size is {list(self.input_size)}.',
                remedy='Give height and width in pixels, or nothing.',
            )
        if self.backend == 'onnxruntime' and self.precision not in ('auto', 'fp32'):
            raise ParameterError(
                f'precision is {self.precision!r}, but ONNX Runtime on the CPU has its own.',
                remedy='Leave precision out, or choose backend tensorrt or tensorrt_rtx.',
            )
        if self.resize in ('stretch', 'center_crop') and self.pad_value >= 0:
            raise ParameterError(
                f'pad_value is given, but with resize {self.resize} there is no padding.',
                remedy='Leave pad_value out, or choose letterbox.',
            )


@dataclass(frozen=True)
class LabelledOptions(PipelineOptions):
    """Those of a network that knows classes."""

    labels: tuple[str, ...] = option((), 'Class names by index; empty: labels_path.')
    labels_path: str = option(
        '', "File with a class name a line; empty: the model's own metadata."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels and self.labels_path:
            raise ParameterError(
                'Both labels and labels_path are given.', remedy='Give one of them.'
            )
