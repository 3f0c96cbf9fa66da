"""Simplification of networks by onnxslim, if ONNX Runtime computes the same results."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trt_ros.engine.builder.onnx_check import LARGEST_NBYTES, nodes
from trt_ros.engine.key import total_nbytes
from trt_ros.errors import requires
from trt_ros.tensors import TensorSpec

#: Largest difference of an output, as part of its largest value: operators are fused.
MAX_DIFFERENCE = 1e-3
QUANTIZED = ('QuantizeLinear', 'DequantizeLinear')

Shape = Sequence[int]


def simplify(
    path: Path, model: Any, inputs: Sequence[TensorSpec], shapes: Mapping[str, Shape]
) -> tuple[Any | None, str]:
    """
    Simplify a network: constants are folded, operators without effect removed, others fused.

    :param path: path of the model, whose folder has its external data.
    :param model: the network, which is left unchanged.
    :param shapes: a shape without dynamic dimensions for each input, to compare the results.
    :returns: the simplified network, or None if the original has to be used; and a line for the
        log with the number of operators, or the reason.
    :raises ParameterError: if onnxslim or ONNX Runtime is not installed.
    """
    remedy = 'Run `pip install onnxslim onnxruntime`, or remove simplify.'
    with requires('onnxslim and onnxruntime', 'simplify', remedy):
        import onnxruntime  # noqa: F401
        from onnxslim import slim
    if total_nbytes(path) > LARGEST_NBYTES:
        return None, 'not simplified: the model is larger than 2 GiB'
    original = _loaded(path, model)
    try:
        simplified = slim(_loaded(path, model))
    except Exception as error:  # Whatever onnxslim raises: the original is still there.
        return None, f'not simplified: onnxslim failed with {type(error).__name__}: {error}'
    reason = _difference(original, simplified, inputs, shapes)
    if reason:
        return None, f'not simplified: {reason}'
    before, after = (sum(1 for _ in nodes(each.graph)) for each in (original, simplified))
    return simplified, f'simplified: {before} to {after} operators, with equal results'


def _loaded(path: Path, model: Any) -> Any:
    """Return a copy of a network that contains its weights."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.load_external_data_for_model(copy, str(path.parent))
    return copy


def _difference(
    original: Any, simplified: Any, inputs: Sequence[TensorSpec], shapes: Mapping[str, Shape]
) -> str:
    """Return how the simplified network differs from the original; '' if it does not."""
    for name in ('input', 'output'):
        one, other = (
            [(value.name, value.type.tensor_type.elem_type) for value in getattr(each.graph, name)]
            for each in (original, simplified)
        )
        if one != other:
            return f'its {name}s change'
    one_count, other_count = (
        Counter(node.op_type for node in nodes(each.graph) if node.op_type in QUANTIZED)
        for each in (original, simplified)
    )
    if one_count != other_count:
        return 'its quantized operators (Q/DQ) change'
    try:
        runs = [_run(each, inputs, shapes) for each in (original, simplified)]
    except Exception as error:  # ONNX Runtime has no common class of errors.
        return f'ONNX Runtime cannot compare the results: {error}'
    for value, wanted, output in zip(runs[1], runs[0], original.graph.output):
        if not _equal(value, wanted):
            return f'the output {output.name} differs from that of the original'
    return ''


def _run(model: Any, inputs: Sequence[TensorSpec], shapes: Mapping[str, Shape]) -> list[Any]:
    """Return the outputs for random inputs, the same on each call."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=['CPUExecutionProvider']
    )
    rng = np.random.default_rng(0)
    found: list[Any] = session.run(
        None, {spec.name: _random(rng, spec.dtype, shapes[spec.name]) for spec in inputs}
    )
    return found


def _random(rng: np.random.Generator, dtype: str, shape: Shape) -> np.ndarray:
    """Return values from 0 to 1; integers are 0 and 1, which also serve as indices and masks."""
    if dtype.startswith('float'):
        return rng.random(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def _equal(value: np.ndarray, wanted: np.ndarray) -> bool:
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        return False
    if wanted.dtype.kind != 'f' or not wanted.size:
        return np.array_equal(value, wanted)
    finite = wanted[np.isfinite(wanted)]
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    return np.allclose(value, wanted, rtol=0.0, atol=MAX_DIFFERENCE * scale, equal_nan=True)
