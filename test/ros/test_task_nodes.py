"""The nodes of the other tasks, over small networks that ONNX Runtime really runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')
pytest.importorskip('cv2')
pytest.importorskip('onnx')
pytest.importorskip('onnxruntime')

import onnx
from onnx import TensorProto, helper
from rclpy.qos import (
    DurabilityPolicy,
    QoSProfile,
    ReliabilityPolicy,
    qos_profile_sensor_data,
)
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from vision_msgs.msg import Classification, Detection2DArray, LabelInfo

from trt_ros.draw.style import colour_of
from trt_ros.ros.dds.cdr_tensors import read_tensor_list

pytestmark = pytest.mark.ros

SIZE = 32
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
RED, GREEN = (255, 0, 0), (0, 255, 0)
SCORED = {'labels': ['r', 'g', 'b'], 'confidence': True}


def save(path, nodes, outputs, *, constants=None, metadata=None, inputs=None):
    """Write a network of an image input (or `inputs`) as ONNX."""

    def infos(shapes):
        return [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in shapes.items()
        ]

    graph = helper.make_graph(
        nodes,
        'net',
        infos(inputs or {'images': (1, 3, SIZE, SIZE)}),
        infos(outputs),
        [
            onnx.numpy_helper.from_array(np.asarray(value, np.float32), name)
            for name, value in (constants or {}).items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return str(path)


def always(name, values):
    """Nodes and constants of an output that is the same for every image."""
    return (
        [
            helper.make_node('ReduceMean', ['images'], [f'{name}_mean'], keepdims=0),
            helper.make_node('Mul', [f'{name}_mean', f'{name}_zero'], [f'{name}_nothing']),
            helper.make_node('Add', [f'{name}_values', f'{name}_nothing'], [name]),
        ],
        {f'{name}_values': values, f'{name}_zero': 0.0},
    )


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp('models')
    mean = helper.make_node('GlobalAveragePool', ['images'], ['pooled'])
    boxes = np.zeros((1, 4 + 2 + 1, 21), np.float32)
    boxes[0, :, 0] = 8, 16, 16, 16, 0.9, 0, 1  # Columns 0 to 16, rows 8 to 24, of class 0.
    boxes[0, :, 1] = 24, 16, 16, 16, 0, 0.8, 1  # Columns 16 to 32, of class 1.
    prototypes = np.full((1, 1, 8, 8), 9, np.float32)
    prototypes[0, 0, :4] = -9  # Only the lower half of each box is masked.
    box_nodes, box_constants = always('output0', boxes)
    mask_nodes, mask_constants = always('output1', prototypes)
    pose = np.zeros((1, 4 + 1 + 6, 21), np.float32)
    pose[0, :, 0] = 16, 16, 16, 16, 0.9, 4, 8, 0.75, 12, 20, 0.25
    pose_nodes, pose_constants = always('output0', pose)
    return {
        'classifier': save(
            folder / 'classifier.onnx',
            [mean, helper.make_node('Flatten', ['pooled'], ['scores'])],
            {'scores': (1, 3)},
        ),
        'semantic': save(
            folder / 'semantic.onnx',
            [helper.make_node('Identity', ['images'], ['scores'])],
            {'scores': (1, 3, SIZE, SIZE)},
        ),
        'instances': save(
            folder / 'instances.onnx',
            box_nodes + mask_nodes,
            {'output0': boxes.shape, 'output1': prototypes.shape},
            constants={**box_constants, **mask_constants},
            metadata={'task': 'segment', 'names': "{0: 'left', 1: 'right'}"},
        ),
        'depth': save(
            folder / 'depth.onnx',
            [helper.make_node('ReduceMax', ['images'], ['depth'], axes=[1])],
            {'depth': (1, 1, SIZE, SIZE)},
        ),
        'pose': save(
            folder / 'pose.onnx',
            pose_nodes,
            {'output0': pose.shape},
            constants=pose_constants,
            metadata={'task': 'pose', 'kpt_shape': '[2, 3]', 'names': "{0: 'person'}"},
        ),
        'sum': save(
            folder / 'sum.onnx',
            [helper.make_node('Add', ['a', 'b'], ['sum'])],
            {'sum': (2, 3)},
            inputs={'a': (2, 3), 'b': (2, 3)},
        ),
    }


@pytest.fixture
def start(start_node, peer, as_image, backend):
    """Start a node, return it and what publishes an image and waits for its result."""

    def started(kind, name, model, *ros_args, **parameters):
        node = start_node(
            name,
            f'trt_ros.nodes.{kind}',
            '-r',
            f'image:=/{name}_camera/image',
            *ros_args,
            autostart=True,
            backend=backend,
            model_path=model,
            qos_reliability='reliable',
            **parameters,
        )
        node.wait_for_log('Started: active.')
        images = peer.publisher(Image, f'/{name}_camera/image')
        peer.wait_until(images.get_subscription_count, f'{name} to subscribe')
        stamps = iter(range(1, 1000))

        def ask(pixels, *inboxes):
            """Return what comes on each inbox of this image."""
            stamp = next(stamps)
            images.publish(as_image(pixels, 'rgb8', stamp=stamp))
            found = [
                box.wait_for(
                    lambda message: message.header.stamp.sec == stamp, f'a result of image {stamp}'
                )
                for box in inboxes
            ]
            for message in found:
                assert message.header.frame_id == 'front_camera'
                assert message.header.stamp.nanosec == 7
            return found[0] if len(found) == 1 else found

        return node, ask

    return started


def pixels_of(image):
    dtype, channels = {
        'mono8': ('u1', 1),
        'mono16': ('<u2', 1),
        '32FC1': ('<f4', 1),
        'bgr8': ('u1', 3),
    }[image.encoding]
    assert image.step == image.width * channels * np.dtype(dtype).itemsize
    shape = (image.height, image.width, channels)[: 3 if channels > 1 else 2]
    return np.frombuffer(bytes(image.data), dtype).reshape(shape)


def half_and_half(left, right, image_wh=(64, 48)):
    pixels = np.zeros((image_wh[1], image_wh[0], 3), np.uint8)
    pixels[:, : image_wh[0] // 2], pixels[:, image_wh[0] // 2 :] = left, right
    return pixels


def test_the_classifier_ranks_what_the_image_shows(start, peer, models):
    node, ask = start(
        'classifier',
        'classify',
        models['classifier'],
        labels=['red', 'green', 'blue'],
        mean=[0.0, 0.0, 0.0],
        std=[1.0, 1.0, 1.0],
    )
    results = peer.inbox(Classification, '/classify/classification')
    found = ask(half_and_half((255, 51, 0), (255, 51, 0)), results)
    odds = np.exp([1.0, 0.2, 0.0])
    assert [each.class_id for each in found.results] == ['red', 'green', 'blue']
    assert [each.score for each in found.results] == pytest.approx(
        (odds / odds.sum()).tolist(), abs=1e-5
    )
    assert node.set(score_threshold=0.25, class_id_format='index') == ''
    found = ask(half_and_half((0, 0, 255), (0, 0, 255)), results)
    assert [each.class_id for each in found.results] == ['2']
    assert node.set(score_threshold=0.0, max_classes=2) == ''
    assert len(ask(half_and_half(RED, GREEN), results).results) == 2
    info = peer.inbox(LabelInfo, '/classify/label_info', LATCHED).wait_for()
    assert [(each.class_id, each.class_name) for each in info.class_map] == [
        (0, 'red'),
        (1, 'green'),
        (2, 'blue'),
    ]


def test_segmenter_publishes_class_per_pixel(start, peer, models):
    node, ask = start('segmenter', 'semantic', models['semantic'], labels=['r', 'g', 'b'])
    masks = peer.inbox(Image, '/semantic/mask')
    overlays = peer.inbox(Image, '/semantic/overlay')
    assert '/semantic/confidence' not in dict(peer.node.get_topic_names_and_types())
    mask, overlay = ask(half_and_half(RED, GREEN), masks, overlays)
    assert mask.encoding == 'mono8'
    assert (pixels_of(mask) == half_and_half((0,) * 3, (1,) * 3)[..., 0]).all()
    for seen, colour, red in zip(pixels_of(overlay)[5, 5].tolist(), colour_of(0), (0, 0, 255)):
        assert seen == pytest.approx((colour + red) / 2, abs=1)
    assert node.set(overlay_opacity=1.0) == ''
    _, overlay = ask(half_and_half(RED, GREEN, (33, 21)), masks, overlays)
    assert (overlay.width, overlay.height) == (33, 21)
    assert pixels_of(overlay)[20, 32].tolist() == list(colour_of(1))
    info = peer.inbox(LabelInfo, '/semantic/label_info', LATCHED).wait_for()
    assert [(each.class_id, each.class_name) for each in info.class_map] == [
        (0, 'r'),
        (1, 'g'),
        (2, 'b'),
    ]
    assert info.threshold == 0  # No pixel is left out for its score.


def test_the_confidence_of_a_mask_is_that_of_its_class(start, peer, models):
    settings = {'mean': [0.0] * 3, 'std': [1.0] * 3, **SCORED}
    _, ask = start('segmenter', 'sure', models['semantic'], **settings)
    masks, confidences = (peer.inbox(Image, f'/sure/{name}') for name in ('mask', 'confidence'))
    # The network's scores are the colours, so that they count as probabilities.
    mask, confidence = ask(half_and_half((204, 0, 0), (0, 102, 51)), masks, confidences)
    assert (mask.encoding, confidence.encoding) == ('mono8', 'mono8')
    assert (pixels_of(mask) == half_and_half((0,) * 3, (1,) * 3)[..., 0]).all()
    seen = pixels_of(confidence).astype(int)
    assert np.abs(seen[:, :28] - 204).max() <= 1 and np.abs(seen[:, 36:] - 102).max() <= 1


def test_segmenter_separates_objects(start, peer, models):
    node, ask = start(
        'segmenter', 'instances', models['instances'], confidence=True, label_size=0.0
    )
    masks, numbered, boxes, overlays, confidences = (
        peer.inbox(kind, f'/instances/{topic}')
        for kind, topic in (
            (Image, 'mask'),
            (Image, 'instances'),
            (Detection2DArray, 'detections'),
            (Image, 'overlay'),
            (Image, 'confidence'),
        )
    )
    grey = np.full((64, 64, 3), 90, np.uint8)  # Twice the network's size.
    mask, number, found, overlay, confidence = ask(
        grey, masks, numbered, boxes, overlays, confidences
    )
    scores = np.uint8([0, round(0.9 * 255), round(0.8 * 255)])
    assert (pixels_of(confidence) == scores[pixels_of(mask)]).all()
    assert [each.results[0].hypothesis.class_id for each in found.detections] == ['left', 'right']
    expected = np.zeros((64, 64), int)
    expected[32:48, :32], expected[32:48, 32:] = 1, 2
    for image, encoding in ((mask, 'mono8'), (number, 'mono16')):
        assert image.encoding == encoding
        # Between the cells of the prototypes, 8 pixels wide here, the edge is interpolated.
        assert (pixels_of(image)[36:] == expected[36:]).all()
        assert (pixels_of(image)[:28] == 0).all()
    assert (pixels_of(overlay)[40, 10] != 90).any()
    assert (pixels_of(overlay)[55:, 10] == 90).all()
    info = peer.inbox(LabelInfo, '/instances/label_info', LATCHED).wait_for()
    assert [(each.class_id, each.class_name) for each in info.class_map] == [
        (0, 'background'),
        (1, 'left'),
        (2, 'right'),
    ]
    assert info.threshold == 0.25
    assert node.set(score_threshold=0.5) == ''
    infos = peer.inbox(LabelInfo, '/instances/label_info', LATCHED)
    assert infos.wait_for(lambda info: info.threshold == 0.5).class_map


def test_depth_comes_with_the_calibration_of_its_camera(start, peer, models):
    node, ask = start('depth', 'near', models['depth'], mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0])
    depths = peer.inbox(Image, '/near/depth')
    picture = half_and_half((255, 0, 0), (0, 0, 0))
    depth = pixels_of(ask(picture, depths))
    assert (depth[:, :20] == 1).all()
    assert (depth[:, 44:] == 0).all()
    assert node.set(depth_kind='metric') == ''
    depth = ask(picture, depths)
    assert depth.encoding == '32FC1'
    assert (pixels_of(depth)[:, :20] == 1).all()
    assert np.isnan(pixels_of(depth)[:, 44:]).all()

    infos = peer.publisher(CameraInfo, '/near_camera/camera_info')
    peer.wait_until(infos.get_subscription_count, 'the node to subscribe')
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
    node, ask = start(
        'depth',
        'cloud',
        models['depth'],
        mean=[0.0, 0.0, 0.0],
        std=[1.0, 1.0, 1.0],
        depth_kind='metric',
    )
    depths, clouds = peer.inbox(Image, '/cloud/depth'), peer.inbox(PointCloud2, '/cloud/points')
    picture = half_and_half((255, 0, 0), (0, 0, 0))
    ask(picture, depths)
    node.wait_for_log('No calibration was received on camera_info')
    infos = peer.publisher(CameraInfo, '/cloud_camera/camera_info')
    peer.wait_until(infos.get_subscription_count, 'the node to subscribe')
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
    start_node, peer, models, as_image
):
    """
    Best-effort mono8 mask, confidence and points of one stamp; latched, reliable labels.

    As in the README of kiwicampus/semantic_segmentation_layer. Its source reads the points of the
    cloud one by one with the pixels of the mask, row by row, and expects no padding of rows.
    """
    common = {'autostart': True, 'backend': 'onnxruntime', 'mean': [0.0] * 3, 'std': [1.0] * 3}
    for name, kind, extra in (
        ('nav_mask', 'segmenter', {**SCORED, 'model_path': models['semantic']}),
        ('nav_depth', 'depth', {'model_path': models['depth'], 'depth_kind': 'metric'}),
    ):
        remap = ('-r', 'image:=/nav/image')
        start_node(name, f'trt_ros.nodes.{kind}', *remap, **common, **extra).wait_for_log(
            'Started: active.'
        )
    images, infos = (
        peer.publisher(kind, f'/nav/{topic}')
        for kind, topic in ((Image, 'image'), (CameraInfo, 'camera_info'))
    )
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


def test_of_several_cameras_each_depth_comes_with_its_own_calibration(
    start_node, peer, models, as_image
):
    node = start_node(
        'nears',
        'trt_ros.nodes.depth',
        '-r',
        'rear:=/nears_rear/image_raw',
        autostart=True,
        backend='onnxruntime',
        model_path=models['depth'],
        image_topics=['nears_front/image', 'rear'],
        qos_reliability='reliable',
    )
    node.wait_for_log('Started: active.')
    for topic, folder, focus in (
        ('nears_front/image', '/nears_front', 1.0),
        ('rear', '/nears_rear', 2.0),
    ):
        images = peer.publisher(Image, f'{folder}/image{"_raw" if topic == "rear" else ""}')
        infos = peer.publisher(CameraInfo, f'{folder}/camera_info')
        depths = peer.inbox(Image, f'/nears/{topic}/depth')
        published = peer.inbox(CameraInfo, f'/nears/{topic}/camera_info')
        image = as_image(half_and_half((255, 0, 0), (0, 0, 0)), 'rgb8')
        info = CameraInfo(width=64, height=48, k=np.full(9, focus))

        def asked(images=images, infos=infos, image=image, info=info, published=published):
            infos.publish(info)
            images.publish(image)
            return published.messages

        peer.wait_until(asked, f'a calibration of {topic}')
        assert list(published.messages[0].k) == [focus] * 9
        assert depths.wait_for().header.frame_id == 'front_camera'


def test_poses_are_boxes_and_keypoints(start, peer, models):
    node, ask = start('pose', 'pose', models['pose'], keypoint_names=['nose'])
    boxes, points, overlays = (
        peer.inbox(kind, f'/pose/{topic}')
        for kind, topic in (
            (Detection2DArray, 'detections'),
            (Detection2DArray, 'keypoints'),
            (Image, 'overlay'),
        )
    )
    grey = np.full((64, 64, 3), 90, np.uint8)
    found, keypoints, overlay = ask(grey, boxes, points, overlays)
    assert [each.results[0].hypothesis.class_id for each in found.detections] == ['person']
    (nose,) = keypoints.detections
    assert (nose.id, nose.results[0].hypothesis.class_id) == ('0', 'nose')
    assert nose.results[0].hypothesis.score == 0.75
    assert (nose.bbox.center.position.x, nose.bbox.center.position.y) == (8, 16)
    assert (pixels_of(overlay)[16, 8] != 90).any()
    assert node.set(keypoint_threshold=0.0) == ''
    keypoints = ask(grey, points)
    assert [each.results[0].hypothesis.class_id for each in keypoints.detections] == ['nose', '1']


def test_a_network_of_another_task_is_refused_by_name(start_node, models):
    node = start_node(
        'wrong',
        'trt_ros.nodes.depth',
        autostart=True,
        backend='onnxruntime',
        model_path=models['pose'],
    )
    node.wait_for_log('This is a keypoint network; expected a depth network.')
    node.wait_for_log('Startup failed')


# Tensors.


@pytest.fixture
def tensor_messages():
    return pytest.importorskip('isaac_ros_tensor_list_interfaces.msg')


def read(message):

    return {
        name: values.tolist()
        for name, values in read_tensor_list(
            np.frombuffer(serialize_message(message), np.uint8)
        ).tensors.items()
    }


def test_an_image_becomes_the_networks_outputs(start, peer, models, tensor_messages):
    _, ask = start('tensor', 'any', models['classifier'], decoder='tensor')
    tensors = peer.inbox(tensor_messages.TensorList, '/any/tensors')
    found = ask(half_and_half((255, 51, 0), (255, 51, 0)), tensors)
    assert read(found) == {'scores': [pytest.approx([1.0, 0.2, 0.0], abs=1e-6)]}
    (tensor,) = found.tensors
    assert (tensor.name, tensor.data_type, list(tensor.strides)) == ('scores', 9, [12, 4])


def test_tensors_become_the_networks_outputs(start_node, peer, models, tensor_messages, backend):
    Tensor, TensorList = tensor_messages.Tensor, tensor_messages.TensorList
    node = start_node(
        'sums',
        'trt_ros.nodes.tensor',
        '-r',
        'tensors:=/encoded',
        autostart=True,
        backend=backend,
        model_path=models['sum'],
        input='tensors',
        scale=0.5,
        qos_reliability='reliable',
    )
    node.wait_for_log('Started: active.')
    assert 'Parameters without effect on these inputs: scale.' in node.log
    publisher = peer.publisher(TensorList, '/encoded')
    peer.wait_until(publisher.get_subscription_count, 'the node to subscribe')
    inbox = peer.inbox(TensorList, '/sums/tensors')

    def ask(stamp, **arrays):
        message = TensorList()
        message.header.stamp.sec, message.header.frame_id = stamp, 'front_camera'
        for name, values in arrays.items():
            message.tensors.append(
                Tensor(
                    name=name,
                    shape=tensor_messages.TensorShape(rank=2, dims=values.shape),
                    data_type={'f4': 9, 'f8': 10, 'i4': 5}[values.dtype.str[1:]],
                    strides=values.strides,
                    data=values.tobytes(),
                )
            )
        publisher.publish(message)

    a = np.arange(6, dtype='f4').reshape(2, 3)
    ask(1, a=a, b=10 * a)
    found = inbox.wait_for()
    assert (found.header.stamp.sec, found.header.frame_id) == (1, 'front_camera')
    assert read(found) == {'sum': (11 * a).tolist()}
    ask(2, a=a, b=a.T.copy())
    node.wait_for_log('A frame of /encoded was dropped (wrong tensor). The network takes b (2, 3)')
    ask(3, b=a.astype('f8'), a=a)
    found = inbox.wait_for(lambda message: message.header.stamp.sec != 1)
    assert (found.header.stamp.sec, read(found)) == (3, {'sum': (2 * a).tolist()})


def test_tensors_that_cannot_be_subscribed_to_leave_nothing_running(
    start_node, peer, models, tensor_messages
):
    node = start_node(
        'unheard',
        'trt_ros.nodes.tensor',
        autostart=True,
        backend='onnxruntime',
        model_path=models['sum'],
        input='tensors',
        **{'qos_overrides./tensors.subscription.depth': -1},
    )
    node.wait_for_log('on_activate failed. The parameters qos_overrides./tensors.subscription')
    tasks = Path(f'/proc/{node.process.pid}/task')
    before = len(list(tasks.iterdir()))
    for _ in range(3):
        assert node.change('configure')
        assert not node.change('activate')
    peer.wait_until(lambda: len(list(tasks.iterdir())) <= before, 'the threads to end')


@pytest.fixture
def labelled(tmp_path, models):
    """Label one image, 64 × 48, red on the left and green on the right; return all messages."""
    pytest.importorskip('rosbags')
    from contextlib import closing

    from rclpy.serialization import deserialize_message

    from support.recordings import raw_image, write_recording
    from trt_ros.cli import main
    from trt_ros.recording import Recording

    types = {each.__name__: each for each in (Image, Classification, Detection2DArray)}
    pixels = half_and_half(RED, GREEN)
    path = write_recording(tmp_path / 'drive', [('/camera', 0, raw_image(0, pixels, 'rgb8'))])

    def run(model, *args):
        output = tmp_path / 'labelled.mcap'
        assert main(['label', str(path), '--output', str(output), '--model', model, *args]) == 0
        with closing(Recording(output)) as recording:
            found = {
                topic: deserialize_message(
                    data.tobytes(), types[recording.topics[topic].message_type.split('/')[-1]]
                )
                for topic, _, data in recording.messages(list(recording.topics))
            }
        for message in found.values():
            assert (message.header.frame_id, message.header.stamp.nanosec) == ('camera', 999000000)
        return found

    return run


def test_label_writes_the_classes_of_an_image(labelled, models):
    found = labelled(models['classifier'], '--labels', 'red,green,blue')
    (message,) = found.values()
    assert list(found) == ['/classifier/classification']
    assert {each.class_id for each in message.results} == {'red', 'green', 'blue'}
    scores = [each.score for each in message.results]
    assert scores == sorted(scores, reverse=True) and sum(scores) == pytest.approx(1)


def test_label_writes_the_mask_of_a_semantic_network(labelled, models):
    found = labelled(models['semantic'])
    assert list(found) == ['/segmenter/mask']
    mask = found['/segmenter/mask']
    assert (pixels_of(mask) == half_and_half((0,) * 3, (1,) * 3)[..., 0]).all()


def test_label_writes_masks_and_boxes_of_instances(labelled, models):
    found = labelled(models['instances'])
    assert set(found) == {f'/segmenter/{name}' for name in ('mask', 'instances', 'detections')}
    mask, numbers = (pixels_of(found[f'/segmenter/{name}']) for name in ('mask', 'instances'))
    assert (mask == numbers).all() and set(np.unique(mask)) == {0, 1, 2}
    assert found['/segmenter/instances'].encoding == 'mono16'
    labels = [
        each.results[0].hypothesis.class_id for each in found['/segmenter/detections'].detections
    ]
    assert labels == ['left', 'right']


def test_label_writes_keypoints_and_depth(labelled, models, tmp_path):
    found = labelled(models['pose'])
    assert set(found) == {'/pose/detections', '/pose/keypoints'}
    (point,) = found['/pose/keypoints'].detections
    assert (point.id, point.results[0].hypothesis.class_id) == ('0', '0')
    assert point.results[0].hypothesis.score == 0.75
    (tmp_path / 'labelled.mcap').unlink()
    found = labelled(models['depth'])
    assert list(found) == ['/depth/depth']
    assert found['/depth/depth'].encoding == '32FC1'
    assert pixels_of(found['/depth/depth']).shape == (48, 64)
