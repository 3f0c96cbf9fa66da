"""Import and logging of TensorRT: `tensorrt` 10.3 to 11 or `tensorrt_rtx` 1.4 to 1.7."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
from trt_ros.errors import BackendError, printable

LIBRARIES = ('tensorrt', 'tensorrt_rtx')
OLDEST = {'tensorrt': (10, 3), 'tensorrt_rtx': (1, 4)}
INSTALL = {
    'tensorrt': 'pip install tensorrt  (Jetson: sudo apt install python3-libnvinfer)',
    'tensorrt_rtx': 'pip install tensorrt-rtx-cu13-libs tensorrt-rtx-cu13-bindings',
}

# TensorRT messages that no user can act on.
NOISE = re.compile(
    r'differs from one already registered|Make sure (input|output) .* Int64 binding'
    r'|In JIT build, strongly typed|Multi stream is disabled'
)
OUT_OF_MEMORY = re.compile('[Oo]ut of memory|OutOfMemory|cudaErrorMemoryAllocation')
# Follows every failure on a machine without a GPU and is the cause of none.
NOISE_WITHOUT_GPU = re.compile('catchCudaError')


@dataclass(frozen=True)
class Library:
    """
    An imported TensorRT module with its version and capabilities.

    :param name: 'tensorrt' or 'tensorrt_rtx'.
    :param trt: the Python module. Use enums and flags by name; their numbers differ per release.
    :param version: the library's (major, minor, patch, build); 3 numbers if it reports no build.
    :param bindings_version: version string of the Python bindings.
    :param log: the process-wide ILogger, made by `_logger`.
    """

    name: str
    trt: ModuleType
    version: tuple[int, ...]
    bindings_version: str
    log: Any

    def __str__(self) -> str:
        return f'{self.name} {self.version_text}'

    @property
    def version_text(self) -> str:
        """Version of the library as text, such as '10.13.3.9'."""
        return '.'.join(map(str, self.version))

    @property
    def is_rtx(self) -> bool:
        """Whether this is TensorRT for RTX (`tensorrt_rtx`)."""
        return self.name == 'tensorrt_rtx'

    @property
    def builds_without_gpu(self) -> bool:
        """Whether engines can be built on a machine without a GPU."""
        return self.is_rtx

    def member(self, enum: str, name: str) -> Any | None:
        """Return the member of an enum by name, None if this version lacks it."""
        return getattr(getattr(self.trt, enum, None), name, None)

    def new_builder(self) -> Any:
        """Create an `IBuilder`, or raise BackendError where this library would crash."""
        if not self.builds_without_gpu:
            nvidia_driver().gpu(0)
        return self._create('builder', self.trt.Builder)

    def new_runtime(self) -> Any:
        """Create an `IRuntime`, or raise BackendError without a GPU, where it would crash."""
        nvidia_driver().gpu(0)
        return self._create('runtime', self.trt.Runtime)

    def _create(self, kind: str, factory: Any) -> Any:
        self.trt.init_libnvinfer_plugins(self.log, '')
        with self.log.collect() as captured:
            try:
                created = factory(self.log)
            except TypeError:  # pybind11: the library returned null.
                created = None
        if created is None:
            raise BackendError(
                f'{self} cannot create a {kind}.',
                cause='\n'.join(captured.errors),
                remedy='Run `trt-ros doctor`.',
            )
        return created


def load_trt(prefer: str = 'auto') -> Library:
    """Import TensorRT on demand: `prefer`, or for 'auto' the first installed; or raise."""
    names = LIBRARIES if prefer == 'auto' else (prefer,)
    for name in names:
        if installed(name):
            return _load(name)
    raise BackendError(
        f'TensorRT is not installed (looked for {", ".join(names)}).',
        remedy='Install it: ' + ' or '.join(INSTALL.get(name, name) for name in names),
    )


def installed(name: str) -> bool:
    """Return whether the Python bindings of a library are installed, without importing them."""
    return bool(_module(name))


def _module(name: str) -> str:
    for module in (name, f'{name}_bindings'):  # The second if only that wheel is installed.
        spec = find_spec(module)
        if spec is not None and spec.origin is not None:  # None: a folder of that name.
            return module
    return ''


@cache
def _load(name: str) -> Library:
    try:
        trt = import_module(_module(name))
    except (ImportError, OSError) as error:  # OSError: raised by wheels that load libraries.
        raise BackendError(
            f'{name} is installed, but importing it failed.',
            cause=str(error),
            remedy=f'Install its libraries in the same version: {INSTALL[name]}',
        ) from error
    bindings = numbers(trt.__version__)
    version = library_version(name, bindings[0])
    shared = min(len(version), len(bindings))
    if version[:shared] != bindings[:shared]:
        raise BackendError(
            f'{name} bindings {trt.__version__} do not match library '
            f'{".".join(map(str, version))}.',
            cause='Bindings and library of different versions crash at the first call.',
            remedy='Install both from one release. Check LD_LIBRARY_PATH for a second library.',
        )
    if version[:2] < OLDEST[name]:
        oldest = '.'.join(map(str, OLDEST[name]))
        raise BackendError(
            f'{name} {trt.__version__} is not supported.',
            cause=f'The oldest supported version is {oldest}.',
            remedy=f'Install {oldest} or newer: {INSTALL[name]}',
        )
    return Library(name, trt, version, trt.__version__, _logger(trt))


def numbers(version: str) -> tuple[int, ...]:
    """Parse a version string: '10.13.3.9.post1' becomes (10, 13, 3, 9)."""
    found = re.match(r'\d+(\.\d+)*', version)
    return tuple(int(part) for part in found.group().split('.')) if found else ()


def library_version(name: str, major: int) -> tuple[int, ...]:
    """Return the version of the library that the bindings have loaded (found by its SONAME)."""
    so = 'libtensorrt_rtx.so.1' if name == 'tensorrt_rtx' else f'libnvinfer.so.{major}'
    try:
        library = ctypes.CDLL(so)
    except OSError as error:
        raise BackendError(
            f'The library {so} of {name} cannot be loaded.',
            cause=str(error),
            remedy=f'Install bindings and library from one release: {INSTALL[name]}',
        ) from error
    parts = [f'getInferLib{part}Version' for part in ('Major', 'Minor', 'Patch', 'Build')]
    if all(hasattr(library, part) for part in parts):
        return tuple(int(getattr(library, part)()) for part in parts)
    packed = int(library.getInferLibVersion())
    return packed // 10000, packed // 100 % 100, packed % 100


class CapturedLog:
    """Errors and warnings that TensorRT logged within a `collect()` block."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def add(self, level: int, message: str) -> None:
        """Add a message of a level of `logging`."""
        if level == logging.ERROR:
            self.errors.append(message)
        elif level == logging.WARNING:
            self.warnings.append(message)


