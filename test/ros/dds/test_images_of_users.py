"""Nodes of users that receive and send images as those of the package do."""

import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import textwrap

from demo.scene import held_out
import pytest
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from support.dds import RELIABLE, Inbox
from support.shared_images import NBYTES
from support.waiting import wait_until
from trt_ros.demo import MODEL
from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr import read_image
from trt_ros.ros.images import ImageSender, subscribe_images


def test_nodes_of_users_receive_and_send_images(node, subscribe, other):
    camera, far, frames = other('publish'), Inbox(read_image), Inbox()

    def on_image(frame, header):
        if header.stamp.sec == 2:
            raise ValueError('two')  # Logged; the next one arrives.
        frames((header.stamp.sec, header.frame_id, frame.wh, set(frame.data)))

    subscription = subscribe_images(node, 'images', on_image)
    wait_until(lambda: camera.send(1) and frames.messages)
    camera.send(2)
    wait_until(lambda: camera.send(3) and frames.messages[-1][0] == 3)
    expected = [(number, 'camera', (NBYTES, 1), {number}) for number in (1, 3)]
    assert all(each in expected for each in frames.messages)
    subscription.close()
    sender = ImageSender(node, node.create_publisher(Image, 'images', RELIABLE))
    subscribe(node, far)
    wait_until(sender.publisher.get_subscription_count)
    sender.begin(Header(), (100, 1), 'rgb8')[:] = 1, 2, 3
    sender.send()
    with pytest.raises(RuntimeError, match='without begin'):
        sender.send()
    (image,) = far.wait(1)
    assert (image.encoding, bytes(image.data[:4])) == ('rgb8', bytes([1, 2, 3, 1]))
    for channels, encoding in enumerate(['16UC1', 'bayer_rggb8', 'yuv422', '8UC3', 'rgba8']):
        pixels = sender.begin(Header(), (4, 2), encoding)
        assert pixels.shape == ((2, 4, channels) if channels > 1 else (2, 4))
        pixels[:] = 258 if encoding == '16UC1' else 7
        sender.send()
        image = far.wait(channels + 2)[-1]
        assert image.encoding == encoding and image.data.size == image.step * 2 == pixels.nbytes
        assert set(image.data.tolist()) == ({1, 2} if encoding == '16UC1' else {7})
    with pytest.raises(BadFrameError, match="'nv12' cannot be sent"):
        sender.begin(Header(), (4, 2), 'nv12')


def test_the_node_of_the_page_draws_on_images(node, subscribe, domain_id, tmp_path):
    page = Path(__file__).parents[3] / 'docs/python_api.md'
    code = re.search(r'((?:    .*\n|\n)*    rclpy\.spin\(node\)\n)', page.read_text()).group(1)
    shutil.copy(MODEL, tmp_path / 'model.onnx')
    environment = {'ROS_DOMAIN_ID': str(domain_id), 'XDG_CACHE_HOME': str(tmp_path)}
    drawn, shown = Inbox(read_image), next(held_out(1))[0]
    sender = ImageSender(node, node.create_publisher(Image, 'image', RELIABLE))
    subscribe(node, drawn, topic='drawn')
    process = subprocess.Popen(
        [sys.executable, '-c', textwrap.dedent(code)],
        cwd=tmp_path,
        env={**os.environ, **environment, 'PYTHONPATH': os.pathsep.join(sys.path)},
    )
    try:

        def is_drawn():
            assert process.poll() is None
            height, width = shown.shape[:2]
            sender.begin(Header(), (width, height))[:] = shown
            sender.send()
            return drawn.messages

        (image, *_) = wait_until(is_drawn, 'a drawn image')
        assert image.data.size == shown.size and (image.data != shown.reshape(-1)).any()
    finally:
        process.kill()
        process.wait()
