"""Values of network inputs from files."""

from contextlib import suppress
import json
import struct
import sys
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save_file

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.feeds.constant import read_value
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
    with pytest.raises(ParameterError, match=r"no array 'k'(?s:.*)It has none"):
        read(write(path))


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['npy', 'npz', 'safetensors'])
def test_damaged_files_are_refused(tmp_path, kind):
    path = write(tmp_path / f'k.{kind}', k=np.ones((2, 3), np.float32))
    whole = path.read_bytes()
    ends = [whole[:end] for end in range(0, len(whole) - 1, 7)]
    lengths = [struct.pack('<Q', length) + b'{}' for length in (1 << 62, 99_999_999)]
    for content in (b'no array', b'PK\x03\x04', b'\xff' * 100, *lengths, *ends):
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


def test_files_that_claim_more_than_they_have_and_objects_are_refused(tmp_path):
    path = write(tmp_path / 'k.npy', k=np.zeros(4, np.float32))
    path.write_bytes(path.read_bytes().replace(b'(4,), }       ', b'(40000000000,)', 1))
    with pytest.raises(ParameterError, match='cannot be read'):
        read(path, (4,))
    np.savez(tmp_path / 'k.npz', k=np.array([{}], object))
    with pytest.raises(ParameterError, match='allow_pickle=False'):
        read(tmp_path / 'k.npz', (1,))


@pytest.mark.parametrize('claim', [None, 300])
def test_an_archive_does_not_unpack_more_than_the_input_takes(tmp_path, claim):
    path = tmp_path / 'k.npz'
    np.savez_compressed(path, k=np.zeros(1 << 23, np.float32))
    if claim is not None:
        content = bytearray(path.read_bytes())
        entry = content.rindex(b'PK\1\2')
        content[entry + 24 : entry + 28] = struct.pack('<I', claim)
        path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ParameterError, match='cannot be read'):
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_an_array_above_the_limit_is_refused_where_the_input_is_dynamic(tmp_path):
    path = tmp_path / 'k.npy'
    with path.open('wb') as file:
        header = {'descr': '|u1', 'fortran_order': False, 'shape': (1 << 30,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + (1 << 30))  # Of holes.
    with pytest.raises(ParameterError, match='the limit is 268435456'):
        read(path, (-1,), 'uint8')


def test_arrays_of_any_order_in_memory_are_read(tmp_path):
    values = np.arange(6.0).reshape(2, 3)
    for each in (np.asfortranarray(values), values.astype('>f8'), values.astype('>i2')):
        np.savez(tmp_path / 'k.npz', k=each)
        np.save(tmp_path / 'k.npy', each)
        for end in ('npz', 'npy'):
            np.testing.assert_array_equal(read(tmp_path / f'k.{end}'), values)
            np.testing.assert_array_equal(
                widen(read(tmp_path / f'k.{end}', dtype='bfloat16')), values
            )


@pytest.mark.parametrize('dtype', ['float32', 'bool', 'int64'])
@pytest.mark.parametrize(
    'values', [np.zeros((2, 3), [('a', 'f4')]), np.full((2, 3), 'a'), np.zeros((2, 3), 'M8[s]')]
)
def test_arrays_that_are_no_numbers_are_refused(tmp_path, values, dtype):
    np.savez(tmp_path / 'k.npz', k=values)
    with pytest.raises(TensorMismatchError, match='could change the values'):
        read(tmp_path / 'k.npz', dtype=dtype)


def test_numbers_that_are_not_finite_are_no_integers(tmp_path):
    for value in (np.nan, np.inf):
        np.save(tmp_path / 'k.npy', np.full((2, 3), value))
        with pytest.raises(TensorMismatchError, match='could change the values'):
            read(tmp_path / 'k.npy', dtype='int64')
        np.testing.assert_array_equal(read(tmp_path / 'k.npy'), np.full((2, 3), value))


def write_raw(path, dtype, content):
    tensor = {'dtype': dtype, 'shape': [len(content) // 2], 'data_offsets': [0, len(content)]}
    header = json.dumps({'k': tensor}).encode()
    path.write_bytes(struct.pack('<Q', len(header)) + header + content)
    return path


@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
def test_bfloat16_of_safetensors_is_read(tmp_path, dtype):
    path = write_raw(
        tmp_path / 'k.safetensors', 'BF16', np.array([0x3F80, 0xC000]).astype('<u2').tobytes()
    )
    found = read(path, (2,), dtype)
    np.testing.assert_array_equal(widen(found) if dtype == 'bfloat16' else found, [1, -2])


def test_types_of_safetensors_that_numpy_lacks_are_refused(tmp_path):
    path = write_raw(tmp_path / 'k.safetensors', 'F8_E4M3', bytes(2))
    path.write_bytes(path.read_bytes().replace(b'[1]', b'[2]'))
    with pytest.raises(ParameterError, match='F8_E4M3, which NumPy lacks'):
        read(path, (2,))


def test_safetensors_is_needed_for_its_files_only(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'safetensors', None)
    path = write(tmp_path / 'k.safetensors', k=np.ones((2, 3)))
    with pytest.raises(ParameterError, match=r'(?s)cannot be imported.*pip install safetensors'):
        read(path)
    read(write(tmp_path / 'k.npz', k=np.ones((2, 3))))


def test_folders_and_arrays_may_have_number_signs_in_their_names(tmp_path):
    (tmp_path / 'a#b').mkdir()
    path = write(tmp_path / 'a#b' / 'k.npz', **{'c#d': np.ones((2, 3)), 'e': np.zeros((2, 3))})
    assert read(f'{path}#c#d').all()
    assert not read(f'{path} # e').any()


def test_written_numbers_beyond_a_type_are_refused():
    assert read(str(2**64 - 1), (), 'uint64') == 2**64 - 1
    assert read(str(10**20), ()) == np.float32(1e20)
    assert read('-inf', ()) == -np.inf
    for text in ('1e999', '-1' + '0' * 400):
        with pytest.raises(TensorMismatchError, match='beyond the range'):
            read(text, ())


@pytest.mark.parametrize(
    ('shape', 'want'), [((-1, -1), (1, 4)), ((-1, 2), (2, 2)), ((-1, -1, 2), (1, 2, 2))]
)
def test_numbers_fill_the_last_dynamic_dimension(tmp_path, shape, want):
    assert read('1,2,3,4', shape).shape == want
    np.save(tmp_path / 'vector.npy', np.arange(4))
    assert read(tmp_path / 'vector.npy', shape).shape == want