def _is_noise(message: str) -> bool:
    return bool(
        NOISE.search(message) or (NOISE_WITHOUT_GPU.search(message) and not nvidia_driver().gpus)
    )


@contextmanager
def _listed(items: list[Any], item: Any) -> Iterator[None]:
    items.append(item)
    try:
        yield
    finally:
        items.remove(item)


def _logger(trt: ModuleType) -> Any:
    """Create the logger. TensorRT keeps the first one of a process, so `_load` is cached."""
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
            self.copies: list[Callable[[str, str], None]] = []

        def log(self, severity: Any, message: str) -> None:
            message = printable(message, lines=True)
            for write in self.copies:
                write(severity.name, message)
            level = levels.get(severity)
            if level is None or _is_noise(message):
                return
            for captured in self.listeners:
                captured.add(level, message)
            # A listener turns errors into an exception with more context.
            if level != logging.ERROR or not self.listeners:
                out.log(level, message)

        @contextmanager
        def collect(self) -> Iterator[CapturedLog]:
            captured = CapturedLog()
            with _listed(self.listeners, captured):
                yield captured

        def copy_to(self, write: Callable[[str, str], None]) -> AbstractContextManager[None]:
            """Pass severity and text of every message on, whatever happens to it here."""
            return _listed(self.copies, write)

    return Log()
