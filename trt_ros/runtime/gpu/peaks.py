"""Peak rates of GPUs: arithmetic and memory."""

from __future__ import annotations

from typing import NamedTuple

from trt_ros.cuda.device import Gpu

#: Operations per clock and multiprocessor in dense products of (float16, TF32, float32 without
#: tensor cores), by compute capability. Source: NVIDIA's data sheets and whitepapers; for example,
#: A100: 312, 156 and 19.5 TFLOP/s with 108 multiprocessors at 1.41 GHz; A40: 150, 75 and 37 with
#: 84 at 1.74; L4: 121 and 60 with 58 at 2.04; H100 SXM: 989, 495 and 67 with 132 at 1.83 to 1.98;
#: RTX 5090: 419, 105 (see FLOAT32_SUMS) and 105 with 170 at 2.41. The drivers of integrated GPUs
#: report no memory bandwidth, so that these are missing.
FLOP_PER_CLOCK = {
    'sm_80': (2048, 1024, 128),
    'sm_86': (1024, 512, 256),
    'sm_89': (1024, 512, 256),
    'sm_90': (4096, 2048, 256),
    'sm_120': (1024, 512, 256),
}
#: Products that are added up in float32, which GeForce cards do at half the rate of others.
FLOAT32_SUMS = ('bf16', 'tf32')
COLUMN = {'fp16': 0, 'bf16': 0, 'tf32': 1, 'fp32': 2}


class Peaks(NamedTuple):
    """Peak rates of a GPU for one type of products, in 1/s."""

    flop: float
    nbytes: float


def peaks_of(gpu: Gpu, products: str) -> Peaks | None:
    """
    Return the peaks of a GPU, or None if one is not known.

    :param products: 'fp16', 'bf16', 'tf32' or 'fp32' (without tensor cores).
    """
    if gpu.arch not in FLOP_PER_CLOCK or gpu.is_integrated:
        return None
    per_clock: float = FLOP_PER_CLOCK[gpu.arch][COLUMN[products]]
    if products in FLOAT32_SUMS and 'GeForce' in gpu.name:
        per_clock /= 2
    clock, nbytes = gpu.rates()
    return Peaks(per_clock * gpu.multiprocessors * clock, nbytes) if clock and nbytes else None
