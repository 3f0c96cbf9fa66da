"""Broken picture and video files or names: an error, never a crash of the process."""

import os
from pathlib import Path
import struct
import zlib

import cv2
import numpy as np
import pytest

from support.frames import write_video
from support.scripts import run_script
from trt_ros.drawing.labels import Label, draw_label
from trt_ros.drawing.panels import Panel, in_rows
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.media import (
    VideoWriter,
    check_picture_path,
    is_cut_off,
    open_video,
    read_images,
    read_picture,
    read_video,
    write_picture,
)
from trt_ros.ros.sources import open_source

LATIN_1 = os.fsdecode(b'caf\xe9')
PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


@pytest.mark.parametrize('name', ['plain.png', 'é 写.png', f'{LATIN_1}.png'])
def test_a_picture_comes_back_whatever_its_name(tmp_path, name):
    write_picture(tmp_path / name, PIXELS)
    assert np.array_equal(read_picture(tmp_path / name), PIXELS)


def test_accepts_non_ascii_names_in_posix_locale(tmp_path):
    code = (
        'import sys, numpy; from pathlib import Path; from trt_ros import media; '
        'path, pixels = Path(sys.argv[1]), numpy.zeros((2, 2, 3), "uint8"); '
        'media.write_picture(path, pixels); '
        'assert media.read_picture(path).shape == (2, 2, 3)'
    )
    ascii_only = {'LC_ALL': 'POSIX', 'PYTHONUTF8': '0', 'PYTHONCOERCECLOCALE': '0'}
    run_script(code, tmp_path / 'é.png', **ascii_only)


def test_file_that_is_not_a_picture_reports_cause(tmp_path):
    (tmp_path / 'empty.png').touch()
    (tmp_path / 'text.png').write_text('no picture')
    (tmp_path / 'folder.png').mkdir()
    os.mkfifo(tmp_path / 'pipe.png')
    for name, cause in (
        ('empty', 'empty'),
        ('text', ''),
        ('folder', 'Is a directory'),
        ('pipe', 'Not a regular file'),
        ('missing', 'No such file'),
    ):
        with pytest.raises(BadFrameError, match=f'Cannot read .*{name}.png as') as caught:
            read_picture(tmp_path / f'{name}.png')
        assert cause in caught.value.cause and caught.value.kind == 'unreadable file'


def test_pictures_of_12_bits_in_16_are_reported_once_per_folder(tmp_path, caplog):
    levels = {'12 bits': (4095, 4000), 'full': (65535,), 'black': (0,), '8 bits': (15,)}
    for name, highest in levels.items():
        (tmp_path / name).mkdir()
        for value in highest:
            path = tmp_path / name / f'{value}.png'
            dtype = np.uint8 if name == '8 bits' else np.uint16
            write_picture(path, np.array([[[0, value, 0]]], dtype))
            read_picture(path)
    (warning,) = caplog.messages
    assert warning.startswith(f'Pictures in {tmp_path / "12 bits"} have 16 bits, but only values ')


def with_exif(webp, exif):
    """Return a WebP of PIXELS with EXIF data."""
    height, width = PIXELS.shape[:2]
    sizes = struct.pack('<I', width - 1)[:3] + struct.pack('<I', height - 1)[:3]
    exif += bytes(len(exif) % 2)
    chunks = b'VP8X' + struct.pack('<II', 10, 8) + sizes + webp[12:]
    chunks += b'EXIF' + struct.pack('<I', len(exif)) + exif
    return b'RIFF' + struct.pack('<I', 4 + len(chunks)) + b'WEBP' + chunks


def oriented(value, order='<', start=b''):
    mark = {'<': b'II', '>': b'MM'}[order]
    return start + struct.pack(f'{order}2sHIHHHIHHI', mark, 42, 8, 1, 274, 3, 1, value, 0, 0)


TRANSPOSED = PIXELS.swapaxes(0, 1)


