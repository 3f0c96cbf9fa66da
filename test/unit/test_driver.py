"""How CUDA is told to count GPUs, before it is initialized."""

import os
import subprocess
import sys

import pytest

CALLS = {
    'the driver by ctypes': 'from trt_ros.driver import nvidia_driver; nvidia_driver()',
    'cuda-python': 'from trt_ros.cuda.calls import runtime; runtime()',
}


@pytest.mark.slow
@pytest.mark.parametrize('call', CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    'given, wanted', [(None, 'PCI_BUS_ID'), ('FASTEST_FIRST', 'FASTEST_FIRST')]
)
def test_gpu_order_is_that_of_nvidia_smi_by_default(call, given, wanted):
    environment = {
        name: value for name, value in os.environ.items() if name != 'CUDA_DEVICE_ORDER'
    }
    if given:
        environment['CUDA_DEVICE_ORDER'] = given
    # What libcuda reads: the C library's environment, at its initialization.
    script = f"""
import ctypes
{call}
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(getenv(b'CUDA_DEVICE_ORDER').decode())
"""
    done = subprocess.run(
        [sys.executable, '-c', script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [wanted]
