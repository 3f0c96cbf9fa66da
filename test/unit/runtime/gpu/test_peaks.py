"""Peak rates of GPUs, compared with the data sheets."""

from types import SimpleNamespace

import pytest

import trt_ros.cuda.device as device
from trt_ros.cuda.device import Gpu
from trt_ros.runtime.gpu.measure import peaks_of


@pytest.fixture
def gpu(monkeypatch):
    """Return a function that makes a GPU: its architecture, clocks in MHz and bus in bits."""

    def make(arch, count, clock, memory_clock, bus, name='NVIDIA RTX', *, is_integrated=False):
        properties = SimpleNamespace(
            clock_rate=1000 * clock,
            memory_clock_rate=1000 * memory_clock,
            global_memory_bus_width=bus,
        )
        fake = SimpleNamespace(Device=lambda index: SimpleNamespace(properties=properties))
        monkeypatch.setattr(device, 'core', lambda: fake)
        return Gpu(0, name, arch, is_integrated, count, '0000:01:00.0', context=None)

    return make


A100 = ('sm_80', 108, 1410, 1215, 5120)
H100 = ('sm_90', 132, 1830, 2619, 5120)
A40 = ('sm_86', 84, 1740, 7251, 384)
RTX_4090 = ('sm_89', 128, 2520, 10501, 384, 'NVIDIA GeForce RTX 4090')
RTX_5090 = ('sm_120', 170, 2407, 14001, 512, 'NVIDIA GeForce RTX 5090')


@pytest.mark.parametrize(
    ('card', 'products', 'tera'),  # TFLOP/s of the data sheets, dense.
    [
        (A100, 'fp16', 312),
        (A100, 'bf16', 312),
        (A100, 'tf32', 156),
        (A100, 'fp32', 19.5),
        (H100, 'fp16', 989),
        (H100, 'tf32', 495),
        (A40, 'bf16', 150),
        (A40, 'tf32', 74.8),
        (A40, 'fp32', 37.4),
        (RTX_4090, 'fp16', 330),
        (RTX_4090, 'bf16', 165),
        (RTX_4090, 'tf32', 82.6),
        (RTX_4090, 'fp32', 82.6),
        (RTX_5090, 'fp16', 419),
        (RTX_5090, 'bf16', 209.5),
        (RTX_5090, 'tf32', 104.8),
    ],
)
def test_peaks_are_those_of_the_data_sheets(gpu, card, products, tera):
    assert peaks_of(gpu(*card), products).flop == pytest.approx(1e12 * tera, rel=5e-3)


@pytest.mark.parametrize(
    ('card', 'giga'), [(A100, 1555), (H100, 3352), (A40, 696), (RTX_4090, 1008), (RTX_5090, 1792)]
)
def test_bandwidths_are_those_of_the_data_sheets(gpu, card, giga):
    assert peaks_of(gpu(*card), 'fp16').nbytes == pytest.approx(1e9 * giga, rel=5e-3)


@pytest.mark.parametrize(
    ('card', 'is_integrated'),
    [
        (('sm_61', 20, 1700, 5000, 256), False),  # No such row.
        (('sm_100', 148, 1965, 3996, 8192), False),
        (('sm_90', 132, 0, 2619, 5120), False),
        (('sm_90', 132, 1830, 0, 5120), False),
        (('sm_87', 16, 1300, 1300, 256), True),
        (('sm_90', 132, 1830, 2619, 5120), True),
    ],
)
def test_other_gpus_have_no_peaks(gpu, card, is_integrated):
    assert peaks_of(gpu(*card, is_integrated=is_integrated), 'fp16') is None