@pytest.mark.parametrize(
    'exif, turned',
    [
        (oriented(1), PIXELS),
        (oriented(2), PIXELS[:, ::-1]),
        (oriented(3), PIXELS[::-1, ::-1]),
        (oriented(4, '>'), PIXELS[::-1]),
        (oriented(5), TRANSPOSED),
        (oriented(6), np.rot90(PIXELS, -1)),
        (oriented(7, start=b'Exif\0\0'), TRANSPOSED[::-1, ::-1]),
        (oriented(8, '>', b'Exif\0\0'), np.rot90(PIXELS)),
        (oriented(9), PIXELS),
        (oriented(6)[:18], PIXELS),
        (b'', PIXELS),
    ],
)
def test_a_webp_is_turned_by_its_exif_orientation(tmp_path, exif, turned):
    path = tmp_path / 'x.webp'
    webp = cv2.imencode('.webp', PIXELS, [cv2.IMWRITE_WEBP_QUALITY, 101])[1].tobytes()
    path.write_bytes(with_exif(webp, exif))
    assert np.array_equal(read_picture(path), turned)


def png_of_zeros(side):
    """Return a gray PNG of side x side pixels, without the memory of its pixels."""

    def chunk(name, content):
        checked = name + content
        return struct.pack('>I', len(content)) + checked + struct.pack('>I', zlib.crc32(checked))

    packer = zlib.compressobj(1)
    rows = b''.join(packer.compress(bytes(side + 1)) for _ in range(side)) + packer.flush()
    header = struct.pack('>IIBBBBB', side, side, 8, 0, 0, 0, 0)
    start = b'\x89PNG\r\n\x1a\n'
    return start + chunk(b'IHDR', header) + chunk(b'IDAT', rows) + chunk(b'IEND', b'')


@pytest.mark.slow
def test_a_small_file_of_many_pixels_takes_no_memory(tmp_path):
    # As a picture, with the name of a video (whose opening decodes it), and as a message.
    for name in ('bomb.png', 'bomb.mp4'):
        (tmp_path / name).write_bytes(png_of_zeros(12_000))
    code = (
        'import resource, sys, numpy; from pathlib import Path; from trt_ros import media; '
        'from trt_ros.errors import BadFrameError; from trt_ros.ros.frames import to_frame; '
        'from trt_ros.ros.dds.cdr import EncodedView\n'
        'picture, video = map(Path, sys.argv[1:])\n'
        'message = EncodedView((0, 0), "", "png", numpy.fromfile(picture, "uint8"))\n'
        'roads = (media.read_picture, picture), (media.open_video, video), (to_frame, message)\n'
        'before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n'
        'for road, source in roads:\n'
        '    try: road(source)\n'
        '    except BadFrameError as error: print(error.kind)\n'
        'print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)'
    )
    paths = tmp_path / 'bomb.png', tmp_path / 'bomb.mp4'
    lines = run_script(code, *paths).stdout.splitlines()
    assert lines[:-1] == 3 * ['too many pixels']
    assert int(lines[-1]) < 30_000  # KiB; the pixels alone have 140,000.


@pytest.mark.parametrize('rate_hz, written', [(0.001, 10), (0.5, 0.5), (1000, 1000), (9e4, 10)])
def test_a_rate_that_the_encoder_refuses_is_replaced(tmp_path, rate_hz, written):
    path = tmp_path / 'video.mp4'
    write_video(path, 2 * [np.zeros((48, 64, 3), np.uint8)], rate_hz)
    assert [rate for _, rate in read_video(path)] == 2 * [pytest.approx(written)]


def test_a_video_of_too_many_pixels_is_refused(tmp_path):
    path = tmp_path / 'video.avi'
    write_video(path, [np.zeros((48, 64, 3), np.uint8)])
    assert [pixels.shape for pixels, _ in read_video(path, 64 * 48)] == [(48, 64, 3)]
    with pytest.raises(BadFrameError, match='64 × 48 pixels, more than') as caught:
        next(read_video(path, 64 * 48 - 1))
    assert caught.value.kind == 'too many pixels'
    assert 'Set max_image_pixels to 3072' in caught.value.remedy


def test_a_folder_of_pictures_may_have_other_files(tmp_path):
    write_picture(tmp_path / 'b.png', PIXELS)
    (tmp_path / 'a.gif').write_bytes(b'GIF89a')
    os.mkfifo(tmp_path / 'pipe.png')
    assert [pixels.shape for pixels in read_images(tmp_path)] == [(4, 6, 3)]
    said = r'Cannot read .*b.png as a picture(?s:.*)6 × 4 pixels, more than max_image_pixels = 23'
    with pytest.raises(BadFrameError, match=said):
        next(read_images(tmp_path, 23))


