"""Conversion of TensorRT's error messages to errors with cause and remedy."""

from collections.abc import Sequence
import re
from typing import Any

from trt_ros.engine.builder.onnx_check import INTEGER_OPS, INTEGER_REMEDY, TOPK_REMEDY
from trt_ros.errors import ModelError, TrtRosError, printable
from trt_ros.trt import OUT_OF_MEMORY

_OPERATOR = 'Export the model without this operator, or use backend {others}.'
# Backends that may support an operator, by whether tensorrt_rtx lacks it.
_OTHERS = {
    True: 'tensorrt or onnxruntime. An operator of your own needs a plugin of tensorrt (--plugin)',
    False: 'onnxruntime, or add a plugin library that implements it to plugins',
}
_PROFILE = 'Pass a valid profile: --profile INPUT=MIN:OPT:MAX, each like 1x3x640x640.'
# Pattern, problem, remedy; the first pattern that matches any message counts. Its groups are
# inserted into the problem. Messages: TensorRT 10.16 to 11.4, tensorrt_rtx 1.4 to 1.7.
KNOWN: tuple[tuple[str, str, str], ...] = (
    (r'(\S+) has no runners that implement it', 'No kernel supports the layer {0}.', _OPERATOR),
    (rf'({"|".join(INTEGER_OPS)})\b', 'The operator {0} is not supported.', INTEGER_REMEDY),
    (r'Op type (\w+) is not supported', 'The operator {0} is not supported.', _OPERATOR),
    (r'(\w+) plugin creator version', 'The operator {0} is not supported.', _OPERATOR),
    (
        r'Plugin not found',
        'The model has an operator that needs a plugin.',
        'Add its library to plugins (tensorrt only), or export the model without it.',
    ),
    (
        r'ParseFromCodedStream',
        'The file is not an ONNX model or is truncated.',
        'Export or copy it again.',
    ),
    (
        r'Failed to open file|external weights',
        'The external data file of the weights cannot be read.',
        'Copy the complete data file to the folder of the model.',
    ),
    (
        r'convertOnnxWeights\(.*Failed to import initializer: (\S+)',
        'The type of the constant {0} is not supported.',
        'Export it in a floating-point type, or quantized to int8, int4 or fp8 (E4M3).',
    ),
    (
        r'Input tensor (\S+) has static dimensions that don.*dimensions are \[(?:0|[^]]*,0)\b',
        'The input {0} has a dimension of 0.',
        'Export it with another size, or with a name in place of the size.',
    ),
    (
        r'K exceeds the maximum value allowed \((\d+)\)',
        'TopK is limited to {0} values.',
        TOPK_REMEDY,
    ),
    (
        r'Attention operation was not supported',
        'No kernel supports the Attention operator.',
        'Set precision to fp16 or bf16, or export attention as MatMul and Softmax.',
    ),
    (
        r'(\S+): input has type Int32 but must have type FP8',
        'The quantized bias {0} is not supported.',
        'Quantize weights and activations only, symmetrically (QuantizeBias=False).',
    ),
    (
        r'[Nn]on-zero zero point is not supported',
        'The model is quantized asymmetrically.',
        'Quantize it symmetrically, with zero points of 0.',
    ),
    (
        r'unsupported input type of UINT8|[Ss]cale coefficients must all be positive',
        'The scales or the type of a quantized tensor are not supported.',
        'Quantize it to int8, with scales above 0 and zero points of 0.',
    ),
    (
        r'no optimization profile has been defined|is missing dimensions in profile',
        'A dynamic input has no profile.',
        _PROFILE,
    ),
    (
        r'Dimension mismatch for tensor (\S+) and profile',
        'The profile of {0} does not match the model.',
        _PROFILE,
    ),
    (
        r'within workspace limit|increase the workspace memory',
        'No kernel runs within the workspace limit.',
        'Increase or remove workspace_mib.',
    ),
    (
        r'HW-specific datatypes: (\w+)',
        'A target GPU does not support {0}.',
        'Remove the older compute capability, set another precision, or use the original of a '
        'quantized model.',
    ),
    (
        r'FP32 GEMM is not supported',
        'A target GPU does not support float32 matrix products.',
        'Set precision to fp16, or remove compute capability 7.5.',
    ),
    (
        r'generateForCurrent',
        'Compute capability current needs a GPU, and this machine has none.',
        'Set compute_capabilities to numbers such as 8.6.',
    ),
    (
        OUT_OF_MEMORY.pattern,
        'The build ran out of memory.',
        "Free GPU memory, reduce the profile's largest shapes, or remove workspace_mib.",
    ),
    (
        r'CUDA driver version is insufficient|CUDA initialization failure',
        'The NVIDIA driver is too old for this TensorRT.',
        'Install a newer driver.',
    ),
    (r'must have at least one output', 'The model has no outputs.', 'Export it again.'),
    (
        r'[Tt]ype mismatch|must have the same (data )?type',
        'The model mixes floating-point types where they must be equal.',
        'Set precision to auto, or convert the file with nvidia-modelopt before.',
    ),
)


def error_from_log(errors: Sequence[str], *, doing: str, library: object) -> TrtRosError:
    """Return the error for TensorRT's error messages in order, when doing 'parse' or 'build'."""
    for pattern, problem, remedy in KNOWN:
        for text in errors:
            found = re.search(pattern, text)
            if found:
                return ModelError(
                    f'{library} cannot {doing} the model. ' + problem.format(*found.groups()),
                    cause=text.strip(),
                    remedy=remedy.format(others=_OTHERS['_rtx' in str(library)]),
                )
    return ModelError(
        f'{library} cannot {doing} the model.',
        cause='\n'.join(text.strip() for text in errors[:5]) or 'TensorRT logged no reason.',
        remedy='Read the log of `trt-ros build --verbose`, or use backend onnxruntime.',
    )


def parser_errors(parser: Any) -> list[str]:
    """Return the error messages of an OnnxParser, each with its node."""
    texts = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        where = f'{error.node_operator()} {error.node_name()}'.strip()
        text = f'Node {where}: {error.desc()}' if where else str(error.desc())
        texts.append(printable(text, lines=True))  # KNOWN takes quadratic time for long words.
    return texts
