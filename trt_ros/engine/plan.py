"""Headers of TensorRT plans (64 bytes): library, version, target GPUs, size."""

from dataclasses import dataclass
from pathlib import Path
import struct

from trt_ros.errors import ModelError
from trt_ros.regular_file import open_regular, reading

HEADER_NBYTES = 64
_MAGIC = {0x74727466: 'tensorrt', 0x74727476: 'tensorrt_rtx'}  # Little-endian 'ftrt' and 'vtrt'
_RTX_TARGETS = ((7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1))  # Bit 0 and up


@dataclass(frozen=True)
class PlanHeader:
    """
    Decoded header of a TensorRT plan.

    :param library: library that wrote the plan, 'tensorrt' or 'tensorrt_rtx'.
    :param version: version of that library: major, minor, patch, build.
    :param nbytes: size of the whole plan; None if the header does not contain it (tensorrt).
    :param compute_capabilities: target GPUs; empty if the header does not contain them.
    """

    library: str
    version: tuple[int, ...]
    nbytes: int | None
    compute_capabilities: tuple[tuple[int, int], ...]

    @property
    def version_text(self) -> str:
        """Version of the library as text."""
        return '.'.join(map(str, self.version))


def is_plan(path: Path) -> bool:
    """Return whether a file begins like a plan; False if it cannot be read."""
    try:
        with open_regular(path) as file:
            return struct.unpack('<I', file.read(4))[0] in _MAGIC
    except (OSError, struct.error):
        return False


def read_plan_header(path: Path) -> PlanHeader:
    """Read the header of a plan, or raise ModelError; needs neither TensorRT nor a GPU."""
    return header_of(read_plan(path, HEADER_NBYTES), path.stat().st_size, str(path))


def read_plan(path: Path, nbytes: int = -1) -> bytes:
    """Read a plan, or its beginning, or raise ModelError."""
    failure = reading(f'The engine {path}', 'Check the path of the engine.')
    with failure, open_regular(path) as file:
        return file.read(nbytes)


def header_of(plan: bytes, nbytes: int, name: str) -> PlanHeader:
    """Return the header of a plan by its beginning and its size, or raise ModelError."""
    try:
        header = parse_plan_header(plan)
    except ValueError as error:
        raise ModelError(
            f'{name} is not a TensorRT engine.',
            cause=str(error),
            remedy='Give an engine; trt-ros build MODEL.onnx makes one.',
        ) from error
    if header.nbytes is not None and header.nbytes != nbytes:
        raise ModelError(
            f'The engine {name} is damaged.',
            cause=f'Its size is {nbytes} bytes; according to its header it is {header.nbytes}.',
            remedy='Copy it again, or rebuild it.',
        )
    return header


def parse_plan_header(raw: bytes) -> PlanHeader:
    """Decode the first bytes of a plan; raise ValueError if they do not belong to a plan."""
    if len(raw) < HEADER_NBYTES:
        raise ValueError(f'It has only {len(raw)} bytes.')
    library = _MAGIC.get(struct.unpack_from('<I', raw, 0)[0])
    if library is None:
        raise ValueError('Its first bytes are not those of an engine.')
    version = tuple(raw[24:28])
    if library == 'tensorrt':
        return PlanHeader(library, version, None, ())
    nbytes, targets = struct.unpack_from('<Q', raw, 16)[0], struct.unpack_from('<Q', raw, 32)[0]
    capabilities = tuple(cc for bit, cc in enumerate(_RTX_TARGETS) if targets >> bit & 1)
    return PlanHeader(library, version, nbytes, capabilities)
