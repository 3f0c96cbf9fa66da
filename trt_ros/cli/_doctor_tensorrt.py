"""Checks of `trt-ros doctor` for TensorRT: installation, GPUs of the machine, DLA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from trt_ros.cli._doctor_gpu import Finding, dla_cores

if TYPE_CHECKING:
    from trt_ros.trt import Library

Capability = tuple[int, int]


def tensorrt_findings(root: Path) -> Iterator[Finding]:
    """
    Check both TensorRT libraries.

    :param root: root folder of the system.
    """
    for name in ('tensorrt', 'tensorrt_rtx'):
        yield _library(name, root)


def _library(name: str, root: Path) -> Finding:
    from trt_ros.driver import nvidia_driver
    from trt_ros.engine.key import cuda_package
    from trt_ros.errors import BackendError
    from trt_ros.trt import INSTALL, installed, load_trt

    if not installed(name):
        return (name == 'tensorrt' and _from_apt(root)) or Finding(
            name, 'missing', 'not installed', INSTALL[name]
        )
    try:
        library = load_trt(name)
    except BackendError as error:
        return Finding(name, 'problem', f'{error.problem} {error.cause}', error.remedy)
    wheel, newest = cuda_package(library), nvidia_driver().cuda_version
    gpus = nvidia_driver().gpus
    if gpus and wheel and newest[0] < int(wheel[2:]):
        return Finding(
            name,
            'problem',
            f'{library.version_text} needs CUDA {wheel[2:]}, the driver '
            f'supports up to {newest[0]}.{newest[1]}',
            'install a newer NVIDIA driver',
        )
    for gpu in gpus:
        refusal = refused_capability(library, gpu.compute_capability)
        if refusal:
            return Finding(
                name,
                'problem',
                f'{library.version_text} does not support GPU {gpu.index}: {refusal[0]}',
                refusal[1],
            )
    can = []
    if library.builds_without_gpu or gpus:
        can.append('builds engines')
    can.append('runs engines' if gpus else 'cannot run them without a GPU')
    return Finding(
        name,
        'ok',
        f'{library.version_text} {_origin(library)}: {", ".join(can)}{_dla(library, root)}',
    )


def refused_capability(library: Library, capability: Capability) -> tuple[str, str] | None:
    """
    Return why a TensorRT cannot use a GPU, and a remedy; None if it can.

    Sources: release notes of TensorRT 10.5, the support matrices of NVIDIA, and for tensorrt_rtx
    1.7 its message on a GPU of compute capability 9.0. Earlier releases ran there.
    """
    text = f'compute capability {capability[0]}.{capability[1]}'
    if not library.is_rtx:
        lowest = (7, 0) if library.version < (10, 5) else (7, 5)
        if capability < lowest:
            return f'{text} is below {lowest[0]}.{lowest[1]}', 'use backend onnxruntime'
        return None
    if capability < (7, 5):
        return f'{text} is below 7.5', 'use backend onnxruntime'
    listed = ((7, 5), (8, 0), (8, 6), (8, 9))
    if library.version >= (1, 7) and capability not in listed and capability < (12, 0):
        return (
            f'{text} is not one of 7.5, 8.0, 8.6, 8.9, 12.0 or newer',
            'install tensorrt_rtx 1.5 (standalone/requirements/gpu.txt), or tensorrt',
        )
    return None


def _origin(library: Library) -> str:
    """Return whether the bindings are those of the system or of pip."""
    origin = Path(str(library.trt.__file__))
    return (
        'from apt' if 'dist-packages' in origin.parts and '/usr/lib' in str(origin) else 'from pip'
    )


def _from_apt(root: Path) -> Finding | None:
    """Find an installation of the system that this Python does not see."""
    bindings = sorted(root.glob('usr/lib/python3*/dist-packages/tensorrt/__init__.py'))
    if bindings:
        version = bindings[-1].parents[2].name
        seen_by = '/usr/bin/python3' if version == 'python3' else f'/usr/bin/{version}'
        return Finding(
            'tensorrt',
            'missing',
            f'installed from apt for {seen_by}, but {sys.executable} does not see it',
            f'use {seen_by}, or a virtual environment of it with --system-site-packages',
        )
    if any(root.glob('usr/lib/*-linux-gnu/libnvinfer.so.*')):
        return Finding(
            'tensorrt',
            'missing',
            'its libraries are installed from apt, its Python bindings are not',
            'sudo apt install python3-libnvinfer',
        )
    return None


def _dla(library: Library, root: Path) -> str:
    """
    Return what a release can do with the DLA cores of the board, '' without any.

    Source: NVIDIA, "Working with DLA" of TensorRT 11.4.1.
    """
    if not dla_cores(root):
        return ''
    if library.is_rtx or (10, 8) <= library.version < (11, 4, 1):
        return '; does not support DLA (10.3 to 10.7 do, and 11.4.1 with JetPack 7.2.2)'
    return '; supports DLA'
