"""The detector's transitions, requested by another process."""

import signal

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
import pytest
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import (
    GetParameters,
    ListParameters,
    SetParameters,
    SetParametersAtomically,
)
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image

from support.ros_messages import as_image, picture
from support.waiting import DEADLINE_SECONDS


@pytest.fixture(scope='module')
def shared(fake_detector):
    return fake_detector('lifecycle')


@pytest.fixture
def node(shared):
    """An unconfigured detector; each test leaves it alive."""
    yield shared
    shared.back_to_unconfigured()
    assert shared.set(model_path='') == ''
    assert shared.process.poll() is None


@pytest.mark.parametrize(
    'request_',
    [
        {'label': 'activate'},
        {'label': 'deactivate'},
        {'label': 'cleanup'},
        {'label': 'no_such'},
        {'id': Transition.TRANSITION_ACTIVATE},
        {'id': 99},
        {'id': 0},
        {'id': Transition.TRANSITION_ACTIVE_SHUTDOWN},
        {'id': Transition.TRANSITION_DESTROY},
        {'id': Transition.TRANSITION_ON_CONFIGURE_SUCCESS},
    ],
    ids=str,
)
def test_rejects_transitions_invalid_in_unconfigured(node, request_):
    assert not node.change(**request_)
    assert node.state == 'unconfigured'


def test_a_failed_configure_is_logged_and_diagnosed_until_one_succeeds(node):
    def shows(level, message):
        return lambda array: (
            array.status[0].name == 'lifecycle: image'
            and (array.status[0].level, array.status[0].message) == (level, message)
        )

    box = node.peer.inbox(DiagnosticArray, '/diagnostics')
    assert node.set(model_path='broken:') == ''
    assert not node.change('configure')
    assert node.state == 'unconfigured'
    node.wait_for_log(
        'on_configure failed. The model is broken.\nCause: It is a test.\nRemedy: Mend it.'
    )
    box.wait_for(shows(DiagnosticStatus.ERROR, 'on_configure failed. The model is broken.'))
    assert node.set(model_path='') == ''
    assert node.change('configure')
    box.wait_for(shows(DiagnosticStatus.OK, 'inactive'))


def test_a_bug_in_configure_is_logged_with_its_traceback(node):
    assert node.set(model_path='bug:') == ''
    assert not node.change('configure')
    assert node.state == 'unconfigured'
    node.wait_for_log('ZeroDivisionError: a bug')
    assert 'Traceback' in node.log


def test_node_responds_during_slow_configure(node, tmp_path):
    go_on = tmp_path / 'go_on'
    assert node.set(model_path=f'wait:{go_on}') == ''
    configured = node.ask_transition('configure')
    node.peer.wait_until(lambda: node.state == 'configuring', 'configure to begin')
    assert node.get('score_threshold') == 0.25
    assert node.set(score_threshold=0.5) == ''
    assert not node.change('configure')
    assert not node.change('activate')
    assert 'cannot change' in node.set(backend='onnxruntime')
    node.wait_for_log('configure: another transition is in progress (configuring)')
    assert not configured.done()
    go_on.touch()
    assert node.peer.wait(configured).success
    assert not node.change('configure')
    node.wait_for_log('configure is not possible while inactive')
    assert node.state == 'inactive'
    assert node.get('score_threshold') == 0.5
    assert node.set(score_threshold=0.25) == ''


@pytest.mark.parametrize('state', ['unconfigured', 'inactive', 'active'])
def test_setting_all_parameters_to_their_own_values_succeeds(node, state):
    for label, reached in (('configure', 'inactive'), ('activate', 'active')):
        if state in (reached, 'active'):
            assert node.change(label)
    names = node.peer.call(ListParameters, '/lifecycle/list_parameters').result.names
    values = node.peer.call(GetParameters, '/lifecycle/get_parameters', names=names).values
    dumped = [ParameterMessage(name=name, value=value) for name, value in zip(names, values)]
    assert {'autostart', 'labels', 'mean', 'model_path', 'use_sim_time'} <= set(names)
    answer = node.peer.call(SetParameters, '/lifecycle/set_parameters', parameters=dumped)
    assert [each.reason for each in answer.results] == [''] * len(dumped)
    assert all(each.successful for each in answer.results)
    assert node.peer.call(
        SetParametersAtomically, '/lifecycle/set_parameters_atomically', parameters=dumped
    ).result.successful
    assert 'read-only' in node.set(autostart=True)
    if state != 'unconfigured':
        assert 'cannot change' in node.set(mean=[0.5, 0.5, 0.5])
    assert node.set(gpu_timeout=Parameter('gpu_timeout', value=10)) == ''  # An integer for 10.0.


