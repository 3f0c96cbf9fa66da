"""The enhancer node: images of the header and size of the source."""

import numpy as np
from sensor_msgs.msg import Image

from support.ros_messages import half_and_half, pixels_of
from support.save_network import save_network


def test_an_image_becomes_one_of_twice_its_size_and_inverted(start, peer, tmp_path):
    model = save_network(
        tmp_path / 'twice.onnx',
        'large = Resize <mode = "nearest"> (x, "", scales) y = Sub(one, large)',
        {'x': (1, 3, 48, 64)},
        {'y': (1, 3, 96, 128)},
        constants={'scales': np.array([1, 1, 2, 2], np.float32), 'one': np.array(1, np.float32)},
    )
    _, ask = start('enhancer', 'twice', model, decoder='image')
    picture = half_and_half((255, 40, 0), (0, 10, 200))
    found = ask(picture, peer.inbox(Image, '/twice/image'))
    assert found.encoding == 'bgr8'
    assert (pixels_of(found) == 255 - picture.repeat(2, 0).repeat(2, 1)[..., ::-1]).all()
