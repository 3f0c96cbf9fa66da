"""Time of a network compared with the peak rates of the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_ros.engine.builder.onnx_work import ModelWork
from trt_ros.engine.options import BuildOptions

if TYPE_CHECKING:
    from trt_ros.runtime.gpu.measure import Peaks
    from trt_ros.runtime.gpu.pipeline import GpuPipeline


def products_of(model: Mapping[str, Any], options: BuildOptions, *, is_rtx: bool) -> str:
    """
    Return the type of the products of a network, or '' if they have several.

    :param model: description of the ONNX file, see describe_model.
    """
    if 'DequantizeLinear' in model['ops'] or options.fp32:
        return ''
    if options.precision == 'auto':
        kept = {('float16',): 'fp16', ('bfloat16',): 'bf16', ('float32',): 'tf32'}
        return kept.get(tuple(model['float_types']), '')
    # TensorRT for RTX uses TF32 in fp32, too.
    return 'tf32' if is_rtx and options.precision == 'fp32' else options.precision


class Roofline(NamedTuple):
    """Work of a network and the peaks that apply to it."""

    work: ModelWork
    products: str
    peaks: Peaks

    @classmethod
    def of(cls, path: Path, options: BuildOptions, pipeline: GpuPipeline) -> Roofline | None:
        """
        Return the roofline of an open network; None where something is not known.

        :param path: its ONNX file or engine; the work of an engine is not known.
        """
        from trt_ros.cli.inspect import describe_model
        from trt_ros.errors import TrtRosError
        from trt_ros.runtime.gpu.measure import peaks_of

        try:
            model = describe_model(path, batch=pipeline.max_batch)
        except TrtRosError:  # The network runs: only its description fails.
            return None
        is_rtx = pipeline.shared.contexts.engine.library.is_rtx
        products = products_of(model, options, is_rtx=is_rtx) if model.get('work') else ''
        peaks = peaks_of(pipeline.gpu, products) if products else None
        return cls(ModelWork(**model['work']), products, peaks) if peaks else None

    def line(self, seconds: float) -> str:
        """
        Return the rate of the network and its fractions of the peaks.

        :param seconds: time of the network alone.
        """
        rate = self.work.flop / seconds
        nbytes = self.work.elements * (2 if self.products in ('fp16', 'bf16') else 4)
        return (
            f'roofline: {self.work.flop / 1e9:.3g} GFLOP per run, {rate / 1e12:.3g} TFLOP/s: '
            f'{100 * rate / self.peaks.flop:.0f} % of the {self.products} peak '
            f'({self.peaks.flop / 1e12:.3g} TFLOP/s), '
            f'{100 * nbytes / seconds / self.peaks.nbytes:.0f} % of the memory bandwidth '
            f'({self.peaks.nbytes / 1e12:.3g} TB/s)'
        )