@pytest.mark.parametrize(
    ('model', 'frames_in_flight'), [('faulty:', 1), ('faulty:untold', 1), ('faulty:', 2)]
)
def test_gpu_failure_leaves_unconfigured_node_with_reason(node, model, frames_in_flight):
    box = node.peer.inbox(DiagnosticArray, '/diagnostics')
    log_before = len(node.log)
    assert node.set(model_path=model, frames_in_flight=frames_in_flight) == ''
    assert node.change('configure')
    assert node.change('activate')
    images = node.peer.connected(Image, '/image')
    for _ in range(frames_in_flight):
        images.publish(as_image(picture(), 'rgb8'))
    node.peer.wait_until(lambda: node.state == 'unconfigured', 'everything to be released')
    log = node.log[log_before:]
    assert (
        'on_deactivate failed. The GPU failed.\nCause: It is a test.\nRemedy: Restart it.' in log
    )
    assert 'The failing GPU is closed.' in log
    assert '[trt_ros.runtime]: The GPU failed.' in log
    box.wait_for(
        lambda array: (
            (array.status[0].level, array.status[0].message)
            == (DiagnosticStatus.ERROR, 'on_deactivate failed. The GPU failed.')
        )
    )
    assert node.set(model_path='', frames_in_flight=1) == ''
    assert node.change('configure')
    assert node.change('activate')


def test_sigterm_during_slow_configure_shuts_down_cleanly(fake_detector, tmp_path):
    node = fake_detector('terminated', model_path=f'wait:{tmp_path / "never"}', autostart=True)
    node.wait_for_log('waiting for the file')
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(DEADLINE_SECONDS) == 0, node.log
    assert 'Traceback' not in node.log
    assert 'on_configure was cancelled' in node.log


@pytest.mark.parametrize('state', ['unconfigured', 'inactive', 'active'])
def test_shutdown_from_any_state(fake_detector, state):
    node = fake_detector(f'shut_{state}')
    for label, reached in (('configure', 'inactive'), ('activate', 'active')):
        if state in (reached, 'active'):
            assert node.change(label)
    assert node.state == state
    assert node.change('shutdown')
    assert node.state == 'finalized'
    node.stop()


@pytest.mark.parametrize(
    ('topics', 'named', 'remedy'),
    [
        ([], 'detections', "Correct the remapping of 'image'.\n"),
        (['cam', '~/cam/detections'], 'cam/detections', ', or the parameter image_topics.\n'),
    ],
    ids=['remapped', 'by a parameter'],
)
def test_an_input_that_is_an_output_of_another_type_is_refused(
    fake_detector, topics, named, remedy
):
    node = fake_detector('looped', '-r', 'image:=~/detections', image_topics=topics)
    assert node.change('configure')
    assert not node.change('activate')
    assert node.state == 'unconfigured'
    assert (
        f'The topic /looped/{named} cannot have messages of the type sensor_msgs/msg/Image.\n'
        'Cause: It has another type already: '
        '/looped publishes vision_msgs/msg/Detection2DArray.\nRemedy: '
    ) in node.log
    assert remedy in node.log
    assert 'Traceback' not in node.log


def test_two_outputs_of_different_types_on_one_topic_are_refused(fake_detector):
    node = fake_detector('joined', '-r', '~/label_info:=~/detections')
    assert not node.change('configure')
    assert 'Cause: It has another type already: /joined publishes vision_msgs/msg/' in node.log
    assert "Remedy: Correct the remapping of '~/" in node.log
    assert 'Traceback' not in node.log
