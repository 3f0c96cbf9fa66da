"""Pictures are published as images; detections are drawn on the image of their stamp."""

import os
from pathlib import Path
import re

import cv2
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Point, Pose, Vector3
import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header
from vision_msgs.msg import (
    BoundingBox3D,
    Detection2DArray,
    Detection3D,
    Detection3DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
)

from support.ros_messages import as_image, detection, values_of
from support.ros_nodes import own_topics
from trt_ros.errors import ParameterError
from trt_ros.media import write_picture
from trt_ros.ros.camera_info import load_calibration

CALIBRATION = """
image_width: 8
image_height: 4
camera_name: front
camera_matrix: {rows: 3, cols: 3, data: [10, 0, 4, 0, 11, 2, 0, 0, 1]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [0.1, 0.2, 0, 0, 0]}
rectification_matrix: {rows: 3, cols: 3, data: [1, 0, 0, 0, 1, 0, 0, 0, 1]}
projection_matrix: {rows: 3, cols: 4, data: [10, 0, 4, 0, 0, 11, 2, 0, 0, 0, 1, 0]}
"""


BOMB = '\n'.join(
    [
        'a0: &a0 {x: 1}',
        *(f'a{i}: &a{i} {{<<: [{", ".join([f"*a{i - 1}"] * 9)}]}}' for i in range(1, 10)),
    ]
)
LATIN_1 = os.fsdecode(b'2\xe9.png')


def gray(value, size_wh=(8, 4)):
    return np.full((size_wh[1], size_wh[0], 3), value, np.uint8)


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    """Three gray pictures and one that is none; picture 10 comes after picture 2."""
    folder = tmp_path_factory.mktemp('pictures')
    for name, value in (('10.png', 30), (LATIN_1, 20), ('1.png', 10)):
        write_picture(folder / name, gray(value))
    (folder / '3.png').write_bytes(b'no picture')
    (folder / 'notes.txt').write_text('no picture either')
    (folder / 'calibration.yaml').write_text(CALIBRATION)
    return folder


def test_a_folder_is_published_once_in_order_with_its_calibration(start_node, folder):
    node = start_node(
        'pictures',
        'trt_ros.nodes.image_source',
        *('-r', 'image:=/front/image_raw'),
        autostart=False,
        source=str(folder),
        rate_hz=50.0,
        loop=False,
        compressed=True,
        frame_id='front',
        calibration_path=str(folder / 'calibration.yaml'),
    )
    assert node.change('configure')
    peer = node.peer
    images = peer.inbox(Image, '/front/image_raw')
    compressed = peer.inbox(CompressedImage, '/front/image_raw/compressed')
    infos = peer.inbox(CameraInfo, '/front/camera_info')
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')
    assert node.change('activate')
    node.wait_for_log('Published all pictures.')
    for box in (images, compressed, infos):
        peer.wait_until(lambda box=box: len(box.messages) == 3, 'three messages')
    for image, jpeg, info, value in zip(
        images.messages, compressed.messages, infos.messages, (10, 20, 30)
    ):
        assert (image.width, image.height, image.step, image.encoding) == (8, 4, 24, 'bgr8')
        assert bytes(image.data) == bytes([value]) * 96
        assert image.header == info.header == jpeg.header
        assert image.header.frame_id == 'front'
        decoded = cv2.imdecode(np.frombuffer(jpeg.data, np.uint8), cv2.IMREAD_UNCHANGED)
        assert np.abs(decoded.astype(int) - value).max() <= 2
        assert (info.width, info.height, info.distortion_model) == (8, 4, 'plumb_bob')
        assert info.k.tolist() == [10, 0, 4, 0, 11, 2, 0, 0, 1]
        assert info.p.tolist() == [10, 0, 4, 0, 0, 11, 2, 0, 0, 0, 1, 0]
        assert list(info.d) == [0.1, 0.2, 0, 0, 0]
    stamps = [(image.header.stamp.sec, image.header.stamp.nanosec) for image in images.messages]
    assert stamps == sorted(set(stamps))
    diagnostics.wait_for(lambda array: values_of(array).get('dropped: unreadable file') == '1')
    assert '3.png as a picture' in node.log


