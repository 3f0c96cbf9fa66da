"""Packets of videos on topics: every one is decoded, the newest picture is inferred."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip('av')
foxglove = pytest.importorskip('foxglove_msgs.msg')
ffmpeg = pytest.importorskip('ffmpeg_image_transport_msgs.msg')

from builtin_interfaces.msg import Time  # noqa: E402
from diagnostic_msgs.msg import DiagnosticArray  # noqa: E402
from rclpy.qos import QoSProfile  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from std_msgs.msg import Header  # noqa: E402
from vision_msgs.msg import Detection2DArray  # noqa: E402

from support.ros_messages import diagnostics as diagnostics_of  # noqa: E402
from support.ros_messages import picture, values_of  # noqa: E402
from support.videos import encode  # noqa: E402
from support.waiting import wait_until  # noqa: E402

SENT = QoSProfile(depth=100)


class Camera:
    """A camera that publishes a video of a red rectangle, which moves by 8 pixels per picture."""

    def __init__(self, peer, topic, kind, codec='h264', count=10, **options):
        self.kind, self.codec = kind, codec
        pictures = [picture(xyxy=self.box(n))[..., ::-1] for n in range(count)]
        self.packets = encode(codec, pictures, **options)
        self.publisher = peer.connected(kind, topic, SENT)

    @staticmethod
    def box(number):
        return (8 * (number % 5), 16, 8 * (number % 5) + 64, 64)

    def send(self, *packets, data=None):
        """Publish packets by their place in the stream, stamped with the number of the picture."""
        for place in packets:
            number, content = self.packets[place]
            stamp = Time(sec=100 + number, nanosec=7)
            content = (content if data is None else data).tobytes()
            if self.kind is foxglove.CompressedVideo:
                message = self.kind(
                    timestamp=stamp, frame_id='front', data=content, format=self.codec
                )
            else:
                message = self.kind(
                    header=Header(stamp=stamp, frame_id='front'),
                    width=128,
                    height=128,
                    encoding=f'{self.codec};yuv420p;bgr8;bgr8',
                    pts=number,
                    data=content,
                )
            self.publisher.publish(message)


@pytest.fixture
def camera(peer):
    return partial(Camera, peer)


@pytest.fixture
def detector(fake_detector, peer):
    """Start a detector of videos and wait until it is active."""

    def start(name, **parameters):
        node = fake_detector(
            *(name, '-r', f'image:=/{name}/image'),
            image_transport='video',
            autostart=True,
            **parameters,
        )
        node.image = f'/{name}/image'
        node.wait_for_log('Started: active.')
        if not parameters.get('lazy'):
            node.found = peer.inbox(Detection2DArray, f'/{name}/detections', SENT)
        return node

    return start


def check(node, number):
    """Wait for the detections of a picture and check them; the codec is not lossless."""
    found = node.found.wait_for(lambda found: found.header.stamp.sec == 100 + number)
    assert found.header == Header(stamp=Time(sec=100 + number, nanosec=7), frame_id='front')
    best = found.detections[0]
    center, size = best.bbox.center.position, (best.bbox.size_x, best.bbox.size_y)
    left, top, right, bottom = Camera.box(number)
    expected = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
    assert np.abs(np.subtract((center.x, center.y, *size), expected)).max() <= 4
    assert best.results[0].hypothesis.class_id == 'red'


def numbers(node):
    return [found.header.stamp.sec - 100 for found in node.found.messages]


def dropped(node, cause, count):
    """Wait until the diagnostics have so many packets of a cause."""
    diagnostics_of(node.peer, node.name)(**{f'dropped: {cause}': str(count)})


@pytest.mark.parametrize(
    ('codec', 'kind', 'suffix'),
    [
        ('h264', ffmpeg.FFMPEGPacket, '/ffmpeg'),
        ('h265', foxglove.CompressedVideo, '/foxglove'),
        ('av1', foxglove.CompressedVideo, ''),
    ],
    ids=['h264', 'h265', 'av1'],
)
def test_each_picture_from_a_key_frame_on_has_its_detections(
    detector, camera, kind, suffix, codec
):
    node = detector(codec)
    video = camera(node.image + suffix, kind, codec)
    for place in range(3, 10):
        video.send(place)
        if place > 4:
            check(node, place)
    assert numbers(node) == [5, 6, 7, 8, 9]
    assert f'image{suffix}: subscribed to {kind.__name__}' in node.log
    dropped(node, 'waiting for a key frame', 2)


def test_lost_repeated_and_damaged_packets_are_told_and_the_next_key_frame_is_inferred(
    detector, camera
):
    node = detector('lossy')
    video = camera(node.image, ffmpeg.FFMPEGPacket, count=15)
    for place in (*range(7), 8, 9, 10, 11):
        video.send(place)
        if place not in (8, 9):
            check(node, place)
    video.send(11)
    dropped(node, 'repeated video packet', 1)
    video.send(12, data=np.full(30, 7, np.uint8))
    video.send(13)
    dropped(node, 'lost video packets', 1)
    dropped(node, 'damaged video packet', 1)
    dropped(node, 'waiting for a key frame', 2)
    assert numbers(node) == [*range(7), 10, 11]
    assert 'A video packet of 30 bytes cannot be decoded before the next key frame.' in node.log


def test_every_packet_is_decoded_and_the_newest_inferred(detector, camera, tmp_path):
    node = detector('holding', model_path=f'runs:{tmp_path}', frames_in_flight=1)
    video = camera(f'{node.image}/video', foxglove.CompressedVideo)
    before = len([*tmp_path.iterdir()])  # Of the runs at configure.
    video.send(0)
    wait_until((tmp_path / str(before)).exists, 'the first run')
    video.send(*range(1, 10))
    dropped(node, 'replaced by a newer frame', 8)
    (tmp_path / 'go').touch()
    check(node, 9)
    assert numbers(node) == [0, 9]


def test_b_frames_are_told_and_results_keep_the_stamp_of_their_picture(detector, camera):
    node = detector('reordered')
    video = camera(node.image, foxglove.CompressedVideo, b_frames=2)
    for place in range(10):
        video.send(place)
        if place >= 2:
            check(node, place - 2)
    node.wait_for_log('the video has B-frames, so that each result is 2 frames late.')
    assert numbers(node) == list(range(8))


def test_a_lazy_node_decodes_nothing_and_starts_at_a_key_frame(detector, camera, peer):
    node = detector('lazy_video', lazy=True)
    video = camera(node.image, foxglove.CompressedVideo)
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')

    def has_dropped():  # The first packets may be lost.
        video.send(3)
        return any('dropped: no subscribers' in values_of(each) for each in diagnostics.messages)

    wait_until(has_dropped, 'packets without a subscriber')
    node.found = peer.inbox(Detection2DArray, '/lazy_video/detections', SENT)
    # The node counts its subscribers itself.
    wait_until(lambda: video.send(3) or 'waiting for a key frame' in node.log, 'a subscriber')
    video.send(5)
    check(node, 5)


def test_the_overlay_draws_on_the_pictures(start_node, detector, camera, peer):
    node = detector('drawer')
    names = ('-r', f'image:={node.image}', '-r', 'detections:=/drawer/detections')
    start_node('overlay', 'trt_ros.nodes.overlay', *names, image_transport='video')
    drawn = peer.inbox(Image, '/overlay/image', SENT)
    video = camera(f'{node.image}/ffmpeg', ffmpeg.FFMPEGPacket)

    def is_drawn():  # The first packets and detections may be lost.
        video.send(*range(10))
        return [each for each in drawn.messages if each.header.stamp.sec == 109]

    (image, *_) = wait_until(is_drawn, 'a drawn image')
    assert (image.width, image.height, image.header.frame_id) == (128, 128, 'front')
