"""Depth in meters of pairs of images, of points, and of another focal length, by a node."""

from functools import partial
from itertools import count

from diagnostic_msgs.msg import DiagnosticArray
import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo, Image, PointCloud2

from support.ros_messages import RED, as_image, diagnostics, half_and_half, pixels_of, values_of
from support.save_network import save_network
from support.stereo_scenes import BASELINE, CAMERA, LENSES, render, save_stereo, visible
from support.task_networks import always
from trt_ros.vision.depth_points import Intrinsics

PLANE = (1, 32, 32)


def info_of(camera, baseline=0.0, lens=None):
    raw = {}
    if lens:
        fx, fy, cx, cy = lens.k
        k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
        raw = {'k': k, 'd': lens.d, 'r': lens.r, 'distortion_model': lens.model}
    return CameraInfo(
        **raw,
        width=camera.image_wh[0],
        height=camera.image_wh[1],
        p=[
            *(camera.fx, 0.0, camera.cx, -camera.fx * baseline),
            *(0.0, camera.fy, camera.cy, 0.0),
            *(0.0, 0.0, 1.0, 0.0),
        ],
    )


@pytest.mark.parametrize('lenses', [(None, None), ('plumb_bob', 'equidistant')])
def test_a_pair_of_images_becomes_depth_points_and_confidence(
    start_active, peer, tmp_path, backend, lenses
):
    name = 'stereo_raw' if any(lenses) else 'stereo'
    node = start_active(
        *(name, 'depth', save_stereo(tmp_path / 'stereo.onnx')),
        backend=backend,
        inputs=[f'{side}=image:{name}_{side}/image' for side in ('left', 'right')],
        mean=[0.0],
        std=[1.0],
        rectify=any(lenses),
    )
    assert 'depth kind: disparity' in node.log
    sides = ('left', 'right')
    lens = dict(zip(sides, map(LENSES.get, lenses)))
    pictures = {side: render(side == 'right', lens[side]) for side in sides}
    images = {side: peer.connected(Image, f'/{name}_{side}/image') for side in sides}
    infos = {side: peer.connected(CameraInfo, f'/{name}_{side}/camera_info') for side in sides}
    depths, clouds, confidences = peer.inboxes(
        name, depth=Image, points=PointCloud2, confidence=Image
    )
    stamps = count(1)

    def ask(*known):
        for side in known:
            baseline = BASELINE if side == 'right' else 0.0
            infos[side].publish(info_of(CAMERA, baseline, lens[side]))
        stamp = next(stamps)
        for side in sides:
            images[side].publish(as_image(pictures[side][0], 'rgb8', stamp=stamp))
        return clouds.messages

    ask('left')
    node.wait_for_log('No calibration was received on')
    diagnostics(peer, name)(**{'dropped: no calibration': '1', 'frames published': '0'})
    cloud = peer.wait_until(lambda: ask(*sides), 'points')[-1]
    depth = depths.wait_for(lambda each: each.header == cloud.header)
    exact = render(False)[1]
    confidence = confidences.wait_for(lambda each: each.header == cloud.header)
    errors = abs(pixels_of(depth) / exact - 1)[visible(exact) & (pixels_of(confidence) >= 0.5)]
    assert np.isfinite(errors).all()
    assert np.median(errors) < 0.003
    assert np.isnan(pixels_of(depth)[pixels_of(confidence) < 0.5]).all()
    points = np.frombuffer(cloud.data, '<f4').reshape(*exact.shape, 4)
    row, col = np.argwhere(visible(exact) & (pixels_of(confidence) > 0.9))[50]
    z = pixels_of(depth)[row, col]
    assert points[row, col, :3] == pytest.approx(
        [(col - CAMERA.cx) / CAMERA.fx * z, (row - CAMERA.cy) / CAMERA.fy * z, z], rel=1e-5
    )
    try:
        from stereo_msgs.msg import DisparityImage
    except ImportError:
        return
    found = peer.inbox(DisparityImage, f'/{name}/disparity')
    disparity = peer.wait_until(lambda: ask() and found.messages, 'a disparity')[-1]
    assert (disparity.f, disparity.t) == pytest.approx((CAMERA.fx, BASELINE))
    values = pixels_of(disparity.image)
    assert values[row, col] == pytest.approx(CAMERA.fx * BASELINE / z, rel=1e-5)