def test_a_video_loops_and_another_size_is_uncalibrated(start_node, tmp_path, folder):
    video = tmp_path / 'video.avi'
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter_fourcc(*'MJPG'), 100, (64, 48))
    for value in (50, 200):
        writer.write(gray(value, (64, 48)))
    writer.release()
    node = start_node(
        'video',
        'trt_ros.nodes.image_source',
        *own_topics('video', 'image', 'camera_info'),
        source=str(video),
        rate_hz=0.0,
        calibration_path=str(folder / 'calibration.yaml'),
    )
    images = node.peer.inbox(Image, '/video/image')
    info = node.peer.inbox(CameraInfo, '/video/camera_info').wait_for()
    node.peer.wait_until(lambda: len(images.messages) >= 5, 'the video to begin again')
    levels = [round(np.mean(image.data) / 150) for image in images.messages[:5]]
    assert levels in ([0, 1, 0, 1, 0], [1, 0, 1, 0, 1])
    assert (info.width, info.height, info.k.tolist()) == (64, 48, [0.0] * 9)
    node.wait_for_log('The calibration is for 8x4, but the image is 64x48')


def test_a_topic_of_a_recording_is_published_at_its_own_rate(start_node, tmp_path):
    from support.recordings import compressed_image, raw_image, write_recording

    path = write_recording(
        tmp_path / 'drive',
        [('/front/image_raw', index, raw_image(index, gray(10 * index))) for index in range(4)]
        + [('/back/compressed', 4, compressed_image(4, gray(99)))],
    )
    node = start_node(
        'recording',
        'trt_ros.nodes.image_source',
        *own_topics('recorded', 'image', 'camera_info'),
        autostart=False,
        source=str(path),
        rate_hz=0.0,
        loop=False,
    )
    assert not node.change('configure')
    node.wait_for_log('has several image topics: /front/image_raw, /back/compressed.')
    assert node.set(source=f'{path}#/front/image_raw') == ''
    assert node.change('configure')
    images = node.peer.inbox(Image, '/recorded/image')
    assert node.change('activate')
    node.wait_for_log('Published all pictures.')
    node.peer.wait_until(lambda: len(images.messages) == 4, 'four images')
    assert [image.data[0] for image in images.messages] == [0, 10, 20, 30]
    stamps = [image.header.stamp for image in images.messages]
    seconds = [stamp.sec + stamp.nanosec * 1e-9 for stamp in stamps]
    assert seconds[-1] - seconds[0] > 3 / 8  # Three intervals at 7.5 Hz: 4 images in 0.4 s.


@pytest.mark.parametrize(
    'text, why',
    [
        ('', 'NoneType'),
        (BOMB, 'aliases'),
        ('[' * 5000, 'Recursion'),
        ('x: ' + 'a' * 2**20, 'bytes'),
        (CALIBRATION.replace('image_width: 8', 'image_width: eight'), 'eight'),
        (CALIBRATION.replace('image_width: 8', 'image_width: -8'), 'image_width is -8'),
        (CALIBRATION.replace('10, 0, 4', f'1{"0" * 400}, 0, 4'), 'too large'),
    ],
)
def test_a_hostile_calibration_is_refused_at_once(tmp_path, text, why):
    (tmp_path / 'calibration.yaml').write_text(text)
    with pytest.raises(ParameterError, match='cannot be loaded') as caught:
        load_calibration(str(tmp_path / 'calibration.yaml'))
    assert re.search(why, caught.value.cause)


def test_a_picture_of_too_many_pixels_is_dropped(start_node, tmp_path):
    write_picture(tmp_path / '1.png', gray(10))
    node = start_node(
        'limited',
        'trt_ros.nodes.image_source',
        *own_topics('limited', 'image'),
        source=str(tmp_path),
        max_image_pixels=31,
    )
    node.wait_for_log('A frame was dropped (too many pixels).')
    node.wait_for_log('The image has 8 × 4 pixels, more than max_image_pixels = 31.')


