"""TensorRT's words for why a build failed, turned into a cause and a remedy."""

from __future__ import annotations

from collections.abc import Sequence
import re
from typing import Any

from trt_ros.engine.build.onnx_check import INTEGER_OPS, INTEGER_REMEDY
from trt_ros.errors import ModelError, TrtRosError

_OPERATOR = 'Export without this operator, or use backend {others}.'
# What else may have it, by the library that has not.
_OTHERS = {
    True: 'tensorrt or onnxruntime',
    False: 'onnxruntime; a plugin library that has it goes into plugins',
}
_PROFILE = 'Give a profile that fits: --profile INPUT=MIN:OPT:MAX, each like 1x3x640x640.'
# The first pattern that matches any error, the problem, the remedy. Texts: TensorRT 10.16 to 11.4,
# tensorrt_rtx 1.4 to 1.7. Groups of the pattern go into the problem.
KNOWN: tuple[tuple[str, str, str], ...] = (
    (r'(\S+) has no runners that implement it', 'No kernel can run the layer {0}.', _OPERATOR),
    (rf'({"|".join(INTEGER_OPS)})\b', 'The operator {0} is not supported.', INTEGER_REMEDY),
    (r'Op type (\w+) is not supported', 'The operator {0} is not supported.', _OPERATOR),
    (r'(\w+) plugin creator version', 'The operator {0} is not supported.', _OPERATOR),
    (
        r'Plugin not found',
        'The model needs an operator that only a plugin has.',
        'Name its library in plugins (tensorrt only), or export without it.',
    ),
    (
        r'ParseFromCodedStream',
        'The file is not an ONNX model, or is cut short.',
        'Export or copy it again.',
    ),
    (
        r'Failed to open file|external weights|convertOnnxWeights',
        'The weights kept in another file cannot be read.',
        'Copy that file beside the model, whole.',
    ),
    (
        r'K exceeds the maximum value allowed \((\d+)\)',
        'TopK takes more than {0} values.',
        'Export with a smaller K (detectors: fewer candidates before NMS).',
    ),
    (
        r'Attention operation was not supported',
        'No kernel can run the Attention operator.',
        'Choose precision fp16 or bf16, or export attention as MatMul and Softmax.',
    ),
    (
        r'cudnn_impl\.cpp.*FP8',
        'int8 convolutions cannot be built.',
        'Update to tensorrt_rtx 1.7 or newer, or use fp16 or fp8.',
    ),
    (
        r'(\S+): input has type Int32 but must have type FP8',
        'The quantised bias {0} cannot be read.',
        'Quantise weights and activations only, symmetrically (QuantizeBias=False).',
    ),
    (
        r'[Nn]on-zero zero point is not supported',
        'The model is quantised asymmetrically.',
        'Quantise with symmetric int8: zero points of 0.',
    ),
    (
        r'no optimization profile has been defined|is missing dimensions in profile',
        'A dynamic input has no profile.',
        _PROFILE,
    ),
    (
        r'Dimension mismatch for tensor (\S+) and profile',
        'The profile of {0} does not fit the model.',
        _PROFILE,
    ),
    (
        r'within workspace limit|increase the workspace memory',
        'Nothing can run within the workspace limit.',
        'Raise workspace_mib, or leave it out.',
    ),
    (
        r'HW-specific datatypes: (\w+)',
        'A target GPU cannot compute with {0}.',
        'Drop the older compute capability, or choose another precision.',
    ),
    (
        r'FP32 GEMM is not supported',
        'A target GPU has no float32 matrix product.',
        'Choose precision fp16, or drop compute capability 7.5.',
    ),
    (
        r'generateForCurrent',
        'This GPU cannot be built for: there is none here.',
        'Name compute capabilities, such as 8.6, instead of current.',
    ),
    (
        r'[Oo]ut of memory|OutOfMemory|cudaErrorMemoryAllocation',
        'There is too little memory to build.',
        "Free GPU memory, lower the profile's largest shapes, or leave workspace_mib out.",
    ),
    (
        r'CUDA driver version is insufficient|CUDA initialization failure',
        'The NVIDIA driver does not serve this TensorRT.',
        'Install a newer driver.',
    ),
    (r'must have at least one output', 'The model has no outputs.', 'Export it again.'),
    (
        r'[Tt]ype mismatch|must have the same (data )?type',
        'The model mixes floating point types where that is not allowed.',
        'Choose precision auto, or converter modelopt.',
    ),
)


def error_from_log(errors: Sequence[str], *, doing: str, flavour: object) -> TrtRosError:
    """
    Make an error of what TensorRT said, first cause first.

    :param doing: 'parse' or 'build'.
    """
    for pattern, problem, remedy in KNOWN:
        for text in errors:
            found = re.search(pattern, text)
            if found:
                return ModelError(
                    f'{flavour} cannot {doing} the model. ' + problem.format(*found.groups()),
                    cause=text.strip(),
                    remedy=remedy.format(others=_OTHERS['_rtx' in str(flavour)]),
                )
    return ModelError(
        f'{flavour} cannot {doing} the model.',
        cause='\n'.join(text.strip() for text in errors[:5]) or 'It gave no reason.',
    )


def parser_errors(parser: Any) -> list[str]:
    """Give the parser's complaints, each with the node it is about."""
    texts = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        where = f'{error.node_operator()} {error.node_name()}'.strip()
        texts.append(f'Node {where}: {error.desc()}' if where else str(error.desc()))
    return texts
