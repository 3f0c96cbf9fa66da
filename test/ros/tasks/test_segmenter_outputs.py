"""The segmenter with networks of several masks and auxiliary outputs."""

import numpy as np
from onnx import helper
import pytest
from sensor_msgs.msg import Image
from vision_msgs.msg import LabelInfo

from support.ros_messages import LATCHED, as_image, pixels_of
from support.save_network import save_network

SIZE = 32
PIXELS = {'mean': [0.0], 'std': [1.0]}


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    """A network of two masks and an auxiliary output: red or not, the strongest color."""
    path = tmp_path_factory.mktemp('models') / 'masks.onnx'
    image = (1, 3, SIZE, SIZE)
    outputs = {
        'area': (1, 2, SIZE, SIZE),
        '/lane/out:0': image,
        'lane_out.0': image,
        'features': (1, 3, 1, 1),
    }
    return save_network(
        path,
        [
            helper.make_node('Split', ['images'], ['red', 'green', 'blue'], axis=1),
            helper.make_node('Concat', ['half', 'red'], ['area'], axis=1),
            helper.make_node('Relu', ['images'], ['/lane/out:0']),
            helper.make_node('Neg', ['images'], ['lane_out.0']),
            helper.make_node('GlobalAveragePool', ['images'], ['features']),
        ],
        {'images': image},
        outputs,
        constants={'half': np.full((1, 1, SIZE, SIZE), 0.5, np.float32)},
    )


def columns(*values):
    """Return an image of 64 x 48 with one value per equally wide column."""
    return np.repeat(np.uint8(values)[None], 64 // len(values), axis=1).repeat(48, axis=0)


def test_a_mask_and_label_info_per_chosen_output(start_active, peer, model, backend):
    node = start_active(
        *('road', 'segmenter', model, '-r', 'image:=/road_camera/image'),
        backend=backend,
        outputs=['area', '/lane/out:0'],
        labels=['other', 'red', 'r', 'g', 'b'],
        **PIXELS,
    )
    assert '2 outputs of one mask each' in node.log
    areas = peer.inbox(Image, '/road/mask')
    lanes = peer.inbox(Image, '/road/lane_out_0/mask')
    overlays = peer.inbox(Image, '/road/overlay')
    images = peer.connected(Image, '/road_camera/image')
    pixels = columns((255, 0, 0), (0, 255, 0), (0, 0, 255), (200, 220, 0))
    images.publish(as_image(pixels, 'rgb8', stamp=1))
    assert (pixels_of(areas.wait_for()) == columns(1, 0, 0, 1)).all()
    assert (pixels_of(lanes.wait_for()) == columns(0, 1, 2, 1)).all()
    assert overlays.wait_for().width == 64
    for topic, names in (
        ('/road/label_info', ['other', 'red']),
        ('/road/lane_out_0/label_info', ['r', 'g', 'b']),
    ):
        info = peer.inbox(LabelInfo, topic, LATCHED).wait_for()
        assert [each.class_name for each in info.class_map] == names


def test_outputs_that_cannot_be_published_are_refused(configure, model):
    for outputs, problem in (
        ([], 'Set outputs to one of area, /lane/out:0, lane_out.0, or to several of them'),
        (['area', 'features'], 'Set outputs to area. '),
        (['area', '/lane/out:0', 'lane_out.0'], 'Several outputs have one topic: /lane/out:0, '),
        (['area', 'area'], 'outputs has duplicates: area, area.'),
        (['areas'], 'outputs names areas, which the network does not have.'),
        (['lane_out.0'], ''),  # As of a network with auxiliary outputs.
    ):
        log = configure('segmenter', backend='onnxruntime', model_path=model, outputs=outputs)
        assert problem in log and bool(problem) == bool(log)
