"""Options of a quantization."""

from dataclasses import dataclass

from trt_ros.errors import ParameterError
from trt_ros.parameter_field import check_options, param
from trt_ros.vision.thresholds import Thresholds

#: Methods by tool and format, the default first.
METHODS: dict[str, dict[str, tuple[str, ...]]] = {
    '': {'int8': ('mse', 'max', 'percentile'), 'fp8': ('max', 'mse', 'percentile')},
    'modelopt': {
        'int8': ('entropy', 'max'),
        'fp8': ('max',),
        'int4': ('awq_clip', 'awq_lite', 'rtn_dq'),
    },
}
#: Why a format cannot be written, by tool: cause and remedy.
REFUSED = {
    ('', 'int4'): ('Only nvidia-modelopt rounds weights to int4.', 'Add --tool modelopt.'),
    **dict.fromkeys(
        [('', 'nvfp4'), ('modelopt', 'nvfp4')],
        (
            'nvidia-modelopt writes NVFP4 from PyTorch, on a GPU, not from an ONNX file.',
            'Quantize the PyTorch model with modelopt.torch.quantization and export it: its types '
            'are kept, see docs/quantization.md.',
        ),
    ),
}


@dataclass(frozen=True)
class QuantOptions:
    """Options of a quantization, each also a flag; ParameterError for invalid combinations."""

    to: str = param(
        'int8',
        'Format of the quantized layers; of int4, only the weights.',
        choices=('int8', 'fp8', 'int4', 'nvfp4'),
    )
    method: str = param(
        '',
        'Choice of the ranges; default: mse for int8, max for fp8, awq_clip for int4.',
        choices=('', 'max', 'mse', 'entropy', 'percentile', *METHODS['modelopt']['int4']),
    )
    tool: str = param(
        '',
        'Quantize with nvidia-modelopt, which must be installed; it has methods of its own.',
        choices=('', 'modelopt'),
    )
    keep: tuple[str, ...] = param(
        (),
        'Layers that stay in float: names of nodes or their outputs, or operators, also patterns '
        "such as '/head/*'.",
    )
    max_drop: float = param(
        0.01, 'Largest drop of the agreement of results with the original.', between=(0.0, 1.0)
    )
    score_threshold: float = param(
        Thresholds.score, 'Minimum score of compared boxes.', between=(0.0, 1.0)
    )
    engine: bool = param(True, 'Neither compare nor measure the engine on the GPU.')

    def __post_init__(self) -> None:
        check_options(self)
        if (self.tool, self.to) in REFUSED:
            cause, remedy = REFUSED[self.tool, self.to]
            raise ParameterError(f'{self.to} cannot be written.', cause=cause, remedy=remedy)
        methods = METHODS[self.tool][self.to]
        if self.method and self.method not in methods:
            raise ParameterError(
                f'The method {self.method} cannot be used for {self.to}'
                + (f' with {self.tool}.' if self.tool else '.'),
                remedy=f'Choose one of {", ".join(methods)}.',
            )

    @property
    def chosen_method(self) -> str:
        """The method, or the default of the format and the tool."""
        return self.method or METHODS[self.tool][self.to][0]
