"""Errors for networks of another task than the node's."""

from pathlib import Path

import pytest

from support.descriptions import TASKS
from trt_ros.decode.choice import open_head
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families import mismatches
from trt_ros.families import registry as decoder

ALL = [each for task, families in TASKS.items() for each in families if task != 'tensor']
SEG = 'output0 (1, 116, 8400); output1 (1, 32, 160, 160)'
SEG_26 = 'output0 (1, 300, 38); output1 (1, 32, 160, 160)'


@pytest.mark.parametrize('name', ['auto', 'yolov8'])
@pytest.mark.parametrize(
    ('stated', 'kind', 'node'),
    [
        ('segment', 'a segmentation', 'segmenter'),
        ('semantic', 'a segmentation', 'segmenter'),
        ('pose', 'a keypoint', 'pose'),
        ('obb', 'an oriented-box', 'detector'),
        ('classify', 'a classification', 'classifier'),
        ('depth', 'a depth', 'depth'),
    ],
)
def test_a_detector_refuses_networks_whose_metadata_names_another_task(
    network, stated, kind, node, name
):
    seen = network('output0 (1, 84, 8400)', task=stated)
    with pytest.raises(TensorMismatchError) as error:
        decoder.choose_family(decoder.DETECTORS, name, seen)
    assert error.value.problem == (
        f'This is {kind} network; the detector runs detection networks.'
    )
    assert f"'task' is '{stated}'" in error.value.cause
    assert error.value.remedy == f'Run the node `{node}`, or choose a detection network.'


@pytest.mark.parametrize(
    ('outputs', 'kind', 'nodes'),
    [
        (SEG, 'a segmentation', '`segmenter`'),
        (SEG_26, 'a segmentation', '`segmenter`'),
        ('out (1, 21, 640, 640)', 'a segmentation', '`segmenter`'),
        ('output0 (1, 300, 57)', 'a keypoint', '`pose`'),
        ('out (1, 100)', 'a classification or embedding', '`classifier` or `tensor`'),
        ('out (1, 1000)', 'a classification', '`classifier`'),
        ('depth (1, 640, 640)', 'a depth', '`depth`'),
        ('out (1, 1, 640, 640)', 'a segmentation or depth', '`segmenter` or `depth`'),
    ],
)
def test_a_detector_reports_the_kind_of_network_by_its_shape(network, outputs, kind, nodes):
    with pytest.raises(TensorMismatchError) as error:
        decoder.choose_family(decoder.DETECTORS, 'auto', network(outputs))
    assert (
        error.value.problem
        == f'This looks like {kind} network; the detector runs detection networks.'
    )
    assert outputs.split()[0] in error.value.cause
    assert error.value.remedy == (
        f'Run the node {nodes}. If it is a detection network, set `decoder` to its family '
        '(docs/models.md).'
    )


def test_other_tasks_report_the_kind_of_network_and_the_variants_of_this_one(network):
    with pytest.raises(TensorMismatchError, match='This is a detection network; expected a key'):
        decoder.choose_family(decoder.POSES, 'auto', network('out (1, 84, 8400)', task='detect'))
    with pytest.raises(ParameterError, match='or set `decoder` to yolov8_pose or '):
        decoder.choose_family(decoder.POSES, 'yolov8', network('output0 (1, 56, 8400)'))


def test_every_task_has_a_node_that_there_is():
    nodes = Path(decoder.__file__).parents[1] / 'nodes'
    assert all((nodes / f'{node}.py').is_file() for _, node in mismatches.TASKS.values())


@pytest.mark.parametrize('family', ALL, ids=lambda family: family.name)
def test_a_wrong_decoder_name_reports_the_expected_outputs_and_a_remedy(network, family):
    wanted = f'not those of {family.name}: expected'
    for outputs in ('none', 'x (1, 2, 3, 4, 5)', 'x (1, 3, 2, 2); y (1, 3, 2, 2)'):
        seen = network(outputs)
        chosen = decoder.choose_family(TASKS[family.task], family.name, seen)
        assert chosen == (family, 'as configured')
        with pytest.raises(TensorMismatchError, match=wanted) as error:
            open_head(family, seen)
        assert error.value.remedy == family.remedy, outputs
