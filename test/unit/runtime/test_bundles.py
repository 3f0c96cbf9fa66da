"""Bundles run on the CPU, and bundles refused."""

from contextlib import ExitStack

from demo.scene import draw_scene
import numpy as np
import onnxruntime
import pytest

from support.bundles import (
    HELD,
    assert_held_networks_run_once,
    denoiser,
    prompted,
    sums,
    two_sums,
    write_bundle,
    write_enhanced,
)
from trt_ros.demo import MODEL
from trt_ros.errors import ModelError, ParameterError
from trt_ros.runtime.pipeline import Pipeline

pytestmark = pytest.mark.slow

ONE = np.ones(1, np.float32)


@pytest.fixture
def open_cpu():
    with ExitStack() as opened:
        yield lambda path, **options: opened.enter_context(
            Pipeline.open(path, backend='onnxruntime', **options)
        )


def test_states_and_flow_of_two_networks(tmp_path, open_cpu):
    pipeline = open_cpu(two_sums(tmp_path))
    assert f'bundle {tmp_path}/bundle.yaml: A, B' in pipeline.log_lines
    for _ in range(2):
        runs = [pipeline({'ai1': ONE})['bo1'].item() for _ in range(5)]
        assert runs == [1, 4, 12, 33, 88]
        pipeline.reset_state()


def test_an_input_keeps_its_last_value_unless_the_user_binds_it(tmp_path, open_cpu):
    networks = {'A': sums('a b', 'c')}
    pipeline = open_cpu(write_bundle(tmp_path, networks, inputs={'A': ['a', 'b']}))
    given = [{'a': ONE}, {'b': 2 * ONE}, {}, {'a': 5 * ONE}]
    assert [pipeline(each)['c'].item() for each in given] == [1, 3, 3, 7]
    pipeline = open_cpu(two_sums(tmp_path), inputs=['ai2=constant:10'])
    assert [pipeline({'ai1': ONE})['bo1'].item() for _ in range(2)] == [11, 33]


@pytest.mark.parametrize('steps', [1, 2, 5])
def test_a_loop_equals_its_steps(tmp_path, open_cpu, steps):
    path = denoiser(tmp_path, steps)
    pipeline = open_cpu(path, inputs=['x=tensor:x'])
    rng = np.random.default_rng(1)
    seen, x = (rng.normal(0, 1, n).astype(np.float32) for n in ((1, 3, 16, 16), (1, 4)))
    found = pipeline({'seen': seen, 'x': x})
    encoder, step = (
        onnxruntime.InferenceSession(str(tmp_path / f'{name}.onnx'))
        for name in ('encoder', 'step')
    )
    [context] = encoder.run(None, {'seen': seen})
    for i in range(steps):
        t, dt = np.full((1, 1), i, 'f4'), np.full((1, 1), 0.5 / (1 + i), 'f4')
        [x] = step.run(None, {'x': x, 'context': context, 't': t, 'dt': dt})
    np.testing.assert_array_equal(found['x_next'], x)


def test_a_detector_gets_the_image_of_an_enhancer(tmp_path, open_cpu):
    bright = draw_scene(np.random.default_rng(5), (640, 480))[0] // 4 * 4
    ours = open_cpu(write_enhanced(tmp_path), decoder='yolov8', inputs=['dark=image:image'])
    found, wanted = ours(bright // 4), open_cpu(MODEL)(bright)
    assert found.labels.tolist() == wanted.labels.tolist()
    assert found.class_names == wanted.class_names
    assert len(found) >= 4
    np.testing.assert_allclose(found.xyxy, wanted.xyxy, atol=0.1)


def test_larger_images_and_frames_in_flight_beside_states_are_refused(tmp_path, open_cpu):
    path = write_enhanced(tmp_path, 160)
    with pytest.raises(ParameterError, match='different sizes: 160x160, 320x320'):
        open_cpu(path, decoder='yolov8', inputs=['dark=image:image'])
    with pytest.raises(ParameterError, match='the bundle has states'):
        open_cpu(two_sums(tmp_path), frames_in_flight=2)


def test_a_network_is_the_declared_one(tmp_path, open_cpu):
    path = two_sums(tmp_path)
    path.write_text(path.read_text().replace('ao1', 'ao9'))
    with pytest.raises(ModelError, match='The network A of the bundle is another one') as caught:
        open_cpu(path)
    assert 'ao1' in caught.value.cause
    other = write_bundle(tmp_path, {'A': sums('a', 'b')}, inputs={'A': ['a']})
    other.write_text(other.read_text().replace('dtype: float32', 'dtype: int64'))
    with pytest.raises(ModelError, match='another one'):
        open_cpu(other)


def test_networks_of_held_inputs_run_when_these_change(tmp_path, open_cpu):
    pipeline = open_cpu(prompted(tmp_path), inputs=HELD, outputs=('y', 'token'))
    assert_held_networks_run_once(pipeline, pipeline.runner.members.values())