@pytest.fixture(scope='module')
def overlay(start_node, tmp_path_factory):
    """An active overlay and its topics; it keeps two that wait."""

    class Overlay:
        folder = tmp_path_factory.mktemp('overlay') / 'made' / 'by the node'
        node = start_node(
            'overlay',
            'trt_ros.nodes.overlay',
            output_dir=str(folder),
            queue_size=2,
            qos_reliability='reliable',
            qos_depth=50,
        )
        images = node.peer.connected(Image, '/image')
        detections = node.peer.connected(Detection2DArray, '/detections')
        drawn = node.peer.inbox(Image, '/overlay/image')

        @classmethod
        def is_answering(cls):
            """Its first answers are lost while it has not discovered who takes them."""
            image = as_image(gray(0, (8, 8)), 'rgb8', stamp=0)
            cls.images.publish(image)
            cls.detections.publish(Detection2DArray(header=image.header))
            return cls.drawn.messages

    Overlay.node.peer.wait_until(Overlay.is_answering, 'a drawn image')
    return Overlay


def one_detection(header):
    found = detection(100, 120, 80, 60, score=0.5, class_id='weed')
    return Detection2DArray(header=header, detections=[found])


@pytest.mark.parametrize('stamp, first', [(1, 'image'), (2, 'detections')])
def test_a_box_is_drawn_on_the_image_of_the_same_stamp_whichever_comes_first(
    overlay, stamp, first
):
    image = as_image(gray(90, (200, 200)), 'rgb8', stamp=stamp)
    detections = one_detection(image.header)
    other = as_image(gray(91, (200, 200)), 'rgb8', stamp=stamp)
    other.header.stamp.nanosec = 500_000_000
    if first == 'image':
        overlay.images.publish(image)
        overlay.images.publish(other)
        overlay.detections.publish(detections)
    else:
        overlay.detections.publish(detections)
        overlay.images.publish(other)
        overlay.images.publish(image)
    drawn = overlay.drawn.wait_for(lambda drawn: drawn.header.stamp.sec == stamp)
    assert (drawn.header, drawn.encoding) == (image.header, 'bgr8')
    pixels = np.array(drawn.data, np.uint8).reshape(200, 200, 3)
    is_drawn = (pixels != 90).any(axis=2)
    # The box from (60, 90) to (140, 150): its edges, not its inside, nor what is far away.
    assert is_drawn[90:150, 60].all() and is_drawn[150, 60:140].all()
    assert not is_drawn[100:140, 70:130].any() and not is_drawn[160:].any()
    assert is_drawn[75:88, 62:90].any()  # The name above it.
    path = overlay.folder / f'{stamp}.{7:09d}.png'
    overlay.node.peer.wait_until(path.exists, path)
    assert np.array_equal(cv2.imread(str(path)), pixels)


def test_style_and_trails_change_while_the_node_runs(overlay):
    def draw(stamp, x):
        image = as_image(gray(90, (200, 200)), 'rgb8', stamp=stamp)
        found = one_detection(image.header)
        found.detections[0].id, found.detections[0].bbox.center.position.x = 'a7', x
        overlay.images.publish(image)
        overlay.detections.publish(found)
        drawn = overlay.drawn.wait_for(lambda drawn: drawn.header.stamp.sec == stamp)
        return drawn.encoding, np.array(drawn.data, np.uint8).reshape(200, 200, -1)

    settings = {'label_size': 0.0, 'line_width': 1, 'trail_seconds': 30.0}
    assert overlay.node.set(**settings, transparent_background=True) == ''
    draw(4, 80.0)
    encoding, pixels = draw(5, 120.0)
    assert encoding == 'bgra8'
    assert (pixels[120, 80:121, 3] == 255).all() and (pixels[100, 85:155] == 0).all()
    assert (pixels[:90] == 0).all()  # No label.
    path = overlay.folder / f'5.{7:09d}.png'
    overlay.node.peer.wait_until(path.exists, path)
    assert np.array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED), pixels)
    assert overlay.node.set(trail_seconds=0.0, transparent_background=False) == ''
    encoding, pixels = draw(6, 120.0)
    assert encoding == 'bgr8' and (pixels[120, 85:115] == 90).all()
    assert overlay.node.set(label_size=1.0, line_width=0) == ''
    assert overlay.node.set(label_size=0.05) != ''  # Neither 0 nor in the range.