@pytest.mark.parametrize('name', ['out', 'x.txt', '.png', f'x.{LATIN_1}'])
def test_a_name_without_the_suffix_of_a_picture_is_refused(tmp_path, name):
    for refuse in (check_picture_path, lambda path: write_picture(path, PIXELS)):
        with pytest.raises(ParameterError, match='Unsupported picture format'):
            refuse(tmp_path / name)


@pytest.mark.parametrize(
    ('name', 'width', 'text'),
    [
        ('x.jpg', 70_000, '70000 × 1 pixels of uint8 do not fit'),
        ('nowhere/x.png', 6, 'nowhere(?s:.*)Cause: (?s:.*)No such file'),
    ],
)
def test_a_picture_that_cannot_be_written_is_an_error(tmp_path, name, width, text):
    with pytest.raises(ParameterError, match=text):
        write_picture(tmp_path / name, np.zeros((1, width, 3), np.uint8))


def test_a_full_disk_leaves_no_part_of_a_picture_or_a_video(tmp_path):
    code = (
        'import resource, sys; import numpy; from pathlib import Path\n'
        'from trt_ros.errors import ParameterError; from trt_ros import media\n'
        'resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n'
        'folder, rng = Path(sys.argv[1]), numpy.random.default_rng(0)\n'
        'pixels = rng.integers(0, 256, (20, 48, 64, 3), "uint8")\n'
        'def write_video(path, pixels):\n'
        '    writer = media.VideoWriter(path, 10.0, (64, 48))\n'
        '    for each in pixels: writer.write(each)\n'
        '    writer.release()\n'
        'for write, name, data in (\n'
        '    (media.write_picture, "a.png", pixels.reshape(-1, 64, 3)),\n'
        '    (media.write_npz, "a.npz", {"a": pixels}), (write_video, "a.mp4", pixels)\n'
        '):\n'
        '    try: write(folder / name, data)\n'
        '    except ParameterError as error: print(error.cause)'
    )
    said = 'The file had 0 of its 20 pictures: the disk may be full.\n'
    assert run_script(code, tmp_path).stdout == 2 * 'File too large\n' + said
    assert not list(tmp_path.iterdir())


def test_a_video_may_have_the_name_of_a_time_in_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_video(Path('12:30.mp4'), [np.zeros((48, 64, 3), np.uint8)])
    assert len(list(read_video(Path('12:30.mp4')))) == 1


def test_files_that_are_no_video_or_have_no_picture_and_names_beyond_opencv_are_refused(tmp_path):
    path = tmp_path / f'{LATIN_1}.mp4'
    with pytest.raises(ParameterError, match='not UTF-8'):
        VideoWriter(path, 25.0, (64, 48))
    path.write_bytes(b'no video')
    with pytest.raises(BadFrameError, match='not UTF-8') as caught:
        open_video(path)
    assert r'caf\udce9.mp4' in caught.value.problem  # So that it can be logged.
    os.mkfifo(tmp_path / 'pipe.mp4')
    with pytest.raises(BadFrameError, match='Not a regular file'):
        open_video(tmp_path / 'pipe.mp4')
    # OpenCV reads numbered files with its pictures decoders.
    picture = tmp_path / 'image_0001.mp4'
    picture.write_bytes(b'#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 9 +X 9\n')
    for path in (Path(__file__), picture):
        with pytest.raises(BadFrameError, match='does not support the format'):
            open_video(path)
    path = tmp_path / 'video.mp4'
    write_video(path, [np.zeros((48, 64, 3), np.uint8)])
    data = path.read_bytes()
    head, packets, index = data.partition(b'mdat')[0], *data.partition(b'mdat')[2].split(b'moov')
    path.write_bytes(head + b'mdat' + bytes(len(packets) - 4) + packets[-4:] + b'moov' + index)
    with pytest.raises(BadFrameError, match='decodes none of its pictures'):
        open_video(path)


def frames_before_damage(path, cause):
    """Count the frames that are read before an error with a cause; all of them without."""
    count = 0
    try:
        for _ in read_images(path):
            count += 1
    except BadFrameError as error:
        assert error.kind == 'damaged video' and f'{count} of its pictures were' in error.problem
        assert cause and cause in error.cause
    else:
        assert not cause
    return count


CUT = 'The file is shorter than its header says.'


