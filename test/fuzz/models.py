"""Broken and hostile ONNX files, several hundred, the same ones each time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fuzz.attributes import attributes, memory
from fuzz.control_flow import control
from fuzz.graphs import averaged, detector
from fuzz.tensors import damaged_tensors, shapes, versions
import trt_ros


def files() -> Iterator[tuple[str, bytes]]:
    """Give every model as a name and the bytes of its file."""
    for group in (attributes, memory, control, shapes, damaged_tensors, versions):
        for name, made in group():
            yield f'{group.__name__}_{name}', made.SerializeToString()
    whole = detector().SerializeToString()
    surrogate = averaged(metadata={'names': 'REPLACED!!'}).SerializeToString()
    for index, raw in enumerate((b'\xff\xfe\xed\xa0\x80abcde', b'\xed\xa0\x80\xed\xb0\x80abcd')):
        yield f'bytes_not_utf8_{index}', surrogate.replace(b'REPLACED!!', raw[:10])
    yield from {
        'bytes_empty': b'',
        'bytes_html': b'<html>not found</html>',
        'bytes_zeros': b'\0' * 4096,
        'bytes_ff': b'\xff' * 4096,
        'bytes_zip': b'PK\x03\x04' + b'\0' * 99,
        'bytes_plan': b'ftrt' + b'\0' * 200,
        'bytes_plan_rtx': b'vtrt' + b'\0' * 200,
        'bytes_lfs': b'version https://git-lfs.github.com/spec/v1\n',
        'bytes_nested': b''.join(
            b'\x3a' + bytes([0x80 | size & 127, size >> 7]) for size in range(9000, 200, -3)
        ),
        'bytes_twice': whole + whole,
    }.items()
    demo = (Path(trt_ros.__file__).parent / 'demo' / 'shapes.onnx').read_bytes()
    for turn in range(60):
        yield f'mutation_{turn:03}', mutated(whole, turn)
        yield f'mutation_demo_{turn:03}', mutated(demo, turn)


def mutated(whole: bytes, turn: int) -> bytes:
    """Return the bytes of a model cut, flipped, or with a piece of it elsewhere."""
    rng = np.random.default_rng(turn)
    if turn % 5 == 0:
        return whole[: int(rng.integers(1, len(whole)))]
    data = bytearray(whole)
    if turn % 5 == 1:
        start, length = int(rng.integers(0, len(data))), int(rng.integers(1, 40))
        where = int(rng.integers(0, len(data)))
        data[where:where] = data[start : start + length]
    else:
        for _ in range(int(rng.integers(1, 8))):
            data[int(rng.integers(0, len(data)))] = int(rng.integers(0, 256))
    return bytes(data)


def write(folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> list[Path]:
    """Write the files, and what those with external data find beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'data.bin').write_bytes(b'\0' * 4)
    paths = []
    for name, data in files():
        if wanted(name):
            paths.append(folder / f'{name}.onnx')
            paths[-1].write_bytes(data)
    return paths
