"""Reading and validation of ONNX files before TensorRT parses them; needs no TensorRT."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from trt_ros.engine.builder.model_file import check_model_file
from trt_ros.engine.builder.onnx_nodes import (
    constants,
    live_tensors,
    nodes,
    shape_of,
    tensors,
    title,
)
from trt_ros.engine.key import total_nbytes
from trt_ros.errors import ModelError
from trt_ros.tensors import TensorSpec

LARGEST_NBYTES = 2**31 - 2**20  # Size limit of a protobuf message.
FLOATS = {'FLOAT': 'float32', 'FLOAT16': 'float16', 'BFLOAT16': 'bfloat16', 'DOUBLE': 'float64'}
INT64_SENTINELS = {-(2**63), 2**63 - 1}  # 'To the end' in Slice; every parser clamps them.
_WITHOUT_NMS = 'Export the model without NMS, which trt_ros runs after the network, or use '
#: Operators of onnxruntime's dynamic quantization and of its QOperator format.
INTEGER_OPS = (
    'ConvInteger',
    'MatMulInteger',
    'QLinearConv',
    'QLinearMatMul',
    'DynamicQuantizeLinear',
)
INTEGER_REMEDY = (
    'Quantize the float model statically in Q/DQ format, symmetrically (onnxruntime.quantization: '
    'quantize_static with quant_format=QuantFormat.QDQ), which TensorRT builds; or use backend '
    'onnxruntime.'
)
LARGEST_TOPK = 3840
TOPK_REMEDY = 'Export the model with a smaller K (detectors: fewer candidates before NMS).'
# Operator -> remedy. No release of tensorrt_rtx from 1.4 to 1.7 builds these operators, although
# its parser accepts some.
NOT_IN_RTX = {
    'NonMaxSuppression': _WITHOUT_NMS + 'backend onnxruntime.',
    'EfficientNMS_TRT': _WITHOUT_NMS + 'backend tensorrt.',
    **dict.fromkeys(
        ('BatchedNMS_TRT', 'BatchedNMSDynamic_TRT'),
        _WITHOUT_NMS + 'TensorRT 10, the last release that has this operator.',
    ),
    'TRTBatchedNMS': _WITHOUT_NMS + "backend tensorrt with MMDeploy's library in plugins.",
    **dict.fromkeys(INTEGER_OPS, INTEGER_REMEDY),
    **dict.fromkeys(
        ('NonZero', 'Compress', 'Unique'),
        'Run it by a node or trt-ros infer, which split it before this operator, export it '
        'without, or use backend tensorrt or onnxruntime.',
    ),
    **dict.fromkeys(
        (
            *('DeformConv', 'Col2Im', 'MaxUnpool', 'AffineGrid'),
            *('DFT', 'BitShift', 'BitwiseAnd', 'BitwiseOr', 'BitwiseXor', 'BitwiseNot', 'Det'),
            *('CenterCropPad', 'TfIdfVectorizer', 'StringNormalizer', 'StringConcat'),
            'StringSplit',
        ),
        'Export the model without this operator, or use backend tensorrt or onnxruntime.',
    ),
}


@dataclass(frozen=True)
class OnnxInfo:
    """
    Contents of an ONNX file.

    :param inputs: inputs that are not weights; dimensions -1 if dynamic.
    :param outputs: outputs; dimensions -1 if dynamic.
    :param metadata: the file's metadata.
    :param opset: version of the default operator set.
    :param producer: name and version of the exporter.
    :param ops: number of nodes per operator, including subgraphs.
    :param float_types: NumPy names of the floating-point types of weights, inputs and outputs.
    :param warnings: possible problems, one line each.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: dict[str, str]
    opset: int
    producer: str
    ops: dict[str, int]
    float_types: tuple[str, ...]
    warnings: tuple[str, ...]


def read_onnx(path: Path) -> tuple[Any, OnnxInfo]:
    """Load and validate an ONNX file without its external data, or raise ModelError."""
    model = _parse(path)
    _check_text(path, model)
    _check_tensors(path, model)
    warnings = _check_by_onnx(path)
    inputs = _inputs(path, model)
    outputs = _outputs(path, model)
    if not inputs or not outputs:
        raise ModelError(
            f'The model {path} has no {"outputs" if inputs else "inputs"}.',
            remedy='Export it again with named inputs and outputs.',
        )
    newest, opset = onnx.defs.onnx_opset_version(), opset_of(model)
    if opset > newest:
        warnings += (f'opset {opset} is newer than {newest}, the last one that onnx knows',)
    data_type = onnx.TensorProto.DataType
    kinds = {data_type.Name(tensor.data_type) for tensor in tensors(model.graph)}
    floats = {FLOATS[kind] for kind in kinds & set(FLOATS)} | {
        spec.dtype for spec in (*inputs, *outputs) if spec.dtype in FLOATS.values()
    }
    return model, OnnxInfo(
        inputs,
        outputs,
        metadata_of(model),
        opset,
        f'{model.producer_name} {model.producer_version}'.strip(),
        dict(sorted(Counter(node.op_type for node in nodes(model.graph)).items())),
        tuple(sorted(floats)),
        (*warnings, *_large_integers(path, model)),
    )


