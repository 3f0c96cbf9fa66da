"""The first 64 bytes of a TensorRT plan: which library wrote it, for which GPUs, how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
import struct

from trt_ros.errors import ModelError
from trt_ros.regular_file import open_regular

HEADER_NBYTES = 64
_MAGIC = {0x74727466: 'tensorrt', 0x74727476: 'tensorrt_rtx'}  # Little-endian 'ftrt' and 'vtrt'
_RTX_TARGETS = ((7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1))  # Bit 0 and up


@dataclass(frozen=True)
class PlanHeader:
    """
    :param version: of the library that wrote the plan: major, minor, patch, build.
    :param nbytes: of the whole plan; None where the header does not tell (tensorrt).
    :param compute_capabilities: that it was built for; empty where the header does not tell.
    """

    flavour: str
    version: tuple[int, ...]
    nbytes: int | None
    compute_capabilities: tuple[tuple[int, int], ...]

    @property
    def version_text(self) -> str:
        return '.'.join(map(str, self.version))


def is_plan(path: Path) -> bool:
    """Tell a plan from anything else by its first bytes; False where there is no such file."""
    try:
        with open_regular(path) as file:
            return struct.unpack('<I', file.read(4))[0] in _MAGIC
    except (OSError, struct.error):
        return False


def read_plan_header(path: Path) -> PlanHeader:
    """
    Read a plan's header without any library or GPU.

    :raises ModelError: when the file is no plan, or shorter or longer than its header says.
    """
    try:
        with open_regular(path) as file:
            header = parse_plan_header(file.read(HEADER_NBYTES))
        nbytes = path.stat().st_size
    except OSError as error:
        raise ModelError(f'Cannot read {path}.', cause=str(error)) from error
    except ValueError as error:
        raise ModelError(f'{path} is not a TensorRT engine.', cause=str(error)) from error
    if header.nbytes is not None and header.nbytes != nbytes:
        raise ModelError(
            f'{path} is damaged.',
            cause=f'It has {nbytes} bytes, its header says {header.nbytes}.',
            remedy='Copy it again, or build it anew.',
        )
    return header


def parse_plan_header(raw: bytes) -> PlanHeader:
    """:raises ValueError: when these are not the first bytes of a plan."""
    if len(raw) < HEADER_NBYTES:
        raise ValueError(f'it has only {len(raw)} bytes')
    flavour = _MAGIC.get(struct.unpack_from('<I', raw, 0)[0])
    if flavour is None:
        raise ValueError('it does not begin as one does')
    version = tuple(raw[24:28])
    if flavour == 'tensorrt':
        return PlanHeader(flavour, version, None, ())
    nbytes, targets = struct.unpack_from('<Q', raw, 16)[0], struct.unpack_from('<Q', raw, 32)[0]
    return PlanHeader(
        flavour,
        version,
        nbytes,
        tuple(cc for bit, cc in enumerate(_RTX_TARGETS) if targets >> bit & 1),
    )


def capabilities_text(capabilities: Iterable[tuple[int, int]]) -> str:
    """Give ((8, 6), (8, 9)) as '8.6 8.9'."""
    return ' '.join(f'{major}.{minor}' for major, minor in capabilities)
