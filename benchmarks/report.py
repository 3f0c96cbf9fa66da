"""Percentiles and the description of the machine in the output of benchmarks."""

import os
from pathlib import Path
import platform

import numpy as np


def percentiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {'p50': float('nan'), 'p99': float('nan'), 'count': 0}
    return {
        'p50': float(np.percentile(values, 50)),
        'p99': float(np.percentile(values, 99)),
        'count': len(values),
    }


def machine() -> dict[str, str]:
    lines = Path('/proc/cpuinfo').read_text().splitlines()
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return {
        'cpu': names[0] if names else platform.machine(),
        'cores': str(len(os.sched_getaffinity(0))),
        'python': platform.python_version(),
        'numpy': np.__version__,
        'load': f'{os.getloadavg()[0]:.1f}',
    }