def opset_of(model: Any) -> int:
    """Return the version of the default operator set of a ModelProto."""
    return max(
        (one.version for one in model.opset_import if one.domain in ('', 'ai.onnx')), default=1
    )


def read_network(
    path: Path,
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], dict[str, str]]:
    """Return inputs, outputs and metadata of a model, also untrusted; or raise ModelError."""
    model = _parse(path)
    return _inputs(path, model), _outputs(path, model), metadata_of(model)


def refuse_beyond_protobuf(path: Path, doing: str, remedy: str) -> None:
    """Raise ModelError, about `doing`, unless a model fits into one protobuf message."""
    nbytes = total_nbytes(path)
    if nbytes > LARGEST_NBYTES:
        raise ModelError(
            f'{path} is too large to {doing}: {nbytes / 2**30:.1f} GiB.',
            cause='A protobuf message is limited to 2 GiB.',
            remedy=remedy,
        )


def _parse(path: Path) -> Any:
    check_model_file(path)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # Each version of protobuf has its own exception class.
        raise ModelError(
            f'{path} is not an ONNX model or is truncated.',
            cause=str(error),
            remedy='Export or copy it again, and compare its size with the original.',
        ) from error
    if not model.graph.node and not model.graph.output:
        raise ModelError(
            f'{path} contains no network.',
            remedy='Export or copy it again, and compare its size with the original.',
        )
    return model


def _inputs(path: Path, model: Any) -> tuple[TensorSpec, ...]:
    weights = {tensor.name for tensor in model.graph.initializer}
    return tuple(
        _spec(value, 'input', path) for value in model.graph.input if value.name not in weights
    )


def _outputs(path: Path, model: Any) -> tuple[TensorSpec, ...]:
    return tuple(_spec(value, 'output', path) for value in model.graph.output)


def metadata_of(model: Any) -> dict[str, str]:
    """Return the metadata of a ModelProto."""
    return {entry.key: entry.value for entry in model.metadata_props}


def refuse_unbuildable(path: Path, model: Any) -> None:
    """
    Check that a model has no operators that tensorrt_rtx parses but fails to build, minutes later.

    Operators on constants are allowed, since tensorrt_rtx folds them.

    :raises ModelError: naming the first unsupported node.
    """
    live = live_tensors(model.graph)
    values = constants(model.graph)
    for node in model.graph.node:
        operator, remedy = node.op_type, NOT_IN_RTX.get(node.op_type, '')
        if node.op_type == 'TopK' and node.input[1] in values:
            count = int(numpy_helper.to_array(values[node.input[1]]).item())
            operator, remedy = f'TopK of {count} values', TOPK_REMEDY * (count > LARGEST_TOPK)
        if remedy and live.intersection(node.input):
            raise ModelError(
                f'tensorrt_rtx does not support the operator {operator} '
                f'(node {title(node)} of {path}).',
                remedy=remedy,
            )


def _check_text(path: Path, model: Any) -> None:
    """Check that names and metadata are UTF-8; protobuf returns others as bytes."""
    values = [value for entry in model.metadata_props for value in (entry.key, entry.value)]
    values += [model.producer_name, model.producer_version]
    values += [value.name for value in (*model.graph.input, *model.graph.output)]
    values += [tensor.name for tensor in tensors(model.graph)]
    values += [node.op_type for node in nodes(model.graph)]
    if not all(isinstance(value, str) for value in values):
        raise ModelError(
            f'Names or metadata of {path} are not UTF-8.', remedy='Export or copy the model again.'
        )


def _check_tensors(path: Path, model: Any) -> None:
    """
    Check types, sizes and data files.

    ONNX's functions raise arbitrary exceptions for invalid ones, and a file that is too short
    kills TensorRT's parser with SIGBUS.
    """
    for tensor in tensors(model.graph):
        cause = _damage(tensor)
        if cause:
            raise _damaged(path, tensor, cause)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            cause = _lack_of_data(path, tensor)
            if cause:
                raise ModelError(
                    f'The external data of the weights {tensor.name} of {path} is not available.',
                    cause=cause,
                    remedy='Copy the complete data file to the folder of the model, or export it '
                    'again.',
                )


