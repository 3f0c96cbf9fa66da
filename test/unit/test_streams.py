"""Streams by their address: a camera of RTSP in another process."""

from contextlib import closing
from pathlib import Path
import socket
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip('av')

import av

from support.videos import moving_disc
import trt_ros
from trt_ros.errors import BadFrameError
from trt_ros.ros.sources import open_source
from trt_ros.video import read_stream

CAMERA = """
import sys, time
import av
from support.videos import moving_disc

while True:
    camera = av.open(sys.argv[1], 'w', format='rtsp', options={'rtsp_transport': 'tcp'})
    stream = camera.add_stream('libx264', rate=30, options={'tune': 'zerolatency'})
    stream.width, stream.height, stream.pix_fmt, stream.gop_size = 128, 96, 'yuv420p', 5
    try:
        camera.start_encoding()
        break
    except ConnectionRefusedError:  # The reader does not listen yet.
        time.sleep(0.01)
for number, pixels in enumerate(moving_disc(12)):
    frame = av.VideoFrame.from_ndarray(pixels, format='bgr24')
    frame.pts = number
    camera.mux(stream.encode(frame))
camera.mux(stream.encode(None))
camera.close()
"""


@pytest.fixture
def address():
    with closing(socket.socket()) as free:
        free.bind(('127.0.0.1', 0))
        return f'rtsp://127.0.0.1:{free.getsockname()[1]}/camera'


def test_the_pictures_of_a_camera_of_rtsp_are_read(address):
    command = [sys.executable, '-c', CAMERA, address]
    listening = {'rtsp_flags': 'listen', 'listen_timeout': '60000'}
    with subprocess.Popen(command, cwd=Path(__file__).parents[1]) as camera:
        frames = [*read_stream(address, options=listening)]
        assert camera.wait() == 0
    assert [(frame.wh, frame.encoding) for frame in frames] == [((128, 96), 'nv12')] * 12


def test_a_stream_that_is_not_there_is_told_without_its_password(address):
    secret = address.replace('//', '//user:secret@')
    with pytest.raises(BadFrameError) as caught:
        next(trt_ros.read_images(secret))
    assert f'Stream {address} cannot be read.\nCause: Connection refused' in str(caught.value)
    source = open_source(secret)
    assert source.description == f'stream {address}'
    with pytest.raises(BadFrameError, match=f'Stream {address} cannot be read'):
        source.read()
    source.close()


def test_a_source_gives_pictures_of_a_stream(tmp_path):
    path = tmp_path / 'video.mkv'
    with av.open(str(path), 'w') as file:
        stream = file.add_stream('libx264', rate=30)
        stream.width, stream.height, stream.pix_fmt = 128, 96, 'yuv420p'
        for pixels in moving_disc(5):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format='bgr24')))
        file.mux(stream.encode(None))
    source = open_source(f'file://{path}')
    try:
        pixels = source.read()
    finally:
        source.close()
    assert pixels.shape == (96, 128, 3)
    assert np.abs(pixels.astype(int) - moving_disc(1)[0]).mean() < 60
    assert len([*trt_ros.read_images(f'file://{path}')]) == 5
