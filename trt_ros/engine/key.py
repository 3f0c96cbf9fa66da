"""Cache keys of engines, and the description of the build machine for their sidecars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
import hashlib
from importlib.metadata import PackageNotFoundError, version
import json
import mmap
import os
from pathlib import Path
import platform
import re
import stat
import subprocess
from typing import Any

from trt_ros.driver import GpuInfo, nvidia_driver
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ModelError, ParameterError
from trt_ros.regular_file import open_regular, reading, sha256_of_file
from trt_ros.trt import Library

SCHEMA = 5  # Increase it when the same key would denote a different engine.
# Protobuf encoding of the key 'location', which precedes the name of a data file.
_LOCATION = re.compile(rb'\x0a\x08location\x12')
_PACKAGES = ('trt_ros', 'numpy', 'onnx', 'ml_dtypes')


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file with its hashes; `external`: (name, sha256) of its external data files."""

    path: Path
    sha256: str
    nbytes: int
    external: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> OnnxFile:
        """Hash a model and its external data without loading them, or raise ModelError."""
        with reading(f'The model {path}', 'Check the path of the model.'):
            return cls(
                path,
                sha256_of_file(path),
                path.stat().st_size,
                tuple((name, sha256_of_file(path.parent / name)) for name in external_names(path)),
            )

    def description(self) -> dict[str, Any]:
        """Return what a sidecar says of the file an engine was built from."""
        return {
            'name': self.path.name,
            'path': str(self.path.absolute()),
            'sha256': self.sha256,
            'nbytes': self.nbytes,
            'external': self.external,
        }


def external_names(path: Path) -> list[str]:
    """
    Return the names of a model's external data files that exist.

    :raises ModelError: if one is a link to a file outside the folder of the model, or another user
        than the model's owner can change it.

    Scans the bytes without parsing them, since a model may have gigabytes. Weights that match by
    chance are harmless: they do not name a file.
    """
    found = sorted(
        {name for name in external_locations(path) if os.path.isfile(path.parent / name)}
    )  # Path.is_file raises for long names.
    for name in found:
        _check_external(path, name)
    return found


def external_locations(path: Path) -> Iterator[str]:
    """Yield what may be names of a model's external data files, in or below its folder."""
    if path.stat().st_size == 0:
        return
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _LOCATION.finditer(data):
            begin, length, shift = match.end(), 0, 0
            while begin < len(data) and shift < 28:  # A varint
                length |= (data[begin] & 0x7F) << shift
                begin, shift = begin + 1, shift + 7
                if not data[begin - 1] & 0x80:
                    break
            name = data[begin : begin + min(length, 4096)].decode(errors='ignore')
            if name and '\0' not in name and '..' not in Path(name).parts:
                yield name


def _check_external(path: Path, name: str) -> None:
    # Models of a download cache are links, too: to one folder with all of their files.
    folders = {Path(os.path.realpath(path.parent)), Path(os.path.realpath(path)).parent}
    file = Path(os.path.realpath(path.parent / name))
    if not folders.intersection(file.parents):
        raise ModelError(
            f'The external data {name} of {path} is outside the folder of the model.',
            cause=f'It leads to {file} through a symbolic link.',
            remedy='Copy the data file to the folder of the model.',
        )
    model, data = path.stat(), file.stat()
    if data.st_uid not in (os.geteuid(), 0, model.st_uid):
        cause = 'It belongs to another user than the model.'
    elif data.st_mode & ~model.st_mode & stat.S_IWOTH:
        cause = 'Other users can write to it, but not to the model.'
    else:
        return
    raise ModelError(
        f'The external data {name} of {path} is not secure.',
        cause=cause,
        remedy='Copy model and data file to a folder that only you can change.',
    )


def total_nbytes(path: Path) -> int:
    """Return the size of a model with its external data files in bytes."""
    return path.stat().st_size + sum(
        (path.parent / name).stat().st_size for name in external_names(path)
    )


def cache_key(onnx: OnnxFile, options: BuildOptions, library: Library, device: int) -> str:
    """Return the SHA-256 of everything that an engine depends on, as 64 hex digits."""
    parts: dict[str, Any] = {
        'schema': SCHEMA,
        'onnx': onnx.sha256,
        'external': onnx.external,
        # Engines of tensorrt_rtx never contain NMS, whatever cut_nms is.
        'options': asdict(options)
        | {'timing_cache': None, 'cut_nms': options.cut_nms and not library.is_rtx},
        'library': library.name,
        'version': library.version,
        'arch': platform.machine(),
        'plugins': [_plugin(path) for path in options.plugins],
    }
    if library.is_rtx:
        if 'current' in options.compute_capabilities:
            parts['gpu'] = nvidia_driver().gpu(device).compute_capability
    else:
        gpu = nvidia_driver().gpu(device)
        parts['os'], parts['cuda'] = platform.system(), cuda_version(library)
        if options.version_compatible:
            parts['version'] = library.version[:1]
        capability, memory_gib = gpu.compute_capability, gpu.memory_nbytes >> 30
        parts['gpu'] = {
            'none': [gpu.name, capability, gpu.multiprocessors, memory_gib],
            'same_compute_capability': capability,
            'ampere_plus': 'ampere_plus',
        }[options.hardware_compatible]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def machine(library: Library, device: int) -> dict[str, Any]:
    """Describe the build machine for the sidecar; `gpu` is None without a GPU."""
    driver = nvidia_driver()
    gpu: GpuInfo | None = driver.gpus[device] if device < len(driver.gpus) else None
    return {
        'library': library.name,
        'tensorrt': library.version_text,
        'tensorrt_bindings': library.bindings_version,
        'gpu': gpu and asdict(gpu),
        'driver': driver.version,
        'cuda_driver': '.'.join(map(str, driver.cuda_version)),
        'cuda_runtime': cuda_version(library),
        'os': platform.system(),
        'arch': platform.machine(),
        'kernel': platform.release(),
        'python': platform.python_version(),
        'packages': {name: _version(name) for name in _PACKAGES},
    }


def cuda_package(library: Library) -> str:
    """Return the CUDA version of a library's wheel ('cu13'); '' if it is not a wheel."""
    stem = library.name.replace('_', '-')
    return next((cu for cu in ('cu13', 'cu12') if _version(f'{stem}-{cu}-bindings')), '')


def cuda_version(library: Library) -> str:
    """
    Return the CUDA version that a TensorRT library uses, as far as it is known.

    For a wheel its own ('cu13'). For a Debian package (apt, Jetson) the package version, which
    contains the CUDA version it was built with ('10.3.0.30-1+cuda12.5'), and the driver's CUDA
    version. Otherwise the driver's CUDA version.
    """
    wheel = cuda_package(library)
    if wheel:
        return wheel
    stem = 'libtensorrt-rtx' if library.is_rtx else 'libnvinfer'
    newest = '.'.join(map(str, nvidia_driver().cuda_version))
    return f'{_debian_version(f"{stem}{library.version[0]}")} driver {newest}'.strip()


@cache
def _debian_version(package: str) -> str:
    try:
        done = subprocess.run(
            ['dpkg-query', '-W', '-f', '${Version}', package], capture_output=True, text=True
        )
    except OSError:
        return ''
    return done.stdout if done.returncode == 0 else ''


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _plugin(path: str) -> str:
    with reading(f'The plugin library {path}', 'Check the path in plugins.', ParameterError):
        return sha256_of_file(Path(path))
