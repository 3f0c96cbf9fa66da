"""`trt-ros verify` and `bench` of networks of several images, tensors and states."""

import json

import cv2
import numpy as np
import pytest

from support.save_network import POLICY, save_text
from trt_ros.cli import main
from trt_ros.runtime.backends import choose_backend

STACK = (
    '(float[1, 2, 3, 8, 8] x) => (float[1, 3, 8, 8] mask) '
    '<int64[1] axes = {1}> { mask = ReduceSum <keepdims = 0> (x, axes) }'
)
BINDINGS = 'left=image:left?scale=1.0, right=image:right?scale=1.0, q=tensor:joints, h=state:hn'


@pytest.fixture
def network(tmp_path):
    """Write a network of two images, a tensor and a state; `hn` is its formula."""

    def write(name='policy', hn='hn = Add(h, one)'):
        return save_text(tmp_path / f'{name}.onnx', POLICY.replace('hn = Add(h, one)', hn))

    return write


@pytest.fixture
def verify(network, engine_is, capsys):
    """Compare the network with another in place of its engine; return exit code and report."""

    def run(*args, hn='hn = Add(h, one)'):
        engine_is(network('engine', hn))
        code = main(['verify', str(network()), *map(str, args), '--json'])
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out else None, captured.err

    return run


@pytest.fixture
def picture(tmp_path):
    def write(name, gray):
        cv2.imwrite(str(tmp_path / name), np.full((8, 8, 3), gray, np.uint8))
        return tmp_path / name

    return write


def test_states_are_the_outputs_of_the_previous_run_of_the_same_side(verify):
    code, found, _ = verify('--inputs', BINDINGS, '--random', '4', hn='hn = Sub(h, one)')
    assert code == 1 and 'hn' in found['failed']
    assert found['outputs']['hn']['max_error'] == 8
    assert found['outputs']['action']['max_error'] == pytest.approx(6)


def test_a_run_takes_one_picture_per_image_topic_which_its_inputs_share(verify, picture):
    pictures = [picture('a.png', 200), picture('b.png', 50), picture('c.png', 90)]
    code, found, _ = verify(*pictures, pictures[0], '--inputs', BINDINGS)
    assert code == 0
    assert [each['name'] for each in found['inputs']] == [
        f'{pictures[0]} + {pictures[1]}',
        f'{pictures[2]} + {pictures[0]}',
    ]
    assert found['outputs']['difference']['largest'] == 150
    one_topic = BINDINGS.replace('image:right', 'image:left')
    code, found, _ = verify(pictures[0], '--inputs', one_topic)
    assert (code, found['outputs']['difference']['largest']) == (0, 0)
    code, _, said = verify(*pictures, '--inputs', BINDINGS)
    assert code == 1
    assert (
        'The last run has 1 pictures, but takes 2.\nCause: The image topics are left, right.'
        in said
    )


def test_pictures_for_a_network_without_images_are_refused(verify, picture):
    code, _, said = verify(picture('a.png', 200), '--inputs', '*=tensor:all')
    assert code == 1
    assert 'The network takes no pictures.' in said and 'Bind an input to an image' in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ('body', 'bindings'),
    [
        (
            '(float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] mask) { mask = Identity(x) }',
            ['x=image:color,depth?mean=0,0,0,0&std=1,1,1,1'],
        ),
        (STACK, ['x=images:color,rear?mean=0&std=1', '--decoder', 'semantic']),
    ],
)
def test_the_picture_shows_the_first_image(body, bindings, picture, tmp_path, capsys):
    if choose_backend('auto')[0].name != 'onnxruntime':
        pytest.skip('here is a GPU: the comparison runs as well')
    drawn = tmp_path / 'drawn.png'
    path = save_text(tmp_path / 'network.onnx', body)
    pictures = [picture('color.png', 200), picture('depth.png', 50)]
    code = main(
        ['verify', str(path), *map(str, pictures), '--inputs', *bindings, '--picture', str(drawn)]
    )
    assert code == 0, capsys.readouterr().err
    assert 'decoder semantic' in capsys.readouterr().err
    assert cv2.imread(str(drawn))[-240, 240].tolist() == [200] * 3


def test_a_stack_takes_one_picture_per_topic(picture, tmp_path, capsys, engine_is):
    stack = save_text(tmp_path / 'stack.onnx', STACK)
    engine_is(stack)
    pictures = [picture('a.png', 200), picture('b.png', 50)]
    bindings = ['--inputs', 'x=images:front,rear?scale=1.0', '--json']
    assert main(['verify', str(stack), *map(str, pictures), *bindings]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found['outputs']['mask']['largest'] == 250
    assert [each['name'] for each in found['inputs']] == [f'{pictures[0]} + {pictures[1]}']


def test_bench_measures_bound_inputs(network, tmp_path, capsys):
    written = tmp_path / 'times.json'
    size = ('--frames', '3', '--image-size', '32x16')
    outputs = ('--outputs', 'action', '--json', str(written))
    code = main(['bench', str(network()), *size, '--inputs', BINDINGS, *outputs])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    (found,) = json.loads(written.read_text())['results']
    assert found['image'] == '32x16 bgr8, q [1, 4]'
    assert (
        'h: state, output hn of the previous run' in captured.out
        and 'outputs action' in captured.out
    )