def _damaged(path: Path, tensor: Any, cause: str) -> ModelError:
    return ModelError(
        f'The tensor {tensor.name or "of a constant"} of {path} is damaged.',
        cause=cause,
        remedy='Export or copy the model again.',
    )


def _damage(tensor: Any) -> str:
    """Return what is wrong with type or size of a tensor, '' if nothing is."""
    if tensor.data_type not in onnx.TensorProto.DataType.values()[1:]:
        return f'Its type {tensor.data_type} is unknown to ONNX {onnx.__version__}.'
    if min(tensor.dims, default=0) < 0:
        return f'Its shape is {list(tensor.dims)}.'
    found = len(tensor.raw_data) if tensor.HasField('raw_data') else None
    if found not in (None, needed := _nbytes(tensor)):
        return f'It has {found} bytes; its shape and type require {needed}.'
    return ''


def _lack_of_data(path: Path, tensor: Any) -> str:
    """Return why the external data of a tensor cannot be read, '' if it can."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = Path(entries.get('location', ''))
    if not location.name or location.is_absolute() or '..' in location.parts:
        return f'{str(location)[:300]!r} is not a relative path inside the folder of the model.'
    file = path.parent / location
    if not os.path.isfile(file):  # Path.is_file raises for some invalid names.
        return f'The file {str(file)[:300]} does not exist.'
    needed, existing = _nbytes(tensor), file.stat().st_size
    try:
        begin, nbytes = int(entries.get('offset', 0)), int(entries.get('length', 0)) or needed
    except ValueError as error:
        return str(error)
    if 0 <= nbytes < needed:
        shape = list(tensor.dims)
        return f'Too short: {nbytes} bytes are declared; the shape {shape} requires {needed}.'
    if begin < 0 or nbytes < 0 or begin + nbytes > existing:
        return f'{file} has {existing} bytes; {begin + nbytes} are required.'
    return ''


def _nbytes(tensor: Any) -> int:
    count: int = math.prod(tensor.dims)
    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    if kind in ('INT4', 'UINT4', 'FLOAT4E2M1', 'INT2', 'UINT2'):
        per_byte = 4 if kind.endswith('2') else 2
        return -(-count // per_byte)
    itemsize = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    return count * int(itemsize)


def _check_by_onnx(path: Path) -> tuple[str, ...]:
    try:
        # With a path it also checks external data and supports models above 2 GB.
        onnx.checker.check_model(str(path))
    except Exception as error:
        text = str(error).strip()
        if 'No Op registered for' in text:
            return (f'Unknown ONNX operator: {text.splitlines()[0]}',)  # Of a plugin
        raise ModelError(
            f'{path} is not valid ONNX.',
            cause=text,
            remedy='Run `pip install -U onnx`, or export the model with a lower opset.'
            if 'version' in text
            else 'Export the model again.',
        ) from error
    return ()


def _spec(value: Any, mode: Any, path: Path) -> TensorSpec:
    if not value.type.HasField('tensor_type'):
        raise ModelError(
            f'The {mode} {value.name} of {path} is not a tensor.',
            remedy='Export the model with tensors as inputs and outputs.',
        )
    number = value.type.tensor_type.elem_type
    if number not in onnx.TensorProto.DataType.values():
        raise ModelError(
            f'The {mode} {value.name} of {path} has the unknown type {number}.',
            remedy='Export or copy the model again, or run `pip install -U onnx`.',
        )
    kind = onnx.TensorProto.DataType.Name(number)
    if kind in ('STRING', 'UNDEFINED', 'COMPLEX64', 'COMPLEX128'):
        raise ModelError(
            f'The {mode} {value.name} of {path} has the unsupported type {kind}.',
            cause='TensorRT supports real numbers and booleans only.',
            remedy='Remove this part from the model.',
        )
    shape = tuple(size if size > 0 else -1 for size in shape_of(value) or ())
    return TensorSpec(value.name, shape, FLOATS.get(kind, kind.lower()), mode)


def _large_integers(path: Path, model: Any) -> Iterator[str]:
    limit = np.iinfo(np.int32)
    for tensor in tensors(model.graph):
        if (
            tensor.data_type == onnx.TensorProto.INT64
            and tensor.data_location != onnx.TensorProto.EXTERNAL
        ):
            try:
                values = onnx.numpy_helper.to_array(tensor)
            except ValueError as error:
                raise _damaged(path, tensor, str(error)) from error
            beyond = [
                int(value)
                for value in values[(values < limit.min) | (values > limit.max)]
                if int(value) not in INT64_SENTINELS
            ]
            if beyond:
                yield (
                    f'{tensor.name or "a constant"} contains {beyond[0]}, outside INT32: '
                    'TensorRT clamps such values if they are shapes or indices.'
                )
