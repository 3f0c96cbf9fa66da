"""Parameters and networks that the configure of a node refuses, with the remedy."""

import sys

import pytest

from support.save_network import save_texts
from support.task_networks import save_task_networks

MULTI_ARRAYS = {'tensor_format': 'multiarray'}
JOINTS = 'q=joints:joint_states#position[a,b]'
INFORMED = ['x=image:camera/image', 'prior=tensor:prior']
REGIONS = {'regions': True}
#: Networks in the text format of ONNX, by name.
NETWORKS = {
    'scaled': '(float[1, 3] x, float[1] factor) => (float[1, 3] y) { y = Mul(x, factor) }',
    'guided': '(float[1, 2] q, float[1, 1] gain, float[1, 2] prompt) => (float[1, 5] action) '
    '{ action = Concat <axis = 1> (q, gain, prompt) }',
    'informed': '(float[1, 3, 32, 32] x, float[1, 3] prior) => (float[1, 3] scores) '
    '{ pooled = GlobalAveragePool(x) means = Flatten(pooled) scores = Add(means, prior) }',
    'turned': '(float[1, 3, 8, 8] x, float[1, 4] k) => (float[1, 7] y) '
    '{ pooled = GlobalAveragePool(x) flat = Flatten(pooled) y = Concat <axis = 1> (flat, k) }',
    'color': '(float[n, 3, 8, 8] images) => (float[n, 3] out) '
    '{ pooled = GlobalAveragePool(images) out = Flatten(pooled) }',
    'mirror': '(float[1, 2] q) => (float[1, 2] action) { action = Identity(q) }',
    'disparity': '(float[1, 3, 32, 32] images) => (float[1, 1, 32, 32] disparity) '
    '{ disparity = ReduceMax <axes = [1]> (images) }',
}
#: Parameters, and what the log says, by node and network.
CASES = {
    ('tensor', 'scaled'): [
        ({'input': 'tensors'}, 'input is tensors, but inputs has bindings'),
        ({'inputs': ['x=tensor:t?max_age=1', 'factor=tensor:t']}, "'t' has a max_age in inputs"),
        ({'rate_hz': 5.0, 'approximate_sync': True}, 'approximate_sync is true, but rate_hz is 5'),
        ({'inputs': ['y=tensor:t', '*=tensor:t']}, "has no input 'y'"),
        ({'inputs': ['x=tensor:t']}, 'The network input factor'),
        ({'inputs': ['*=tensor:t//u']}, "inputs has an invalid topic 't//u'"),
        (
            {'inputs': ['x=tensor:t', 'factor=tensor:/t']},
            "inputs has the topics 't' and '/t', which are both /t.",
        ),
        (
            {'inputs': ['x=tensor:t', 'factor=tensor:t'], **MULTI_ARRAYS},
            "'t' is bound to the network inputs x, factor",
        ),
        (
            {'inputs': ['x=tensor:t#z', 'factor=tensor:f'], **MULTI_ARRAYS},
            "The network input 'x' is bound to t#z",
        ),
        (
            {'inputs': ['*=tensor:t'], **MULTI_ARRAYS},
            "Messages of 't/x' have no stamp, but inputs meet by equal stamps",
        ),
        (REGIONS, "inputs is ['*=tensor:t'], but regions is true"),
    ],
    ('tensor', 'guided'): [
        (
            {'inputs': ['*=tensor:t?held=true']},
            'All topics in inputs are held: t/q, t/gain, t/prompt.',
        ),
        (
            {'inputs': ['*=tensor:t', 'gain=number:gain?held=yes']},
            "held of the network input 'gain' is 'yes'",
        ),
        (
            {'inputs': ['*=tensor:t', 'gain=number:gain?initial=1']},
            'initial is set for the network input',
        ),
        (
            {
                'inputs': [
                    'q=twist:t#linear[x,y]',
                    'gain=twist:t#angular[z]?held=true',
                    'prompt=tensor:prompt',
                ]
            },
            "The topic 't' in inputs is held for some of the network inputs q, gain, and",
        ),
        (
            {'rate_hz': 0.0, 'inputs': [JOINTS, 'gain=constant:1', 'prompt=twist:go#linear[x,y]']},
            "Messages of 'go' have no stamp",
        ),
    ],
    ('tensor', 'turned'): [
        (
            {'inputs': ['x=constant:0', 'k=tf:a,b#rotation']},
            'No network input is bound to a topic.',
        )
    ],
    ('classifier', 'informed'): [
        (
            {'image_topics': ['front', 'rear']},
            f"image_topics is ['front', 'rear'], but inputs is {INFORMED}.",
            'Remedy: Leave image_topics out, and run one node per camera; or leave inputs out.',
        ),
        (REGIONS, f'inputs is {INFORMED}, but regions is true.'),
        (
            {'rate_hz': 5.0, 'approximate_sync': True},
            'approximate_sync is true, but',
            'Remedy: Set appro',
        ),
        (
            {'inputs': ['*=tensor:all']},
            'The network gets no image.',
            'Remedy: Run the node `tensor`',
        ),
    ],
    ('classifier', 'color'): [
        (
            {**REGIONS, 'image_topics': ['a', 'b']},
            "image_topics is ['a', 'b'], but regions is true.",
        ),
        ({**REGIONS, 'rate_hz': 10.0}, 'rate_hz is 10.0, but regions is true.'),
        ({'image_topics': ['/front', 'front']}, 'image_topics has duplicates: /front, /front.'),
        (
            {'image_topics': ['/front', '~/front']},
            'image_topics has topics with the same results: /front, ~/front.',
        ),
        ({'image_topics': ['front', 'no topic']}, "image_topics has an invalid topic 'no topic'."),
        ({'image_topics': ['']}, "image_topics has an invalid topic ''."),
        ({'labels': ['a'], 'labels_path': 'somewhere'}, 'Both labels and labels_path are given.'),
    ],
    ('depth', 'pose'): [({}, 'This is a keypoint network; expected a depth network.')],
    ('depth', 'disparity'): [
        (
            {'depth_kind': 'disparity'},
            'depth_kind is disparity, but the network has one image topic',
        ),
        ({'depth_kind': 'affine'}, 'depth_kind is affine, but the network returns no points'),
    ],
    ('policy', 'mirror'): [({}, 'inputs is empty.')],
    ('tracker', None): [
        (
            {'detections_3d_topics': ['front', 'front']},
            'detections_3d_topics goes without use_appearance, and names each topic',
        ),
        (
            {'detections_3d_topics': ['front', '/front']},
            'detections_3d_topics goes without use_appearance, and names each topic',
        ),
        (
            {'detections_3d_topics': ['front', 'no topic']},
            "detections_3d_topics has an invalid topic 'no topic'.",
        ),
    ],
    ('image_source', None): [
        ({'source': ''}, 'The parameter source is empty.'),
        ({'source': '/no/such/folder'}, 'does not exist'),
        ({'source': '/no/such/*.jpg'}, 'contains no pictures'),
        ({'source': __file__}, 'as a video'),
        ({'source': '/dev/video99'}, 'cannot be opened'),
    ],
    ('overlay', None): [({'output_dir': f'{__file__}/folder'}, '/folder cannot be created.')],
}
#: Parameters of a node with a network, which others are added to.
COMMON = {
    'scaled': {'inputs': ['*=tensor:t']},
    'guided': {'rate_hz': 10.0, **MULTI_ARRAYS},
    'informed': {'inputs': INFORMED},
}


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp('models')
    return save_texts(folder, NETWORKS) | save_task_networks(folder)