@pytest.mark.parametrize('suffix', ['mkv', 'avi'])
def test_a_video_that_was_cut_off_is_an_error_behind_its_last_picture(tmp_path, suffix):
    path = tmp_path / f'video.{suffix}'
    noise = np.random.default_rng(0).integers(0, 256, (10, 48, 64, 3), np.uint8)
    write_video(path, noise)
    data = path.read_bytes()
    assert frames_before_damage(path, '') == 10
    path.write_bytes(data[: len(data) // 2])
    assert 0 < frames_before_damage(path, CUT) < 10
    # Of a stream, whose length was not known when it was written.
    at, unknown = (
        (data.index(b'\x18S\x80g') + 4, b'\x01' + 7 * b'\xff')
        if suffix == 'mkv'
        else (4, 4 * b'\xff')
    )
    data = data[:at] + unknown + data[at + len(unknown) :]
    path.write_bytes(data[: len(data) // 2])
    assert 0 < frames_before_damage(path, '') < 10


def test_a_node_gets_the_damage_of_a_video_once_each_time_it_is_played(tmp_path):
    path = tmp_path / 'video.mkv'
    write_video(path, np.random.default_rng(0).integers(0, 256, (4, 48, 64, 3), np.uint8))
    path.write_bytes(path.read_bytes()[:-2000])
    source = open_source(str(path))
    for _ in range(2):
        with pytest.raises(BadFrameError, match=r'is damaged: [123] of its pictures were read'):
            while source.read() is not None:
                pass
        assert source.read() is None
        source.rewind()
    source.close()


@pytest.mark.parametrize('length', [b'\x01' + 7 * b'\xff', b'\x00' + 8 * b'\xff', b'', b'\x84'])
def test_lengths_beyond_those_of_files_are_not_searched(tmp_path, length):
    path = tmp_path / 'video.mkv'
    path.write_bytes(b'\x1aE\xdf\xa3' + length)
    assert not is_cut_off(path)


@pytest.mark.parametrize(
    'part, cause',
    [
        (struct.pack('>I4sQ', 16, b'free', 0), ''),
        (struct.pack('>I4sQ', 17, b'free', 0), ''),  # Of a camera, maybe not a part of MP4.
        (struct.pack('>I4sQ', 17, b'mdat', 0), CUT),
        (struct.pack('>I4sQ', 17, b'moof', 0), CUT),
        (struct.pack('>I4sQ', 1, b'mdat', 17), CUT),
        (struct.pack('>I4sQ', 1, b'mdat', 16), ''),
        (struct.pack('>I4sQ', 0, b'mdat', 0), ''),
    ],
)
def test_the_last_part_of_an_mp4_is_whole(tmp_path, part, cause):
    path = tmp_path / 'video.mp4'
    write_video(path, 3 * [np.zeros((48, 64, 3), np.uint8)])
    path.write_bytes(path.read_bytes() + part)
    assert frames_before_damage(path, cause) == 3


def test_a_video_ends_with_an_error_where_its_stream_is_damaged(tmp_path):
    av = pytest.importorskip('av')
    path = tmp_path / 'video.mp4'
    rng = np.random.default_rng(0)
    with av.open(str(path), 'w') as container:
        stream = container.add_stream('libx264', rate=25, options={'bf': '0'})
        stream.width, stream.height, stream.pix_fmt = 64, 48, 'yuv420p'
        for _ in range(20):
            pixels = rng.integers(0, 256, (48, 64, 3), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format='bgr24')))
        container.mux(stream.encode(None))
    assert frames_before_damage(path, '') == 20
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 8000] = bytes(8000)
    path.write_bytes(data)
    assert 0 < frames_before_damage(path, 'OpenCV cannot decode what follows.') < 20


@pytest.mark.parametrize('wh, written', [((1, 1), (2, 2)), ((1, 64), (2, 64)), ((64, 1), (64, 2))])
def test_a_video_of_one_column_or_row_is_written_with_two(tmp_path, wh, written):
    path = tmp_path / 'video.mp4'
    write_video(path, 2 * [np.full((*wh[::-1], 3), 200, np.uint8)])
    assert [each.shape[1::-1] for each in read_images(path)] == 2 * [written]


def test_text_that_is_not_unicode_is_drawn_escaped():
    pixels = np.zeros((40, 200, 3), np.uint8)
    label = Label('a\ud800', (255, 255, 255))
    draw_label(pixels, label, (0, 0), text_scale=0.5, thickness=1)
    assert pixels.any()
    assert in_rows([[Panel(pixels, LATIN_1)]]).any()