def test_a_pair_has_one_size_and_the_sign_of_what_is_near(start_active, peer, tmp_path, backend):
    disparity = np.full((1, 1, 32, 32), -0.1, np.float32)  # Noise of what is far.
    disparity[..., 10:, 10:] = 8
    nodes, constants = always('disparity', disparity)
    model = save_network(
        tmp_path / 'near.onnx',
        nodes.replace('(images)', '(left)') + 'nothing = Mul(right, disparity_zero)',
        {'left': (1, 3, 32, 32), 'right': (1, 3, 32, 32)},
        {'disparity': disparity.shape, 'nothing': (1, 3, 32, 32)},
        constants=constants,
    )
    sides = ('left', 'right')
    inputs = [f'{side}=image:near_{side}/image' for side in sides]
    node = start_active('near', 'depth', model, backend=backend, inputs=inputs)
    images = [peer.connected(Image, f'/near_{side}/image') for side in sides]
    infos = [peer.connected(CameraInfo, f'/near_{side}/camera_info') for side in sides]
    depths = peer.inbox(Image, '/near/depth')
    stamps = count(1)

    def ask(right, baseline=0.5, image_wh=(32, 32)):
        infos[0].publish(info_of(camera))
        info = info_of(right, baseline)
        info.header.frame_id = 'right_rectified'
        infos[1].publish(info)
        stamp = next(stamps)
        for publisher, (width, height) in zip(images, ((32, 32), image_wh)):
            pixels = np.zeros((height, width, 3), np.uint8)
            publisher.publish(as_image(pixels, 'rgb8', stamp=stamp))
        return depths.messages

    camera = Intrinsics(32.0, 32.0, 15.5, 15.5, (32, 32))
    wide = Intrinsics(32.0, 32.0, 31.5, 15.5, (64, 32))
    statuses = peer.inbox(DiagnosticArray, '/diagnostics')

    def is_refused(words, *given):
        ask(*given)
        own = [each for each in statuses.messages if each.status[0].name == 'near: image']
        return own and values_of(own[-1])['last error'].startswith(words)

    for words, *given in (  # No image fits the calibration of the case before, which is late.
        ('The image is 32 × 32, but /near_right/camera_info is for 64', wide),
        (
            'The left camera_info is for 32 × 32 pixels, fx 32, the right one for 64 × 32 pixels',
            *(wide, 0.5, (64, 32)),
        ),
        ('The image is 64 × 32, but /near_right/camera_info is for 32', camera, 0.0, (64, 32)),
        ('The right camera is 0 m right of the left one', camera, 0.0),
        ('The right camera is inf m right of the left one', camera, np.inf),
    ):
        peer.wait_until(partial(is_refused, words, *given), words, pause=0.1)
    assert not depths.messages
    words = "/near_right/camera_info is of the frame 'right_rectified', but its images are of 'fro"
    assert node.log.count(words) == 1
    depth = pixels_of(peer.wait_until(lambda: ask(camera), 'a depth')[-1])
    assert (depth[12:, 12:] == 2).all()
    assert np.isnan(depth[:9]).all()


@pytest.mark.parametrize('kind', ['affine', 'canonical'])
def test_meters_follow_from_the_calibration(start, peer, tmp_path, kind):
    """Networks with the outputs of MoGe-2 and of Depth Anything 3, of a plane."""
    sky = np.zeros(PLANE, np.float32)
    sky[:, :8] = 1
    if kind == 'affine':
        a, b = np.meshgrid((np.arange(32) - 15.5) / 30, (np.arange(32) - 15.5) / 30)
        points = np.stack([a * 4, b * 4, np.full_like(a, 4 - 1.5)], -1)[None] / 2
        values = {
            'points': points.astype(np.float32),
            'mask': 1 - sky,
            'metric_scale': np.array([2], np.float32),
        }
        extra = {}
    else:
        depth = np.full(PLANE, 40, np.float32)
        values = {'depth_conf': depth / 8, 'depth': depth, 'sky': sky}
        extra = {'depth_kind': kind}
    parts = [always(name, value) for name, value in values.items()]
    model = save_network(
        tmp_path / f'{kind}.onnx',
        ''.join(nodes for nodes, _ in parts),
        {'images': (1, 3, 32, 32)},
        {name: value.shape for name, value in values.items()},
        constants={name: value for _, each in parts for name, value in each.items()},
    )
    name = f'meters_{kind}'
    node, ask = start('depth', name, model, **extra)
    assert f'depth kind: {kind}' in node.log
    infos = peer.connected(CameraInfo, f'/{name}_camera/camera_info')
    depths = peer.inbox(Image, f'/{name}/depth')
    info = CameraInfo(width=32, height=32, k=[30.0, 0, 15.5, 0, 30.0, 15.5, 0, 0, 1])

    def asked():
        infos.publish(info)
        ask(np.zeros((32, 32, 3), np.uint8))
        return depths.messages

    depth = pixels_of(peer.wait_until(asked, 'a depth')[-1])
    assert np.isnan(depth[:7]).all()
    assert depth[9:] == pytest.approx(4.0, abs=1e-3)
    if kind == 'canonical':
        assert node.set(depth_kind='affine') == ''
        words = 'depth_kind is affine, but the network returns no points'
        peer.wait_until(lambda: asked() and words in node.log, 'a warning')


def test_a_rectification_that_no_camera_has_drops_its_images(start, peer, models):
    given = {'mean': [0.0], 'std': [1.0], 'depth_kind': 'metric', 'rectify': True}
    _, ask = start('depth', 'turned', models['depth'], **given)
    infos = peer.connected(CameraInfo, '/turned_camera/camera_info')
    depths = peer.inbox(Image, '/turned/depth')
    statuses = peer.inbox(DiagnosticArray, '/diagnostics')
    k = [32.0, 0.0, 31.5, 0.0, 32.0, 23.5, 0.0, 0.0, 1.0]

    def is_refused(words, **fields):
        infos.publish(CameraInfo(width=64, height=48, k=k, **fields))
        ask(half_and_half(RED, RED))
        own = [each for each in statuses.messages if each.status[0].name == 'turned: image']
        return own and values_of(own[-1])['last error'].startswith(words)

    topic = '/turned_camera/camera_info'
    for words, fields in {
        f'R of the calibration on {topic} is no rotation': {'r': np.ones(9)},
        f'An image rectified by {topic} shows nothing of the raw one': {
            'r': [1.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 1.0, 0.0]
        },
        f'The calibration on {topic} has an unsupported distortion': {'d': [np.nan]},
    }.items():
        peer.wait_until(partial(is_refused, words, **fields), words, pause=0.1)
    assert not depths.messages
    peer.wait_until(lambda: is_refused('', r=np.eye(3).ravel()) and depths.messages, 'a depth')
    assert (pixels_of(depths.messages[-1]) == 1).all()