@pytest.fixture
def configure_network(configure, models):
    def configure_network(kind, network, **parameters):
        given = {'model_path': models[network], 'backend': 'onnxruntime'} if network else {}
        return configure(kind, **given, **{**COMMON.get(network, {}), **parameters})

    return configure_network


@pytest.mark.parametrize(
    ('kind', 'network', 'parameters', 'texts'),
    [
        pytest.param(*where, parameters, texts, id=texts[0][:40])
        for where, cases in CASES.items()
        for parameters, *texts in cases
    ],
)
def test_contradictions_are_refused(configure_network, kind, network, parameters, texts):
    if network in ('scaled', 'informed') and 'tensor_format' not in parameters:
        pytest.importorskip('isaac_ros_tensor_list_interfaces')
    log = configure_network(kind, network, **parameters)
    assert 'on_configure failed.' in log and 'Traceback' not in log
    for text in texts:
        assert text in log


@pytest.mark.parametrize(
    ('missing', 'kind', 'network', 'parameters', 'texts'),
    [
        (
            ['tf2_ros'],
            *('tensor', 'turned', {'inputs': ['x=image:front', 'k=tf:a,b#rotation']}),
            ['tf in inputs needs tf2_ros, which cannot be imported'],
        ),
        (
            ['isaac_ros_tensor_msgs'],
            *('tensor', 'scaled', {'tensor_format': 'isaac5'}),
            [
                'isaac_ros_tensor_msgs/msg/TensorList is not installed',
                'or install isaac_ros_tensor_msgs of Isaac ROS 5',
            ],
        ),
        (
            ['isaac_ros_tensor_list_interfaces', 'isaac_ros_tensor_msgs'],
            *('tracker', None, {'use_appearance': True}),
            ['use_appearance is true, but no tensor lists are installed'],
        ),
        (['bond'], 'overlay', None, {'bond_period': 1.0}, ['apt install ros-$ROS_DISTRO-bond']),
    ],
)
def test_a_missing_package_is_named(
    configure_network, monkeypatch, missing, kind, network, parameters, texts
):
    for package in missing:
        for name in (package, f'{package}.msg'):
            monkeypatch.setitem(sys.modules, name, None)
    log = configure_network(kind, network, **parameters)
    assert all(text in log for text in texts), log


@pytest.mark.parametrize(
    ('kind', 'network', 'parameters'),
    [
        ('tensor', 'scaled', {**MULTI_ARRAYS, 'rate_hz': 1.0}),
        ('classifier', 'informed', {**MULTI_ARRAYS, 'rate_hz': 1.0}),
        ('depth', 'disparity', {'depth_kind': 'relative'}),
        ('overlay', None, {'queue_size': 5}),
    ],
)
def test_others_are_accepted(configure_network, kind, network, parameters):
    assert configure_network(kind, network, **parameters) == ''
