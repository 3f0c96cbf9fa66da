"""The only door to TensorRT: `tensorrt` 10.3 to 11 or `tensorrt_rtx` 1.4 to 1.7."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import ctypes
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
import logging
import re
from types import ModuleType
from typing import Any

from trt_ros.driver import nvidia_driver
from trt_ros.errors import BackendError

FLAVOURS = ('tensorrt', 'tensorrt_rtx')
OLDEST = {'tensorrt': (10, 3), 'tensorrt_rtx': (1, 4)}
INSTALL = {
    'tensorrt': 'pip install tensorrt  (Jetson: sudo apt install python3-libnvinfer)',
    'tensorrt_rtx': 'pip install tensorrt-rtx-cu13-libs tensorrt-rtx-cu13-bindings',
}

# What TensorRT says that no user can act on.
NOISE = re.compile(
    r'differs from one already registered|Make sure (input|output) .* Int64 binding'
    r'|In JIT build, strongly typed|Multi stream is disabled'
)
NOISE_WITHOUT_GPU = re.compile('catchCudaError')  # Follows every failure there, the cause of none.


@dataclass(frozen=True)
class Flavour:
    """
    One TensorRT: its Python module and what it can do.

    :param name: 'tensorrt' or 'tensorrt_rtx'.
    :param trt: the module; enums and flags are to be taken by name, their numbers differ.
    :param version: the library's (major, minor, patch, build); 3 numbers where it tells no more.
    """

    name: str
    trt: ModuleType
    version: tuple[int, ...]
    bindings_version: str
    log: Any  # The process's one logger, an ILogger made by `_logger`.

    def __str__(self) -> str:
        return f'{self.name} {self.version_text}'

    @property
    def version_text(self) -> str:
        return '.'.join(map(str, self.version))

    @property
    def is_rtx(self) -> bool:
        return self.name == 'tensorrt_rtx'

    @property
    def builds_without_gpu(self) -> bool:
        return self.is_rtx

    def member(self, enum: str, name: str) -> Any | None:
        """Give an enum's member by name, None where this version lacks it."""
        return getattr(getattr(self.trt, enum, None), name, None)

    def new_builder(self) -> Any:
        """:raises BackendError: where this library cannot build here (it would crash)."""
        if not self.builds_without_gpu:
            nvidia_driver().gpu(0)
        return self._made('Builder', self.trt.Builder)

    def new_runtime(self) -> Any:
        """:raises BackendError: without a GPU (the library would crash, or hide the reason)."""
        nvidia_driver().gpu(0)
        return self._made('Runtime', self.trt.Runtime)

    def _made(self, what: str, factory: Any) -> Any:
        self.trt.init_libnvinfer_plugins(self.log, '')
        with self.log.collect() as captured:
            try:
                made = factory(self.log)
            except TypeError:  # pybind11: the library returned null.
                made = None
        if made is None:
            raise BackendError(
                f'{self} gives no {what}.',
                cause='\n'.join(captured.errors),
                remedy='See `trt-ros doctor`.',
            )
        return made


def load_trt(prefer: str = 'auto') -> Flavour:
    """
    Import TensorRT, late, so that `import trt_ros` needs none.

    :param prefer: 'tensorrt', 'tensorrt_rtx', or 'auto' for the first that is installed.
    :raises BackendError: when it is not installed, too old, or bindings and library differ.
    """
    names = FLAVOURS if prefer == 'auto' else (prefer,)
    for name in names:
        if installed(name):
            return _load(name)
    raise BackendError(
        f'No TensorRT found (looked for {", ".join(names)}).',
        remedy=' or '.join(INSTALL.get(name, name) for name in names),
    )


def installed(name: str) -> bool:
    """Tell whether a flavour's Python bindings are there, without importing them."""
    return bool(_module(name))


def _module(name: str) -> str:
    for module in (name, f'{name}_bindings'):  # The second where it is the only wheel installed.
        spec = find_spec(module)
        if spec is not None and spec.origin is not None:  # None: some folder of that name.
            return module
    return ''


@cache
def _load(name: str) -> Flavour:
    try:
        trt = import_module(_module(name))
    except (ImportError, OSError) as error:  # OSError: from wheels that load libraries.
        raise BackendError(
            f'{name} is installed but does not load.',
            cause=str(error),
            remedy=f'Install its libraries, of the same version: {INSTALL[name]}',
        ) from error
    bindings = numbers(trt.__version__)
    version = library_version(name, bindings[0])
    shared = min(len(version), len(bindings))
    if version[:shared] != bindings[:shared]:
        raise BackendError(
            f'{name}: bindings {trt.__version__} over library {".".join(map(str, version))}.',
            cause='They must be of one version: others crash at the first call.',
            remedy='Install both from one release; look for a second library on LD_LIBRARY_PATH.',
        )
    if version[:2] < OLDEST[name]:
        oldest = '.'.join(map(str, OLDEST[name]))
        raise BackendError(
            f'{name} {trt.__version__} is too old.',
            remedy=f'Install {oldest} or newer: {INSTALL[name]}',
        )
    return Flavour(name, trt, version, trt.__version__, _logger(trt))


def numbers(version: str) -> tuple[int, ...]:
    """Give '10.13.3.9.post1' as (10, 13, 3, 9)."""
    found = re.match(r'\d+(\.\d+)*', version)
    return tuple(int(part) for part in found.group().split('.')) if found else ()


def library_version(name: str, major: int) -> tuple[int, ...]:
    """Ask the library that the bindings have just mapped (found again by its SONAME)."""
    so = 'libtensorrt_rtx.so.1' if name == 'tensorrt_rtx' else f'libnvinfer.so.{major}'
    try:
        library = ctypes.CDLL(so)
    except OSError as error:
        raise BackendError(
            f'{name} loads, but not its library {so}.',
            cause=str(error),
            remedy=f'Install bindings and library of one release: {INSTALL[name]}',
        ) from error
    parts = [f'getInferLib{part}Version' for part in ('Major', 'Minor', 'Patch', 'Build')]
    if all(hasattr(library, part) for part in parts):
        return tuple(int(getattr(library, part)()) for part in parts)
    packed = int(library.getInferLibVersion())
    return packed // 10000, packed // 100 % 100, packed % 100


class CapturedLog:
    """What TensorRT said while someone listened."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []


def _logger(trt: ModuleType) -> Any:
    """Make the logger; the library keeps the first of a process, so `_load` is cached."""
    out = logging.getLogger(f'trt_ros.{trt.__name__.removesuffix("_bindings")}')
    severity = trt.ILogger.Severity
    levels = {
        severity.INTERNAL_ERROR: logging.ERROR,
        severity.ERROR: logging.ERROR,
        severity.WARNING: logging.WARNING,
        severity.INFO: logging.DEBUG,
    }

    class Log(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.listeners: list[CapturedLog] = []

        def log(self, severity: Any, message: str) -> None:
            level = levels.get(severity)
            if (
                level is None
                or NOISE.search(message)
                or (NOISE_WITHOUT_GPU.search(message) and not nvidia_driver().gpus)
            ):
                return
            for captured in self.listeners:
                if level == logging.ERROR:
                    captured.errors.append(message)
                elif level == logging.WARNING:
                    captured.warnings.append(message)
            # Whoever listens turns errors into an exception that says more.
            if level != logging.ERROR or not self.listeners:
                out.log(level, message)

        @contextmanager
        def collect(self) -> Iterator[CapturedLog]:
            captured = CapturedLog()
            self.listeners.append(captured)
            try:
                yield captured
            finally:
                self.listeners.remove(captured)

    return Log()
