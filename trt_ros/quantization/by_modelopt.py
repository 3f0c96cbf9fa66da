"""Quantization by NVIDIA's nvidia-modelopt, which places its own Q/DQ nodes."""

from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
import re
import sys
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from trt_ros.engine.builder.onnx_nodes import HEAVY, title
from trt_ros.errors import BackendError, ModelError, TrtRosError, requires
from trt_ros.tensors import Arrays


def quantize_by_modelopt(
    model: Any, to: str, method: str, left_out: Iterable[str], inputs: Iterator[Arrays]
) -> Any:
    """Return a quantized copy of a ModelProto but for `left_out`, by node or output names."""
    remedy = (
        "Run `pip install 'nvidia-modelopt[onnx]'` in an environment of its own, or quantize "
        'without --tool.'
    )
    with requires('nvidia-modelopt', '--tool modelopt', remedy, BackendError):
        from modelopt.onnx.quantization import quantize  # type: ignore[import-not-found]
    named = onnx.ModelProto()
    named.CopyFrom(model)
    for node in named.graph.node:
        node.name = title(node)
    with TemporaryDirectory(prefix='trt_ros') as folder:
        source, target = Path(folder) / 'model.onnx', Path(folder) / 'quantized.onnx'
        onnx.save(named, str(source))
        try:
            with redirect_stdout(sys.stderr):  # Of the calibration.
                quantize(
                    str(source),
                    quantize_mode=to,
                    calibration_method=method,
                    calibration_data_reader=_Reader(inputs),
                    calibration_eps=['cpu'],
                    nodes_to_exclude=[f'{re.escape(name)}$' for name in left_out],
                    high_precision_dtype='fp32',
                    output_path=str(target),
                    log_level='ERROR',
                )
        except TrtRosError:  # Of the inputs.
            raise
        except Exception as error:  # Its own failures have all types.
            raise ModelError(
                'nvidia-modelopt cannot quantize the model.',
                cause=f'{type(error).__name__}: {error}',
                remedy='Quantize without --tool.',
            ) from error
        found = onnx.load(str(target))
    del found.metadata_props[:]
    found.metadata_props.extend(model.metadata_props)
    return found


def quantized_layers(model: Any) -> set[str]:
    """Return the layers of a Q/DQ model that read quantized weights, by name as above."""
    dequantized = {
        node.output[0] for node in model.graph.node if node.op_type == 'DequantizeLinear'
    }
    return {
        title(node)
        for node in model.graph.node
        if node.op_type in HEAVY and dequantized.intersection(node.input[1:2])
    }


class _Reader:
    def __init__(self, inputs: Iterator[Arrays]) -> None:
        self._inputs, self._first = inputs, next(inputs, None)
        self._is_first = True

    def __iter__(self) -> Iterator[Arrays]:
        return iter(self.get_next, None)

    def get_first(self) -> Arrays | None:
        return self._first

    def get_next(self) -> Arrays | None:
        if self._is_first:
            self._is_first = False
            return self._first
        return next(self._inputs, None)
