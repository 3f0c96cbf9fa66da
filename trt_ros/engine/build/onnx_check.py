"""What an ONNX file holds, and whether TensorRT may be let near it. Needs no TensorRT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
import math
from pathlib import Path
from typing import Any

from trt_ros.errors import ModelError, printable
from trt_ros.regular_file import open_regular
from trt_ros.tensors import TensorSpec

LARGEST_NBYTES = 2**31 - 2**20  # A protobuf cannot be longer.
LFS_POINTER = b'version https://git-lfs.github.com/spec/'
FLOATS = {'FLOAT': 'float32', 'FLOAT16': 'float16', 'BFLOAT16': 'bfloat16', 'DOUBLE': 'float64'}
INT64_SENTINELS = {-(2**63), 2**63 - 1}  # "To the end" in Slice; every parser clamps them.
_WITHOUT_NMS = 'Export the model without NMS, which trt_ros does itself after the network; or use '
#: What onnxruntime's dynamic quantisation and its QOperator format write.
INTEGER_OPS = (
    'ConvInteger',
    'MatMulInteger',
    'QLinearConv',
    'QLinearMatMul',
    'DynamicQuantizeLinear',
)
INTEGER_REMEDY = (
    'Quantise the float model statically in Q/DQ format, symmetrically (onnxruntime.quantization: '
    'quantize_static with quant_format=QuantFormat.QDQ), which TensorRT builds; or use backend '
    'onnxruntime.'
)
# What no release of tensorrt_rtx from 1.4 to 1.7 could build, although its parser takes some.
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
        (
            'NonZero',
            'DeformConv',
            'Compress',
            'Unique',
            'Col2Im',
            'MaxUnpool',
            'AffineGrid',
            'DFT',
            'BitShift',
            'BitwiseAnd',
            'BitwiseOr',
            'BitwiseXor',
            'BitwiseNot',
            'Det',
            'CenterCropPad',
            'TfIdfVectorizer',
            'StringNormalizer',
            'StringConcat',
            'StringSplit',
        ),
        'Export without this operator, or use backend tensorrt or onnxruntime.',
    ),
}


@dataclass(frozen=True)
class OnnxInfo:
    """
    :param inputs: without those that are weights; dimensions -1 where dynamic.
    :param ops: how often each operator occurs, subgraphs included.
    :param float_types: NumPy names of the floats that weights, inputs and outputs have.
    :param warnings: what may go wrong, one line each.
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
    """
    Load and check an ONNX file; its external data stays on disk.

    :returns: the ModelProto and what it holds.
    :raises ModelError: when it is missing, damaged, empty, or not valid ONNX.
    """
    import onnx

    model = _parse(path)
    _check_text(path, model)
    _check_tensors(path, model)
    _check_external_data(path, model)
    warnings = _check_by_onnx(path, model)
    inputs = _inputs(path, model)
    outputs = tuple(_spec(value, 'output', path) for value in model.graph.output)
    if not inputs or not outputs:
        raise ModelError(
            f'{path} has no {"outputs" if inputs else "inputs"}.',
            remedy='Export it again with named inputs and outputs.',
        )
    data_type = onnx.TensorProto.DataType
    kinds = {data_type.Name(tensor.data_type) for tensor in tensors(model.graph)}
    floats = {FLOATS[kind] for kind in kinds & set(FLOATS)} | {
        spec.dtype for spec in (*inputs, *outputs) if spec.dtype in FLOATS.values()
    }
    return model, OnnxInfo(
        inputs,
        outputs,
        metadata_of(model),
        max(
            (one.version for one in model.opset_import if one.domain in ('', 'ai.onnx')), default=1
        ),
        f'{model.producer_name} {model.producer_version}'.strip(),
        dict(sorted(Counter(node.op_type for node in nodes(model.graph)).items())),
        tuple(sorted(floats)),
        (*warnings, *_large_integers(model)),
    )


def read_inputs(path: Path) -> tuple[TensorSpec, ...]:
    """
    Read what a model's inputs look like. Nothing else of it is looked at, so that it is harmless.

    :raises ModelError: when it is missing, damaged, or has no such inputs.
    """
    return _inputs(path, _parse(path))


def _parse(path: Path) -> Any:
    import onnx

    check_model_file(path)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf has an exception class a version
        raise ModelError(
            f'{path} is not an ONNX model, or is cut short.',
            cause=str(error),
            remedy='Export or copy it again, and compare its size with the original.',
        ) from error
    if not model.graph.node and not model.graph.output:
        raise ModelError(
            f'{path} holds no network.', remedy='Export or copy it again, and compare its size.'
        )
    return model


