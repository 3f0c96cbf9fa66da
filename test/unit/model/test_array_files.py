"""Values of network inputs from files."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from safetensors.numpy import save_file

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model import array_files
from trt_ros.model.feeds.values import read_value
from trt_ros.tensors import TensorSpec, widen


def write(path, **arrays):
    if path.suffix == '.safetensors':
        save_file({name: np.array(array) for name, array in arrays.items()}, path)
    elif path.suffix == '.npz':
        np.savez(path, **arrays)
    else:
        np.save(path, *arrays.values())
    return path


def read(text, shape=(2, 3), dtype='float32', name='k'):
    return read_value(str(text), TensorSpec(name, shape, dtype, 'input'))


@pytest.mark.parametrize('kind', ['npy', 'npz', 'safetensors'])
@pytest.mark.parametrize('dtype', ['float32', 'float64', 'float16', 'int32', 'uint8', 'bool'])
def test_an_array_is_read_and_converted(tmp_path, kind, dtype):
    values = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    path = write(tmp_path / f'k.{kind}', k=values)
    np.testing.assert_array_equal(read(path), values.astype(np.float32), strict=True)
    np.testing.assert_array_equal(widen(read(path, dtype='bfloat16')), values)
    assert read(path, (-1, 3)).shape == (2, 3)
    with pytest.raises(TensorMismatchError, match=r'came as \(2, 3\)'):
        read(path, (3, 2))


@pytest.mark.parametrize('kind', ['npz', 'safetensors'])
def test_an_array_is_that_named_or_of_the_input_or_the_only_one(tmp_path, kind):
    path = write(tmp_path / f'start.{kind}', first=np.float32(1), k=np.float32(5))
    assert read(f'{path}#first', ()) == 1
    assert read(path, ()) == 5
    with pytest.raises(ParameterError, match=r"no array 'frist'(?s:.*)Did you mean 'first'"):
        read(f'{path}#frist', ())
    with pytest.raises(ParameterError, match=r"no array 'h'(?s:.*)It has first, k\."):
        read(path, (), name='h')
    assert read(write(path, other=np.float32(7)), (), name='h') == 7


@pytest.mark.parametrize('kind', ['npy', 'npz', 'safetensors'])
def test_damaged_files_are_refused(tmp_path, kind):
    path = write(tmp_path / f'k.{kind}', k=np.ones((2, 3), np.float32))
    whole = path.read_bytes()
    ends = [whole[:end] for end in range(0, len(whole) - 1, 7)]
    for content in (b'no array', b'PK\x03\x04', b'\xff' * 100, *ends):
        path.write_bytes(content)
        with pytest.raises(ParameterError, match='cannot be read'):
            read(path)
    rng = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            changed[place] = rng.integers(256)
        path.write_bytes(changed)
        with suppress(ParameterError, TensorMismatchError):
            read(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ParameterError, match='cannot be read'):
        read(path)


def test_a_file_that_claims_more_than_it_has_is_refused(tmp_path):
    path = write(tmp_path / 'k.npy', k=np.zeros(4, np.float32))
    path.write_bytes(path.read_bytes().replace(b'(4,), }       ', b'(40000000000,)', 1))
    with pytest.raises(ParameterError, match='cannot be read'):
        read(path, (4,))


def test_an_array_that_unpacks_to_more_than_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, 'MAX_NBYTES', 1000)
    np.savez_compressed(tmp_path / 'k.npz', k=np.zeros(1000))
    with pytest.raises(ParameterError, match='the limit is 1000'):
        read(tmp_path / 'k.npz', (1000,))


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / 'k.npz', k=np.array([{}], object))
    with pytest.raises(ParameterError, match='allow_pickle=False'):
        read(tmp_path / 'k.npz', (1,))