def test_nothing_is_drawn_without_subscribers(start_node, peer):
    topics = own_topics('unseen', 'image', 'detections')
    node = start_node('unseen_overlay', 'trt_ros.nodes.overlay', *topics)
    images = peer.connected(Image, '/unseen/image')
    detections = peer.connected(Detection2DArray, '/unseen/detections')
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')
    stamps = iter(range(1, 10000))

    def dropped():
        image = as_image(gray(90, (8, 8)), 'rgb8', stamp=next(stamps))
        images.publish(image)
        detections.publish(Detection2DArray(header=image.header))
        found = [each for each in diagnostics.messages if 'unseen' in each.status[0].name]
        return found and int(values_of(found[-1]).get('dropped: no subscribers', 0)) > 3

    peer.wait_until(dropped, 'images without subscribers')
    assert values_of(diagnostics.messages[-1])['frames published'] == '0', node.log


def box_in_space(header, frame_id):
    header = Header(stamp=header.stamp, frame_id=frame_id)
    result = ObjectHypothesisWithPose(hypothesis=ObjectHypothesis(class_id='weed', score=0.5))
    box = BoundingBox3D(
        center=Pose(position=Point(x=0.0, y=0.0, z=2.5)), size=Vector3(x=1.0, y=1.0, z=1.0)
    )
    found = Detection3D(header=header, results=[result], bbox=box)
    return Detection3DArray(header=header, detections=[found])


def test_boxes_in_space_are_drawn_by_the_calibration(start_node):
    node = start_node(
        'space',
        'trt_ros.nodes.overlay',
        *('-r', 'image:=/space/image', '-r', 'camera_info:=/space/camera_info'),
        *('-r', 'detections_3d:=/space/boxes', '-r', '~/image:=/space/image_drawn'),
        boxes_3d=True,
        label_size=0.0,
        line_width=1,
        qos_reliability='reliable',
    )
    node.wait_for_log('Started: active.')
    peer = node.peer
    images = peer.connected(Image, '/space/image')
    boxes = peer.connected(Detection3DArray, '/space/boxes')
    infos = peer.connected(CameraInfo, '/space/camera_info')
    drawn = peer.inbox(Image, '/space/image_drawn')
    stamps = iter(range(1, 1000))

    def sent(frame_id='front_camera', size_wh=(200, 160)):
        k = [100.0, 0.0, 100.0, 0.0, 100.0, 80.0, 0.0, 0.0, 1.0]
        infos.publish(CameraInfo(width=size_wh[0], height=size_wh[1], k=k))
        image = as_image(gray(90, (200, 160)), 'rgb8', stamp=next(stamps))
        images.publish(image)
        boxes.publish(box_in_space(image.header, frame_id))
        return drawn.messages

    peer.wait_until(sent, 'a drawn image')
    pixels = np.array(drawn.messages[0].data, np.uint8).reshape(160, 200, 3)
    for distance in (2.0, 3.0):  # Front and back of the box.
        left, right = (round(100 + sign * 50 / distance) for sign in (-1, 1))
        assert (pixels[round(80 - 50 / distance), left:right] != 90).any(axis=1).all()
    assert (pixels[80, 90:110] == 90).all()
    for cause, wrong in (
        ("The boxes are in the frame 'map', but the image in 'front_camera'", {'frame_id': 'map'}),
        ('The image is 200 × 160, but camera_info is for 100 × 80', {'size_wh': (100, 80)}),
    ):
        peer.wait_until(
            lambda cause=cause, wrong=wrong: sent(**wrong) and cause in node.log, cause
        )