def _inputs(path: Path, model: Any) -> tuple[TensorSpec, ...]:
    weights = {tensor.name for tensor in model.graph.initializer}
    return tuple(
        _spec(value, 'input', path) for value in model.graph.input if value.name not in weights
    )


def metadata_of(model: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def refuse_unbuildable(path: Path, model: Any) -> None:
    """
    Refuse what tensorrt_rtx parses and then fails on, minutes later and in its own words.

    Operators on constants alone are left to its folding.

    :raises ModelError: naming the first node that cannot be built.
    """
    live = live_tensors(model.graph)
    for node in model.graph.node:
        if node.op_type in NOT_IN_RTX and live.intersection(node.input):
            raise ModelError(
                f'tensorrt_rtx cannot build {node.op_type} '
                f'(node {node.name or node.output[0]} of {path}).',
                remedy=NOT_IN_RTX[node.op_type],
            )


def live_tensors(graph: Any) -> set[str]:
    """Name what depends on the inputs' values, not only on their shapes."""
    live = {value.name for value in graph.input} - {one.name for one in graph.initializer}
    for node in graph.node:
        if node.op_type not in ('Shape', 'Size') and live.intersection(used(node)):
            live.update(node.output)
    return live


def used(node: Any) -> Iterable[str]:
    """Give every tensor that a node reads, from inside its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (value.name for value in graph.output)
            for inner in graph.node:
                yield from used(inner)


def nodes(graph: Any) -> Iterator[Any]:
    """Give every node, those of subgraphs too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from nodes(inner)


def tensors(graph: Any) -> Iterator[Any]:
    """Give every constant tensor: weights, and those in attributes, subgraphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField('t'):
                yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                yield from tensors(inner)


def check_model_file(path: Path) -> None:
    """
    Check that a path may be a model's: a regular file, not empty, no pointer of git-lfs.

    :raises ModelError: when it is not.
    """
    if printable(str(path)) != str(path):
        raise ModelError(
            f'The name of the model file {path} is not UTF-8.',
            cause='ONNX Runtime and TensorRT take no other names.',
            remedy='Rename the file or its folder.',
        )
    try:
        with open_regular(path) as file:
            head = file.read(len(LFS_POINTER))
    except FileNotFoundError as error:
        where = '' if path.is_absolute() else f'Looked in {Path.cwd()}.'
        raise ModelError(
            f'There is no model file {path}.', cause=where, remedy='Check the path of the model.'
        ) from error
    except OSError as error:
        raise ModelError(
            f'Cannot read the model file {path}.',
            cause=error.strerror or '',
            remedy='Give the path of a readable .onnx file.',
        ) from error
    if head == LFS_POINTER:
        raise ModelError(
            f'{path} holds a git-LFS pointer, not the model.',
            cause='The repository was cloned without git-lfs.',
            remedy='Run `git lfs install && git lfs pull` in its repository.',
        )
    if not head:
        raise ModelError(f'{path} is empty.', remedy='Export or download it again.')


def _check_text(path: Path, model: Any) -> None:
    """Check names and metadata, which protobuf returns as bytes where they are not UTF-8."""
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
    """Check types and sizes, on which ONNX's own functions raise whatever comes to hand."""
    import onnx

    for tensor in tensors(model.graph):
        problem = f'The tensor {tensor.name or "of a constant"} of {path} is damaged.'
        remedy = 'Export or copy the model again.'
        if tensor.data_type not in onnx.TensorProto.DataType.values()[1:]:
            raise ModelError(
                problem,
                cause=f'Its type is {tensor.data_type}, which ONNX '
                f'{onnx.__version__} does not know.',
                remedy=remedy,
            )
        if min(tensor.dims, default=0) < 0:
            raise ModelError(problem, cause=f'Its shape is {list(tensor.dims)}.', remedy=remedy)
        if tensor.HasField('raw_data') and len(tensor.raw_data) != _nbytes(tensor):
            raise ModelError(
                problem,
                cause=f'It has {len(tensor.raw_data)} bytes, its shape and type need '
                f'{_nbytes(tensor)}.',
                remedy=remedy,
            )


def _check_external_data(path: Path, model: Any) -> None:
    """A data file shorter than declared kills the parser (SIGBUS), so sizes come first."""
    import onnx

    for tensor in tensors(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = Path(entries.get('location', ''))
        problem = f'The weights {tensor.name} of {path} are not where it says.'
        if not location.name or location.is_absolute() or '..' in location.parts:
            raise ModelError(
                problem,
                cause=f'{str(location)!r} is no file beside the model.',
                remedy='Export the model again.',
            )
        file = path.parent / location
        if not file.is_file():
            raise ModelError(
                problem,
                cause=f'There is no file {file}.',
                remedy='Copy the data file beside the model.',
            )
        try:
            begin, needed = int(entries.get('offset', 0)), _nbytes(tensor)
            nbytes = int(entries.get('length', 0)) or needed
        except (ValueError, KeyError) as error:  # KeyError: a type that NumPy does not have.
            raise ModelError(problem, cause=str(error), remedy='Export it again.') from error
        if 0 <= nbytes < needed:
            raise ModelError(
                f'The weights {tensor.name} of {path} are too short.',
                cause=f'{nbytes} bytes are declared, its shape {list(tensor.dims)} needs '
                f'{needed}.',
                remedy='Export the model again.',
            )
        if begin < 0 or nbytes < 0 or begin + nbytes > file.stat().st_size:
            raise ModelError(
                problem,
                cause=f'{file} has {file.stat().st_size} bytes, {begin + nbytes} are needed.',
                remedy='Copy the data file again, whole.',
            )


def _nbytes(tensor: Any) -> int:
    import numpy as np
    import onnx

    count: int = math.prod(tensor.dims)
    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    if kind in ('INT4', 'UINT4', 'FLOAT4E2M1', 'INT2', 'UINT2'):
        per_byte = 4 if kind.endswith('2') else 2
        return -(-count // per_byte)
    itemsize = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    return count * int(itemsize)


def _check_by_onnx(path: Path, model: Any) -> tuple[str, ...]:
    import onnx

    try:
        # By path it also follows external data, and takes models above 2 GB.
        onnx.checker.check_model(str(path))
    except Exception as error:
        text = str(error).strip()
        if 'No Op registered for' in text:
            return (f'ONNX does not know an operator: {text.splitlines()[0]}',)  # A plugin's
        raise ModelError(
            f'{path} is not valid ONNX.',
            cause=text,
            remedy='Update with `pip install -U onnx`, or export again with a lower opset.'
            if 'version' in text
            else 'Export it again.',
        ) from error
    return ()


def _spec(value: Any, mode: Any, path: Path) -> TensorSpec:
    import onnx

    if not value.type.HasField('tensor_type'):
        raise ModelError(
            f'The {mode} {value.name} of {path} is no tensor.',
            remedy='Export with tensors as inputs and outputs.',
        )
    number = value.type.tensor_type.elem_type
    if number not in onnx.TensorProto.DataType.values():
        raise ModelError(
            f'The {mode} {value.name} of {path} is of the unknown type {number}.',
            remedy='Export or copy the model again, or `pip install -U onnx`.',
        )
    kind = onnx.TensorProto.DataType.Name(number)
    if kind in ('STRING', 'UNDEFINED', 'COMPLEX64', 'COMPLEX128'):
        raise ModelError(
            f'The {mode} {value.name} of {path} is of type {kind}.',
            cause='TensorRT computes with numbers and booleans only.',
            remedy='Cut this part out of the model.',
        )
    shape = tuple(
        size.dim_value if size.HasField('dim_value') and size.dim_value > 0 else -1
        for size in value.type.tensor_type.shape.dim
    )
    return TensorSpec(value.name, shape, FLOATS.get(kind, kind.lower()), mode)


def _large_integers(model: Any) -> Iterator[str]:
    import numpy as np
    import onnx

    limit = np.iinfo(np.int32)
    for tensor in tensors(model.graph):
        if (
            tensor.data_type == onnx.TensorProto.INT64
            and tensor.data_location != onnx.TensorProto.EXTERNAL
        ):
            try:
                values = onnx.numpy_helper.to_array(tensor)
            except ValueError as error:
                raise ModelError(
                    f'The tensor {tensor.name or "of a constant"} is damaged.',
                    cause=str(error),
                    remedy='Export or copy the model again.',
                ) from error
            beyond = [
                int(value)
                for value in values[(values < limit.min) | (values > limit.max)]
                if int(value) not in INT64_SENTINELS
            ]
            if beyond:
                yield (
                    f'{tensor.name or "a constant"} holds {beyond[0]}, outside INT32: '
                    'TensorRT clamps such values where they become shapes or indices.'
                )
