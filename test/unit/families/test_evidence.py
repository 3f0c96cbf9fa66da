"""Networks of shapes that many networks have: evidence, or a question."""

from dataclasses import replace
import re

import pytest

from support.descriptions import TASKS
from trt_ros.errors import TensorMismatchError
from trt_ros.families import registry
from trt_ros.families.registry import ALL_FAMILIES, TENSORS, choose_family

#: Networks that end in the shape of others: what they are, outputs, height and width, and what
#: the error says.
OTHERS = [
    (
        'boxes of one grid',
        'out (1, 85, 80, 80)',
        (640, 640),
        '5 values and 80 class scores per cell',
    ),
    ('YOLOv3 of one scale', 'out (1, 255, 20, 20)', (640, 640), '80 class scores per cell'),
    ('a brighter image', 'out (1, 3, 640, 640)', (640, 640), 'of the size of the input are an im'),
    ('an image in rows', 'out (1, 640, 640, 3)', (640, 640), 'of the size of the input are an im'),
    ('super-resolution', 'out (1, 3, 1280, 1280)', (640, 640), 'of the size of the input are an'),
    ('an image of any size', 'out (1, 3, ?, ?)', (640, 640), 'of the size of the input are an im'),
    ('landmarks', 'landmarks (1, 135)', (112, 112), 'Vectors of keypoints are decoded for the'),
    ('98 landmarks', 'out (1, 196)', (112, 112), 'Set `decoder` to classifier, or `labels` to'),
    ('re-identification', 'out (1, 256)', (256, 128), 'embedding, in the node `tensor`: vec'),
    ('gaze', 'out (1, 2)', (60, 60), 'Set `decoder` to classifier, or `labels` to the names'),
    ('optical flow', 'out (1, 2, 640, 640)', (640, 640), 'Set `decoder` to semantic, or `labels`'),
    ('features', 'out (1, 512, 20, 20)', (640, 640), 'Set `decoder` to semantic, or `labels` to'),
    ('MTCNN pnet', 'a (1, 2, ?, ?); b (1, 4, ?, ?)', (80, 80), 'Set `decoder` to centernet'),
    ('MTCNN rnet', 'a (1, 2); b (1, 4)', (24, 24), 'Set `decoder` to boxes, or `labels` to the'),
]


@pytest.mark.parametrize(('what', 'outputs', 'hw', 'text'), OTHERS)
def test_networks_without_evidence_are_a_question(network, what, outputs, hw, text):
    seen = replace(network(outputs, hw=hw), strict=True)
    with pytest.raises(TensorMismatchError, match=re.escape(text)):
        choose_family(ALL_FAMILIES, 'auto', seen)
    for name in re.findall(r'[Ss]et `decoder` to (\w+)[, .]', text):
        assert choose_family(ALL_FAMILIES, name, seen)[0].name == name


def test_the_task_of_a_node_is_evidence_unless_the_shape_is_that_of_others(network):
    for task, outputs in (
        ('classify', 'out (1, 256)'),
        ('segment', 'out (1, 4, 640, 640)'),
        ('depth', 'out (1, 1, 640, 640)'),
    ):
        _, reason = choose_family(TASKS[task], 'auto', replace(network(outputs), strict=True))
        assert reason.endswith(': no evidence but the shape')
    for outputs in ('out (1, 3, 640, 640)', 'out (1, 85, 20, 20)'):
        with pytest.raises(TensorMismatchError, match=r'is not decoded|are scores of classes'):
            choose_family(TASKS['segment'], 'auto', replace(network(outputs), strict=True))


def test_names_of_classes_are_no_depth_and_a_guess_by_request_says_that_it_is_one(network):
    with pytest.raises(TensorMismatchError, match='No decoder recognizes this network with 85 n'):
        choose_family(ALL_FAMILIES, 'auto', network('softmax (?, ?, 85)', class_count=85))
    assert choose_family(registry.DEPTHS, 'depth', network('out (1, 9, 9)', class_count=3))
    family, reason = choose_family(ALL_FAMILIES, 'auto', network('out (1, 256)'))
    assert family.name == 'classifier' and reason.endswith(': no evidence but the shape')


@pytest.mark.parametrize(
    ('task', 'outputs', 'known', 'evidence'),
    [
        ('classify', 'out (1, 1000)', {}, '1000 classes of published data'),
        ('classify', 'out (1, 5)', {'class_count': 5}, '5 named classes'),
        ('classify', 'softmax (1, 5)', {}, 'named softmax'),
        ('segment', 'out (1, 1, 640, 640)', {'class_count': 2}, 'names of classes'),
        ('segment', 'out (1, 3, 640, 640)', {'class_count': 3}, '3 named classes'),
        ('segment', 'logits (1, 85, 640, 640)', {}, 'named logits'),
        ('segment', 'out (1, 21, 640, 640)', {}, '21 classes of published data'),
        ('depth', 'inverse_depth (1, 1, 640, 640)', {}, 'named inverse_depth'),
        ('depth', 'disparity (1, 1, 640, 640)', {}, 'named disparity'),
    ],
)
def test_names_and_known_numbers_of_classes_are_evidence(network, task, outputs, known, evidence):
    seen = replace(network(outputs, **known), strict=True)
    _, reason = choose_family(TASKS[task], 'auto', seen)
    assert reason.endswith(evidence)


@pytest.mark.parametrize('name', ['embedding', 'feature', 'avg_pool'])
def test_a_vector_named_as_an_embedding_is_no_classifier(network, name):
    with pytest.raises(TensorMismatchError, match='This looks like an embedding network'):
        choose_family(TASKS['classify'], 'auto', network(f'{name} (1, 256)'))
    assert choose_family(TENSORS, 'auto', network(f'{name} (1, 256)'))[0].name == 'embedding'
