"""The plan of a run's transfers to the GPU."""

import numpy as np
import pytest

from trt_ros.runtime.gpu.staging import SMALL_NBYTES, Part, Source, TensorSource, plan_transfers
from trt_ros.tensors import TensorSpec, address_of
from trt_ros.vision.frame import Frame

GPU, CHUNK = 1 << 40, 1 << 20
HEADER_NBYTES = 256
LARGE = 3 * CHUNK


def image(nbytes, pinned=HEADER_NBYTES, **changes):
    return Part(
        nbytes, pinned, GPU + pinned, **{'is_zero_copy': False, 'can_be_cut': True} | changes
    )


def test_the_first_piece_is_transferred_with_the_header_and_the_last_by_the_graph():
    plan = plan_transfers([image(LARGE)], GPU, HEADER_NBYTES, CHUNK)
    assert [piece.send for piece in plan.pieces] == [
        (GPU, 0, CHUNK + 256),
        (GPU + CHUNK + 256, CHUNK + 256, CHUNK),
        (0, 0, 0),
    ]
    last = 2 * CHUNK + 256
    assert plan.in_graph == ((GPU + last, last, CHUNK),)


def test_images_of_a_batch_are_cut_separately():
    plan = plan_transfers([image(CHUNK + 1), image(0, CHUNK + 512)], GPU, HEADER_NBYTES, CHUNK)
    assert [(piece.index, piece.start, piece.stop) for piece in plan.pieces] == [
        (0, 0, CHUNK),
        (0, CHUNK, CHUNK + 1),
        (1, 0, 0),
    ]


def test_images_read_in_place_are_not_transferred():
    plan = plan_transfers([Part(LARGE, 256, 0, False, True)], 0, HEADER_NBYTES, CHUNK)
    assert [piece.send for piece in plan.pieces] == [(0, 0, 0)] * 3
    assert plan.in_graph == ()


def test_zero_copy_images_need_no_piece_and_the_graph_transfers_the_header():
    plan = plan_transfers([image(LARGE, is_zero_copy=True)], GPU, HEADER_NBYTES, CHUNK)
    assert plan.pieces == () and plan.in_graph == ((GPU, 0, 256),)


def test_a_small_part_is_not_transferred_with_a_large_one_that_another_thread_copies():
    small = image(SMALL_NBYTES)
    large = image(LARGE, HEADER_NBYTES + SMALL_NBYTES)
    plan = plan_transfers([small, large], GPU, HEADER_NBYTES, CHUNK)
    assert plan.in_graph[0] == (GPU, 0, HEADER_NBYTES + SMALL_NBYTES)
    assert plan.pieces[1].send == (large.target, large.pinned, CHUNK)


def test_a_converted_tensor_is_one_piece():
    plan = plan_transfers([Part(LARGE, 256, 9000, False, False)], GPU, HEADER_NBYTES, CHUNK)
    assert [(piece.start, piece.stop) for piece in plan.pieces] == [(0, LARGE)]


@pytest.mark.parametrize('seed', range(20))
def test_every_byte_is_transferred_once(seed):
    rng = np.random.default_rng(seed)
    parts, pinned = [], HEADER_NBYTES
    for _ in range(rng.integers(1, 6)):
        nbytes = int(rng.choice([1, 300, SMALL_NBYTES, SMALL_NBYTES + 1, LARGE - 7]))
        is_image = bool(rng.integers(2))
        target = GPU + pinned if is_image else int(rng.integers(1 << 20)) * 4096 + (1 << 50)
        parts.append(Part(nbytes, pinned, target, False, bool(rng.integers(2))))
        pinned += nbytes + int(rng.integers(2)) * 256
    plan = plan_transfers(parts, GPU, HEADER_NBYTES, CHUNK)
    sent = {}
    for target, offset, nbytes in (*plan.in_graph, *(piece.send for piece in plan.pieces)):
        for start in range(0, nbytes, 1 << 16):
            count = min(1 << 16, nbytes - start)
            sent[target + start] = (offset + start, count)
    total = sum(count for _, count in sent.values())
    assert total == HEADER_NBYTES + sum(part.nbytes for part in parts)
    copied = sum(piece.stop - piece.start for piece in plan.pieces)
    assert copied == total - HEADER_NBYTES


def test_a_tensor_of_the_networks_type_is_copied_as_bytes():
    spec = TensorSpec('x', (2, 3), 'float32', 'input')
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    plain = TensorSource(spec, value)
    assert plain.address == value.ctypes.data
    target = np.zeros(8, np.uint8)
    plain.copy(target, 4, 12)
    assert target.view(np.float32).tolist() == [1, 2]
    for other in (value.astype(np.float64), value[:, ::-1], value.astype('>f4'), value.T):
        source = TensorSource(spec, other)
        assert source.address == 0 and source.key != plain.key and source.nbytes == 24
        whole = np.zeros(24, np.uint8)
        source.copy(whole, 0, 24)
        assert whole.view(np.float32).tolist() == other.reshape(-1).tolist()


def test_images_of_one_geometry_have_one_key():
    pixels = np.zeros((4, 6, 3), np.uint8)
    keys = {Source(Frame.from_pixels(each)).key for each in (pixels, pixels + 1, pixels[:, ::-1])}
    assert len(keys) == 1
    assert Source(Frame.from_pixels(pixels, 'rgb8')).key not in keys


@pytest.mark.parametrize('is_writable', [False, True])
def test_the_address_of_an_array_is_that_of_its_first_element(is_writable):
    whole = np.zeros((4, 6), np.int16)
    whole.flags.writeable = is_writable
    for array in (whole, whole[1:, 2:], whole[::-1], whole.T, whole[:0], whole.reshape(-1)[5:]):
        assert address_of(array) == array.ctypes.data
