"""How CUDA is told to count GPUs, before it is initialized."""

import pytest

from support.scripts import run_script

CALLS = {
    'the driver by ctypes': 'from trt_ros.driver import nvidia_driver; nvidia_driver()',
    'cuda-python': 'from trt_ros.cuda.calls import runtime; runtime()',
}


@pytest.mark.slow
@pytest.mark.parametrize('call', CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    'given, wanted', [(None, 'PCI_BUS_ID'), ('FASTEST_FIRST', 'FASTEST_FIRST')]
)
def test_gpu_order_is_that_of_nvidia_smi_by_default(monkeypatch, call, given, wanted):
    monkeypatch.delenv('CUDA_DEVICE_ORDER', raising=False)
    if given:
        monkeypatch.setenv('CUDA_DEVICE_ORDER', given)
    # What libcuda reads: the C library's environment, at its initialization.
    script = f"""
import ctypes
{call}
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(getenv(b'CUDA_DEVICE_ORDER').decode())
"""
    assert run_script(script).stdout.split() == [wanted]
