"""The depth node: depth, calibration and points."""

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from vision_msgs.msg import LabelInfo

from support.ros_messages import BLACK, GREEN, RED, as_image, half_and_half, pixels_of

PIXELS = {'mean': [0.0] * 3, 'std': [1.0] * 3}


def test_depth_comes_with_the_calibration_of_its_camera_and_an_equal_one_is_a_warning(
    start, peer, models
):
    node, ask = start('depth', 'near', models['depth'], **PIXELS)
    depths = peer.inbox(Image, '/near/depth')
    statuses = peer.inbox(DiagnosticArray, '/diagnostics')
    for _ in range(100):
        ask(half_and_half((9, 9, 9), (9, 9, 9)), depths)
    array = statuses.wait_for(
        lambda array: (
            array.status[0].name == 'near: image'
            and array.status[0].level == DiagnosticStatus.WARN
        ),
        'a warning',
    )
    problem = 'equal depth of all pixels in the last 100 frames'
    assert array.status[0].message.startswith(f'impossible results: {problem}; check decoder')
    assert KeyValue(key='impossible results', value=problem) in array.status[0].values
    picture = half_and_half(RED, BLACK)
    depth = pixels_of(ask(picture, depths))
    assert (depth[:, :20] == 1).all()
    assert (depth[:, 44:] == 0).all()
    assert node.set(depth_kind='metric') == ''
    depth = ask(picture, depths)
    assert depth.encoding == '32FC1'
    assert (pixels_of(depth)[:, :20] == 1).all()
    assert np.isnan(pixels_of(depth)[:, 44:]).all()

    infos = peer.connected(CameraInfo, '/near_camera/camera_info')
    published = peer.inbox(CameraInfo, '/near/camera_info')
    for image_wh in ((64, 48), (640, 480)):  # The second is another size: it fits no image.
        infos.publish(
            CameraInfo(
                width=image_wh[0],
                height=image_wh[1],
                k=np.arange(9.0),
                distortion_model='plumb_bob',
            )
        )
        # Best effort, in a queue of its own: so ask until it has come.
        while image_wh == (64, 48) and not published.messages:
            ask(picture, depths)
    info = published.messages[0]
    assert (info.width, info.height, list(info.k)) == (64, 48, list(range(9)))
    assert info.header.frame_id == 'front_camera'


def test_depth_becomes_points_of_the_pixels_and_stamp_of_the_image(start, peer, models):
    node, ask = start('depth', 'cloud', models['depth'], **PIXELS, depth_kind='metric')
    depths, clouds = peer.inboxes('cloud', depth=Image, points=PointCloud2)
    picture = half_and_half(RED, BLACK)
    ask(picture, depths)
    node.wait_for_log('No calibration was received on /cloud_camera/camera_info')
    infos = peer.connected(CameraInfo, '/cloud_camera/camera_info')
    calibration = [32.0, 0.0, 31.5, 0.0, 32.0, 23.5, 0.0, 0.0, 1.0]

    def points():
        infos.publish(CameraInfo(width=64, height=48, k=calibration))
        ask(picture, depths)
        return clouds.messages

    cloud = peer.wait_until(points, 'points')[-1]
    assert cloud.header in [each.header for each in depths.messages]
    assert (cloud.width, cloud.height, cloud.point_step, cloud.is_dense) == (64, 48, 16, False)
    assert [each.name for each in cloud.fields] == ['x', 'y', 'z', 'rgb']
    values = np.frombuffer(cloud.data, '<f4').reshape(48, 64, 4)
    assert values[10, 3, :3] == pytest.approx([(3 - 31.5) / 32, (10 - 23.5) / 32, 1])
    assert np.isnan(values[:, 44:, :3]).all()
    assert values.view('<u4')[10, 3, 3] == 0xFF0000
    assert node.set(point_stride=4) == ''
    peer.wait_until(lambda: points()[-1].width == 16, 'fewer points')


