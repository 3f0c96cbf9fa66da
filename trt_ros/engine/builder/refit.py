"""Weights of a changed model in an engine that was built before, instead of a build."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from trt_ros.engine.builder.onnx_nodes import used
from trt_ros.trt import Library

#: Operators that TensorRT refits, and those of which the parser keeps the operands as weights.
_WEIGHTED = {'Conv', 'ConvTranspose', 'Gemm', 'MatMul', 'Add', 'Sub', 'Mul', 'Div'}
_FLOATS = {1, 10, 11, 16}  # TensorProto: FLOAT, FLOAT16, DOUBLE, BFLOAT16.


class Structure(NamedTuple):
    """SHA-256 of a network without its weights, and the names of these."""

    digest: str
    weights: frozenset[str]


def structure(model: Any) -> Structure:
    """Return the structure of a ModelProto; other constants are a part of it."""
    graph = model.graph
    operands: set[str] = set()
    others = {output.name for output in graph.output}
    for node in graph.node:
        (operands if node.op_type in _WEIGHTED else others).update(used(node))
    weights, parts = [], [*graph.node, *graph.input, *graph.output, *graph.sparse_initializer]
    digest = sha256()
    for tensor in graph.initializer:
        if tensor.name in operands - others and tensor.data_type in _FLOATS:
            weights.append(tensor.name)
            digest.update(repr((tensor.name, [*tensor.dims], tensor.data_type)).encode())
        else:
            parts.append(tensor)
    for part in (*parts, *model.functions, *model.opset_import):
        digest.update(sha256(part.SerializeToString(deterministic=True)).digest())
    return Structure(digest.hexdigest(), frozenset(weights))


def refitted(
    library: Library,
    base: Mapping[str, str] | None,
    own: Structure | None,
    onnx: Path,
    model: bytes | None,
) -> Any | None:
    """
    Return the plan of an engine that was built before, with the weights of a model.

    :param base: `path` and `structure` of the engine.
    :param own: structure of the model.
    :param model: the model instead of the file, whose folder has its external data.
    :returns: None if they differ in more than weights, or TensorRT cannot replace them.
    """
    if own is None or base is None or base['structure'] != own.digest:
        return None
    trt, log = library.trt, library.log
    runtime = library.new_runtime()
    with log.collect():
        engine = runtime.deserialize_cuda_engine(Path(base['path']).read_bytes())
        if engine is None or not engine.refittable:
            return None
        refitter = trt.Refitter(engine, log)
        if not own.weights <= {*refitter.get_all_weights()}:  # One is a part of a folded constant.
            return None
        parser = trt.OnnxParserRefitter(refitter, log)
        is_read = (
            parser.refit_from_file(str(onnx))
            if model is None
            else parser.refit_from_bytes(model, str(onnx))
        )
        if not (is_read and refitter.refit_cuda_engine()):
            return None
        config = engine.create_serialization_config()
        flag = library.member('SerializationFlag', 'INCLUDE_REFIT')
        if flag is not None:  # Earlier releases always include it.
            config.set_flag(flag)
        return engine.serialize_with_config(config)
