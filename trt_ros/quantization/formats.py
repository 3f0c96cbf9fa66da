"""Number formats of quantized tensors: int8 and fp8 (E4M3)."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class QuantFormat:
    """
    A symmetric format: values are multiples of a scale, and zero is zero.

    :param largest: largest value before scaling.
    :param onnx_type: name of the type in ONNX.
    """

    name: str
    largest: float
    onnx_type: str

    def scales(self, amax: np.ndarray) -> np.ndarray:
        """
        Return the float32 scale per largest absolute value; 1 / `largest` for zeros.

        Scales are rounded up to 8 bits, which float16 (from 7.6e-6 on) and bfloat16 represent
        exactly, so that lowering the layers to fp16 or bf16 changes no scale.
        """
        scales = np.asarray(np.where(amax > 0, amax, 1.0) / self.largest, np.float32)
        bits = scales.view(np.uint32)
        return np.asarray((bits + 0xFFFF & 0xFFFF0000).astype(np.uint32).view(np.float32))

    def round(self, values: np.ndarray) -> np.ndarray:
        """Round values in units of the scale to the nearest ones of the format, ties to even."""
        clipped = np.clip(values, -self.largest, self.largest)
        if self.name == 'int8':
            return np.asarray(np.rint(clipped))
        step = np.exp2(_exponents(clipped) - 3)
        return np.asarray(np.rint(clipped / step) * step)

    def simulate(self, values: np.ndarray, amax: float | np.ndarray) -> np.ndarray:
        """Return the values after quantizing with a range of -amax to amax and dequantizing."""
        scale = self.scales(np.asarray(amax))
        return np.asarray(self.round(values / scale) * scale)

    def encode(self, values: np.ndarray) -> bytes:
        """Return the bytes of rounded values, in units of the scale."""
        if self.name == 'int8':
            return values.astype(np.int8).tobytes()
        # Sign, 4 bits of exponent with a bias of 7, 3 bits of mantissa; subnormal below 2^-6.
        exponent = _exponents(values)
        mantissa = np.rint(np.abs(values) / np.exp2(exponent - 3)).astype(np.int64)
        bits = np.where(
            mantissa >= 8, (exponent.astype(np.int64) + 7 << 3) + mantissa - 8, mantissa
        )
        encoded: np.ndarray = bits | np.where(np.signbit(values), 0x80, 0)
        return encoded.astype(np.uint8).tobytes()


def _exponents(values: np.ndarray) -> np.ndarray:
    """Return floor(log2(|values|)), at least -6, that of the smallest normal E4M3."""
    return np.asarray(np.maximum(np.frexp(values)[1] - 1.0, -6.0))


INT8 = QuantFormat('int8', 127.0, 'INT8')
FP8 = QuantFormat('fp8', 448.0, 'FLOAT8E4M3FN')
FORMATS = {each.name: each for each in (INT8, FP8)}
