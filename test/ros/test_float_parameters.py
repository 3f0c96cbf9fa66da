"""Every float parameter of every node, at its ends, beyond them, and back."""

import math
import sys

import cv2
from generated_files import PARAMETERS
import numpy as np
import pytest
from sensor_msgs.msg import Image
from std_msgs.msg import Float64
from vision_msgs.msg import Detection2DArray

from support.extent import IS_EXHAUSTIVE
from support.save_network import save_mean
from trt_ros.parameter_field import specifications
from trt_ros.ros.parameters import to_parameter

SUBNORMAL = 5e-324
ODD = (
    0.0,
    SUBNORMAL,
    -SUBNORMAL,
    sys.float_info.min,
    1e-11,
    sys.float_info.max,
    -1.0,
    math.inf,
    -math.inf,
    math.nan,
)
OUTPUTS = {
    'classifier': (1, 3),
    'depth': (1, 1, 32, 32),
    'detector': (1, 84, 21),
    'pose': (1, 56, 21),
    'segmenter': (1, 3, 32, 32),
    'tensor': (7,),
}
CASES = [
    (kind, each.name)
    for kind, cls in PARAMETERS.items()
    for each in specifications(cls).values()
    if float in (each.python_type, each.entry_type)
    # The parameters of detections_3d are those of other nodes; a policy has no image.
    and kind not in ('detections_3d', 'policy')
]
if not IS_EXHAUSTIVE:  # Each name once: most are fields of a common base class.
    CASES = [(kind, name) for name, kind in {name: kind for kind, name in CASES[::-1]}.items()]


class Running:
    """One node that works on what it is sent, or, the image source, by itself."""

    def __init__(self, node, kind, as_image):
        self.node, self.kind, self._as_image = node, kind, as_image
        self._stamp = 0
        peer = node.peer
        node.wait_for_log('Started: active.')
        if kind == 'image_source':
            self._results = peer.inbox(Image, f'/{node.name}/image')
            return
        self._results = peer.inbox(Float64, f'/{node.name}/latency')
        self._images = peer.publisher(Image, f'/{node.name}/image')
        self._detections = peer.publisher(Detection2DArray, f'/{node.name}/found')

    def publish(self):
        if self.kind == 'image_source':
            return
        self._stamp += 1
        image = self._as_image(np.full((32, 32, 3), 90, np.uint8), 'rgb8', stamp=self._stamp)
        if self.kind != 'tracker':
            self._images.publish(image)
        if self.kind in ('overlay', 'tracker'):
            self._detections.publish(Detection2DArray(header=image.header))

    def works(self):
        """Wait until results of images sent from now on come."""
        known = len(self._results.messages)

        def comes():
            self.publish()
            return len(self._results.messages) > known + 2

        self.node.peer.wait_until(comes, f'results of {self.node.name}')


@pytest.fixture(scope='module')
def running(start_node, tmp_path_factory, as_image):
    """Return the running node of a kind, started once."""
    folder, nodes = tmp_path_factory.mktemp('networks'), {}
    cv2.imwrite(str(folder / 'picture.png'), np.full((8, 8, 3), 90, np.uint8))

    def start(kind):
        if kind not in nodes:
            name = f'floats_{kind}'
            given = {'autostart': True, 'qos_reliability': 'reliable', 'publish_latency': True}
            if kind == 'image_source':
                given = {'autostart': True, 'source': str(folder), 'rate_hz': 100.0}
            elif kind == 'tracker':
                given = {'autostart': True, 'publish_latency': True}
            elif kind != 'overlay':
                given |= {
                    'model_path': save_mean(folder / f'{kind}.onnx', OUTPUTS[kind]),
                    'backend': 'onnxruntime',
                    'cpu_threads': 1,  # Else each configure measures how many are fastest.
                    'decoder': {'detector': 'yolov8', 'depth': 'depth'}.get(kind, 'auto'),
                }
            nodes[kind] = Running(
                start_node(
                    name,
                    f'trt_ros.nodes.{kind}',
                    '-r',
                    f'image:=/{name}/image',
                    '-r',
                    f'detections:=/{name}/found',
                    **given,
                ),
                kind,
                as_image,
            )
        return nodes[kind]

    return start


@pytest.mark.parametrize(
    ('kind', 'name'),
    [
        pytest.param(
            *each,
            id='-'.join(each),
            marks=() if each[0] == 'detector' else pytest.mark.nightly,
        )
        for each in CASES
    ],
)
def test_float_parameter_accepts_its_bounds_and_refuses_values_beyond(running, kind, name):
    if kind == 'tensor':
        pytest.importorskip('isaac_ros_tensor_list_interfaces')
    each = specifications(PARAMETERS[kind])[name]
    there = running(kind)
    node, begun = there.node, len(there.node.log)
    there.works()
    if not each.mutable:
        assert node.change('deactivate') and node.change('cleanup')
    for value in dict.fromkeys((*ODD, *(each.between or ()))):
        is_set = node.set(**{name: value if each.entry_type is None else [value] * 3}) == ''
        if each.between:
            low, high = each.between
            assert is_set == (low <= value <= high or (each.or_zero and value == 0)), value
        if is_set and each.mutable:
            there.publish()
            assert node.set(**{name: to_parameter(each, each.default)}) == ''
            if IS_EXHAUSTIVE:  # Else after the last value only.
                there.works()
        elif is_set and node.change('configure'):
            assert node.change('activate')
            there.publish()
            assert node.change('deactivate') and node.change('cleanup')
    if not each.mutable:
        assert node.set(**{name: to_parameter(each, each.default)}) == ''
        assert node.change('configure') and node.change('activate')
    there.works()
    assert 'Traceback' not in node.log[begun:]
    assert 'Warning' not in node.log[begun:]