def test_masks_labels_and_points_are_what_the_segmentation_layer_of_nav2_takes(
    start_active, peer, models
):
    """
    Best-effort mono8 mask, confidence and points of one stamp; latched, reliable labels.

    As in the README of kiwicampus/semantic_segmentation_layer. Its source reads the points of the
    cloud one by one with the pixels of the mask, row by row, and expects no padding of rows.
    """
    remap, common = ('-r', 'image:=/nav/image'), {**PIXELS, 'qos_reliability': 'auto'}
    given = {'labels': ['r', 'g', 'b'], 'confidence': True, **common}
    start_active('nav_mask', 'segmenter', models['semantic'], *remap, **given)
    start_active('nav_depth', 'depth', models['depth'], *remap, depth_kind='metric', **common)
    images = peer.publisher(Image, '/nav/image')
    infos = peer.publisher(CameraInfo, '/nav/camera_info')
    inboxes = [
        peer.inbox(kind, topic, qos_profile_sensor_data)
        for kind, topic in (
            (Image, '/nav_mask/mask'),
            (Image, '/nav_mask/confidence'),
            (PointCloud2, '/nav_depth/points'),
        )
    ]
    reliable = QoSProfile(
        depth=1,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL,
    )
    labels = peer.inbox(LabelInfo, '/nav_mask/label_info', reliable).wait_for()
    stamps = iter(range(1, 1000))

    def three_of_one_stamp():
        infos.publish(CameraInfo(width=64, height=48, k=[9.0, 0, 9, 0, 9, 9, 0, 0, 1]))
        images.publish(as_image(half_and_half(RED, GREEN), 'rgb8', stamp=next(stamps)))
        found = [
            {each.header.stamp.sec: each for each in tuple(inbox.messages)} for inbox in inboxes
        ]
        stamps_of_all = set.intersection(*map(set, found))
        return stamps_of_all and [each[min(stamps_of_all)] for each in found]

    mask, confidence, cloud = peer.wait_until(
        three_of_one_stamp, 'mask, confidence and points of one image'
    )
    assert mask.header == confidence.header == cloud.header
    for image in (mask, confidence):
        assert (image.encoding, image.width, image.height) == ('mono8', cloud.width, cloud.height)
        assert len(image.data) == cloud.width * cloud.height
    points = np.frombuffer(cloud.data, '<f4').reshape(48, 64, 4)
    names = {each.class_id: each.class_name for each in labels.class_map}
    for row, col in ((10, 5), (40, 60)):  # Red on the left and green on the right.
        assert names[pixels_of(mask)[row, col]] == ('r' if col < 32 else 'g')
        x, y, z = points[row, col, :3]
        assert (9 * x / z + 9, 9 * y / z + 9) == pytest.approx((col, row))
    assert (pixels_of(confidence)[:, :20] == 255).all()
    assert len({each.class_name for each in labels.class_map}) == 3


def test_of_several_cameras_each_depth_comes_with_its_own_calibration(start_active, peer, models):
    remap, topics = ('-r', 'rear:=/nears_rear/image_raw'), ['nears_front/image', 'rear']
    start_active('nears', 'depth', models['depth'], *remap, image_topics=topics)
    for topic, folder, focus in (
        ('nears_front/image', '/nears_front', 1.0),
        ('rear', '/nears_rear', 2.0),
    ):
        images = peer.publisher(Image, f'{folder}/image{"_raw" if topic == "rear" else ""}')
        infos = peer.publisher(CameraInfo, f'{folder}/camera_info')
        depths = peer.inbox(Image, f'/nears/{topic}/depth')
        published = peer.inbox(CameraInfo, f'/nears/{topic}/camera_info')
        image = as_image(half_and_half(RED, BLACK), 'rgb8')
        info = CameraInfo(width=64, height=48, k=np.full(9, focus))

        def asked(images=images, infos=infos, image=image, info=info, published=published):
            infos.publish(info)
            images.publish(image)
            return published.messages

        peer.wait_until(asked, f'a calibration of {topic}')
        assert list(published.messages[0].k) == [focus] * 9
        assert depths.wait_for().header.frame_id == 'front_camera'
