"""What an engine depends on, as one hash; and all of it in words, for the sidecar."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
import hashlib
from importlib.metadata import PackageNotFoundError, version
import json
import mmap
from pathlib import Path
import platform
import re
import subprocess
from typing import Any

from trt_ros.driver import GpuInfo, nvidia_driver
from trt_ros.engine.files import sha256_of_file
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ModelError, ParameterError
from trt_ros.trt import Flavour

SCHEMA = 2  # To be raised when the same key would mean another engine.
# How protobuf writes the key of an entry that names a data file; its value follows.
_LOCATION = re.compile(rb'\x0a\x08location\x12')
_PACKAGES = ('trt_ros', 'numpy', 'onnx', 'nvidia-modelopt', 'ml_dtypes')


@dataclass(frozen=True)
class OnnxFile:
    """:param external: (name, sha256) of the data files beside it."""

    path: Path
    sha256: str
    nbytes: int
    external: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> OnnxFile:
        """
        Hash a model and its data files without parsing or holding it.

        :raises ModelError: when it cannot be read.
        """
        try:
            return cls(
                path,
                sha256_of_file(path),
                path.stat().st_size,
                tuple((name, sha256_of_file(path.parent / name)) for name in external_names(path)),
            )
        except OSError as error:
            raise ModelError(
                f'Cannot read the model {path}.',
                cause=error.strerror or '',
                remedy='Check the path of the model.',
            ) from error


def external_names(path: Path) -> list[str]:
    """
    Find the data files that a model names, by a scan: it may be gigabytes.

    Bytes of weights that happen to look so are harmless: they name no file.
    """
    found: set[str] = set()
    if path.stat().st_size == 0:
        return []
    with path.open('rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _LOCATION.finditer(data):
            begin, length, shift = match.end(), 0, 0
            while begin < len(data) and shift < 28:  # A varint
                length |= (data[begin] & 0x7F) << shift
                begin, shift = begin + 1, shift + 7
                if not data[begin - 1] & 0x80:
                    break
            name = data[begin : begin + min(length, 4096)].decode(errors='ignore')
            if (
                name
                and '\0' not in name
                and '..' not in Path(name).parts
                and (path.parent / name).is_file()
            ):
                found.add(name)
    return sorted(found)


def total_nbytes(path: Path) -> int:
    """Return the size of a model with its data files."""
    return path.stat().st_size + sum(
        (path.parent / name).stat().st_size for name in external_names(path)
    )


def cache_key(onnx: OnnxFile, options: BuildOptions, flavour: Flavour, device: int) -> str:
    """Give 64 hex digits that change whenever the engine could."""
    parts: dict[str, Any] = {
        'schema': SCHEMA,
        'onnx': onnx.sha256,
        'external': onnx.external,
        # tensorrt_rtx's engines are without NMS however that was asked for.
        'options': {
            **asdict(options),
            'timing_cache': None,
            'cut_nms': options.cut_nms and not flavour.is_rtx,
        },
        'flavour': flavour.name,
        'version': flavour.version,
        'arch': platform.machine(),
        'converter': _version('nvidia-modelopt') if options.converter == 'modelopt' else None,
        'plugins': [_plugin(path) for path in options.plugins],
    }
    if flavour.is_rtx:
        if 'current' in options.compute_capabilities:
            parts['gpu'] = nvidia_driver().gpu(device).compute_capability
    else:
        gpu = nvidia_driver().gpu(device)
        parts['os'], parts['cuda'] = platform.system(), cuda_version(flavour)
        if options.version_compatible:
            parts['version'] = flavour.version[:1]
        parts['gpu'] = {
            'none': [
                gpu.name,
                gpu.compute_capability,
                gpu.multiprocessors,
                gpu.memory_nbytes >> 30,
            ],
            'same_compute_capability': gpu.compute_capability,
            'ampere_plus': 'ampere_plus',
        }[options.hardware_compatible]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def machine(flavour: Flavour, device: int) -> dict[str, Any]:
    """Tell where an engine was built, as the sidecar keeps it; `gpu` is None without one."""
    found = nvidia_driver()
    gpu: GpuInfo | None = found.gpus[device] if device < len(found.gpus) else None
    return {
        'flavour': flavour.name,
        'tensorrt': flavour.version_text,
        'tensorrt_bindings': flavour.bindings_version,
        'gpu': gpu and asdict(gpu),
        'driver': found.version,
        'cuda_driver': '.'.join(map(str, found.cuda_version)),
        'cuda_runtime': cuda_version(flavour),
        'os': platform.system(),
        'arch': platform.machine(),
        'kernel': platform.release(),
        'python': platform.python_version(),
        'packages': {name: _version(name) for name in _PACKAGES},
    }


def cuda_package(flavour: Flavour) -> str:
    """The CUDA that the flavour's wheel was made for ('cu13'); '' where it is no wheel."""
    stem = flavour.name.replace('_', '-')
    return next((cu for cu in ('cu13', 'cu12') if _version(f'{stem}-{cu}-bindings')), '')


def cuda_version(flavour: Flavour) -> str:
    """
    Return the CUDA that a flavour's library works with, as far as anything says.

    Its wheel's ('cu13'); of a Debian package (apt, Jetson) the version, which names the CUDA that
    it was built with ('10.3.0.30-1+cuda12.5'), and the driver's CUDA; elsewhere the driver's CUDA.
    """
    wheel = cuda_package(flavour)
    if wheel:
        return wheel
    stem = 'libtensorrt-rtx' if flavour.is_rtx else 'libnvinfer'
    newest = '.'.join(map(str, nvidia_driver().cuda_version))
    return f'{_debian_version(f"{stem}{flavour.version[0]}")} driver {newest}'.strip()


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
    try:
        return sha256_of_file(Path(path))
    except OSError as error:
        raise ParameterError(
            f'Cannot read the plugin library {path}.', cause=error.strerror or ''
        ) from error
