"""The nodes publish objects of the chosen classes, changed at run time."""

import numpy as np
import pytest
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from support.ros_messages import as_image, picture
from support.save_network import save_network

RED, GREEN = (255, 0, 0), (0, 255, 0)


@pytest.fixture(scope='module')
def lane(start_lane):
    return start_lane('choosy', classes=['green', 'blue'])


def strings(name, *values):
    return {name: Parameter(name, Parameter.Type.STRING_ARRAY, list(values))}


def found(lane, image):
    return [(name, score) for name, score, _ in lane.boxes(lane.detect(image))]


def test_indices_may_be_integers(lane):
    given = Parameter('classes', Parameter.Type.INTEGER_ARRAY, [0, 2])
    assert lane.node.set(classes=given) == ''
    assert lane.node.get('classes') == ['0', '2']
    assert found(lane, as_image(picture(rgb=(0, 255, 0)), 'rgb8')) == []
    assert lane.node.set(classes=Parameter('classes', Parameter.Type.INTEGER, 1)) == ''
    assert lane.node.get('classes') == ['1']


def test_an_unknown_class_is_refused_and_changes_nothing(lane):
    assert lane.node.set(score_threshold=0.25, **strings('classes', 'red')) == ''
    before = found(lane, as_image(picture(rgb=RED), 'rgb8'))
    assert "unknown class 'rad'" in lane.node.set(**strings('classes', 'rad'))
    assert lane.node.get('classes') == ['red']
    assert lane.node.set(**strings('class_score_thresholds')) == ''  # Reads `classes` again.
    assert found(lane, as_image(picture(rgb=RED), 'rgb8'))[: len(before)] == before


#: Values after box and class scores, and other outputs, of each node's network.
TASKS = {
    'detector': ({'task': 'obb'}, [0.0], {}),
    'pose': ({'task': 'pose', 'kpt_shape': '[1, 3]'}, [32, 32, 1], {}),
    'segmenter': ({'task': 'segment'}, [1.0] * 32, {'output1': np.ones((1, 32, 16, 16), 'f4')}),
}


def write_network(path, task):
    """Write a network that finds two overlapping objects of two classes in every image."""
    metadata, extra, outputs = TASKS[task]
    head = np.zeros((1, 6 + len(extra), 84), np.float32)
    head[0, :, 0] = [32, 32, 40, 20, 0.9, 0, *extra]
    head[0, :, 1] = [33, 32, 40, 20, 0, 0.8, *extra]
    outputs = {'output0': head, **outputs}
    nodes = 'mean = ReduceMean <keepdims = 0> (images) zero = Sub(mean, mean)'
    nodes += ''.join(f' {name} = Add({name}_value, zero)' for name in outputs)
    return save_network(
        path,
        nodes,
        {'images': (1, 3, 64, 64)},
        {name: value.shape for name, value in outputs.items()},
        constants={f'{name}_value': value for name, value in outputs.items()},
        metadata={**metadata, 'names': "{0: 'person', 1: 'car'}"},
    )


@pytest.mark.parametrize('task', TASKS)
def test_every_node_of_objects_chooses_classes(start_active, peer, tmp_path, task):
    name = f'choosy_{task}'
    model = write_network(tmp_path / f'{task}.onnx', task)
    node = start_active(name, task, model, '-r', f'image:=/{name}/image', classes=['car'])
    images = peer.connected(Image, f'/{name}/image')
    found = peer.inbox(Detection2DArray, f'/{name}/detections')
    stamps = iter(range(1, 10))

    def classes():
        stamp = next(stamps)
        images.publish(as_image(np.zeros((64, 64, 3), np.uint8), 'rgb8', stamp=stamp))
        message = found.wait_for(lambda each: each.header.stamp.sec == stamp)
        return [each.results[0].hypothesis.class_id for each in message.detections]

    assert classes() == ['car']
    assert node.set(**strings('classes')) == ''
    assert classes() == ['person', 'car']
    assert node.set(class_agnostic_nms=True) == ''
    assert classes() == ['person']
    assert node.set(**strings('class_score_thresholds', 'person:0.95')) == ''
    assert classes() == ['car']
    assert "unknown class 'dog'" in node.set(**strings('classes', 'dog'))
