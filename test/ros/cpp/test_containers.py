"""The nodes in the stock containers of rclcpp_components, beside a camera in C++."""

import json
from pathlib import Path
import signal

import cv2
import numpy as np
import pytest
from sensor_msgs.msg import Image
from std_msgs.msg import String
from vision_msgs.msg import Detection2DArray

from support.containers import check_policy
from support.cpp_containers import (
    BY_POINTER,
    KINDS,
    MODEL,
    detections,
    load,
    load_camera,
    load_detector,
)
from support.launches import Launch
from support.ros_nodes import RemoteNode
from support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.cpp

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture(scope='module', params=KINDS)
def shared(request, start):
    return start(request.param)


@pytest.fixture
def container(shared):
    """A container of each kind, empty; each test leaves it alive."""
    yield shared
    shared.unload_all()


def test_images_arrive_by_pointer(container):
    load_camera(container)
    assert load(container, 'TensorNode').full_node_name == '/probe'
    inbox = container.peer.inbox(String, '/probe/seen')
    seen = json.loads(inbox.wait_for().data)
    assert seen['is_same_memory'], container.node.log
    assert (seen['frame_id'], seen['size']) == ('camera', [640, 480, 640 * 480 * 3])


def test_without_intra_process_images_are_copied(container):
    load_camera(container)
    load(container, 'TensorNode', extra=[])
    inbox = container.peer.inbox(String, '/probe/seen')
    assert not json.loads(inbox.wait_for().data)['is_same_memory']


def load_viewer(container, topic, extra=BY_POINTER):
    answer = container.load(
        'trt_ros_test_camera::Viewer',
        'trt_ros_test_camera',
        extra=extra,
        remap_rules=[f'image:={topic}'],
    )
    assert answer.success, answer.error_message
    return answer.unique_id


def views(container):
    """Receive the reports of the viewer."""
    inbox = container.peer.inbox(String, '/viewer/seen')
    return lambda: [json.loads(each.data) for each in inbox.messages]


def stamp_of(message):
    return message.header.stamp.sec, message.header.stamp.nanosec


def load_overlay(container):
    load(
        container,
        'OverlayNode',
        parameters=[('autostart', True)],
        remap_rules=['detections:=/detector/detections'],
    )


def test_results_reach_cpp_subscribers_by_pointer_and_others_through_dds(container):
    load_camera(container)
    load_detector(container)
    load_overlay(container)
    load_viewer(container, '/overlay/image')
    images = container.peer.inbox(Image, '/overlay/image', qos=5)
    seen = views(container)

    def both():
        sent = {stamp_of(each): each for each in images.messages}
        return [(each, sent[stamp]) for each in seen() if (stamp := tuple(each['stamp'])) in sent]

    container.peer.wait_until(lambda: len(both()) >= 3, 'an image on both ways')
    for view, image in both():
        assert view['is_by_pointer']
        assert view['size'] == [image.width, image.height, image.step] == [640, 480, 1920]
        assert (view['encoding'], view['frame_id']) == (image.encoding, image.header.frame_id)
        assert view['sum'] == sum(image.data)
    stamps = [tuple(each['stamp']) for each in seen()]
    assert len(set(stamps)) == len(stamps), 'An image also came through DDS.'
    (publisher,) = container.peer.node.get_publishers_info_by_topic('/overlay/image')
    assert publisher.node_name == 'overlay'
    assert publisher.qos_profile.reliability.name == 'RELIABLE'


def test_cpp_subscribers_without_intra_process_get_results_through_dds(container):
    load_camera(container)
    load_detector(container)
    load_overlay(container)
    load_viewer(container, '/overlay/image', extra=[])
    seen = views(container)
    container.peer.wait_until(seen, 'an image')
    assert not seen()[0]['is_by_pointer']


def test_results_reach_cpp_subscribers_once_after_another_configure(container):
    load_camera(container)
    load_detector(container)
    load_overlay(container)
    load_viewer(container, '/overlay/image')
    node = RemoteNode(container.peer, 'overlay')
    for label in ('deactivate', 'cleanup', 'configure', 'activate'):
        container.peer.wait_until(lambda label=label: node.change(label), label)
    seen = views(container)
    container.peer.wait_until(lambda: len(seen()) >= 3, 'images')
    stamps = [tuple(each['stamp']) for each in seen()]
    assert len(set(stamps)) == len(stamps)
    assert all(each['is_by_pointer'] for each in seen())


def test_images_of_python_nodes_reach_python_nodes_once(container, tmp_path):
    picture = str(tmp_path / 'picture.png')
    cv2.imwrite(picture, np.zeros((48, 64, 3), np.uint8))
    load(container, 'ImageSourceNode', parameters=[('source', picture), ('autostart', True)])
    load_detector(container)
    inbox = detections(container, '/detector/detections')
    inbox.wait_for(lambda _: len(inbox.messages) >= 3)
    stamps = [stamp_of(each) for each in inbox.messages]
    assert len(set(stamps)) == len(stamps)


def test_requests_have_the_same_meaning_as_for_other_nodes(container):
    load_camera(container)
    answer = load_detector(
        container,
        'front',
        node_namespace='/robot',
        remap_rules=['image:=/image', '~/detections:=/found'],
    )
    assert answer.full_node_name == '/robot/front'
    assert container.list()[answer.unique_id] == '/robot/front'
    inbox = detections(container, '/found')
    assert inbox.wait_for().header.frame_id == 'camera'
    node = RemoteNode(container.peer, 'robot/front')
    assert node.state == 'active'
    assert (node.get('model_path'), node.get('use_sim_time')) == (MODEL, False)
    assert node.change('deactivate') and node.change('cleanup')
    assert node.set(qos_depth=3) == ''
    assert container.unload(answer.unique_id).success
    container.sees_nodes(lambda names: not {'front', '_front_images'} & set(names))


@pytest.mark.parametrize('extra', [BY_POINTER, []], ids=['by pointer', 'by DDS'])
def test_a_policy_commands_joints(container, tmp_path, extra):
    check_policy(container, tmp_path, extra=extra)


def test_simulated_time_is_a_parameter(container):
    answer = load(container, 'DetectorNode', parameters=[('use_sim_time', True)])
    assert RemoteNode(container.peer, 'detector').get('use_sim_time') is True
    assert container.unload(answer.unique_id).success


def test_log_level_is_that_of_the_arguments_of_the_container(start):
    container = start(arguments=['--log-level', 'slow:=debug'])
    load(container, 'PoseNode')
    container.says('slow is constructed')


def test_nodes_are_loaded_and_unloaded_in_any_order(container):
    first = load_detector(container, 'first').unique_id
    camera = load_camera(container)
    second = load_detector(container, 'second').unique_id
    for name in ('first', 'second'):
        detections(container, f'/{name}/detections').wait_for()
    assert container.unload(first).success
    assert container.unload(camera).success
    load_camera(container)
    third = load_detector(container, 'first').unique_id
    inboxes = [detections(container, f'/{name}/detections') for name in ('first', 'second')]
    for inbox in inboxes:
        inbox.wait_for()
    assert container.unload(second).success
    assert container.list()[third] == '/first'


def test_failing_constructor_is_the_load_error_and_leaves_nothing(container):
    answer = container.load('trt_ros::DepthNode', 'trt_ros')
    assert not answer.success
    assert 'Component constructor threw an exception: ' in answer.error_message
    assert 'no lens' in answer.error_message
    container.sees_nodes(lambda names: 'failing' not in names)
    assert container.list() == {}
    load_detector(container)


def test_wrong_parameter_type_is_named_in_the_load_error(container):
    answer = container.load('trt_ros::DetectorNode', 'trt_ros', parameters=[('qos_depth', 'many')])
    assert not answer.success
    assert 'qos_depth' in answer.error_message
    container.sees_nodes(lambda names: 'detector' not in names)


def test_unloading_cancels_configure(container):
    answer = load(container, 'PoseNode', parameters=[('autostart', True)])
    container.says('configure has begun')
    assert container.unload(answer.unique_id).success
    container.sees_nodes(lambda names: 'slow' not in names)


def test_a_signal_ends_the_container_during_configure(start):
    container = start()
    load(container, 'PoseNode', parameters=[('autostart', True)])
    container.says('configure has begun')
    container.process.send_signal(signal.SIGINT)
    assert container.process.wait(DEADLINE_SECONDS) == 0, container.node.log


def test_missing_package_is_named_and_the_camera_lives_on(start, tmp_path):
    container = start(PYTHONPATH=str(tmp_path))
    camera = load_camera(container)
    answer = container.load('trt_ros::DetectorNode', 'trt_ros')
    assert not answer.success
    for text in ('cannot be imported by Python 3', "Cause: No module named 'trt_ros", 'Remedy: '):
        assert text in answer.error_message
    assert container.list() == {camera: '/camera'}


def test_python_that_does_not_start_is_named_and_the_camera_lives_on(start, tmp_path):
    container = start(PYTHONHOME=str(tmp_path))
    camera = load_camera(container)
    for _ in range(2):
        answer = container.load('trt_ros::DetectorNode', 'trt_ros')
        assert not answer.success
        assert 'does not start in this process.\nCause: ' in answer.error_message
    assert container.list() == {camera: '/camera'}


@pytest.mark.slow
@pytest.mark.parametrize(
    ('environment', 'growth_kilobytes'),
    # By default, freed memory that shares pages with used memory stays in up to 8 arenas per core.
    [({'MALLOC_ARENA_MAX': '2'}, 20_000), ({}, 50_000)],
    ids=['two arenas', 'default'],
)
def test_memory_stays_constant_while_nodes_are_loaded_and_unloaded(
    start, environment, growth_kilobytes
):
    container = start(**environment)
    load_camera(container)
    kilobytes = []
    for _ in range(50):
        loaded = load_detector(container).unique_id
        inbox = detections(container, '/detector/detections')
        inbox.wait_for()
        container.peer.close_inbox(inbox)
        assert container.unload(loaded).success
        status = Path(f'/proc/{container.process.pid}/status').read_text()
        kilobytes.append(int(status.partition('RssAnon:')[2].split()[0]))
    assert max(kilobytes[-5:]) < kilobytes[2] + growth_kilobytes, kilobytes


@pytest.fixture
def launch(workspace, domain_id, tmp_path):
    """Start a launch file of the package, or another one; see `Launch`."""
    pytest.importorskip('launch_ros')
    started = []

    def start(*arguments):
        started.append(Launch(tmp_path, *arguments, **workspace, ROS_DOMAIN_ID=str(domain_id)))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.stop()


def test_launch_file_loads_its_node_into_a_running_container(container, launch):
    load_camera(container)
    launched = launch('detector.launch.py', f'model_path:={MODEL}', f'container:={container.name}')
    assert launched.ends() == 0, launched.output
    assert f'/detector: loaded in {container.name}.' in launched.output
    detections(container, '/detector/detections').wait_for()
    subscriptions = container.peer.node.get_subscriptions_info_by_topic('/image')
    assert [each.node_name for each in subscriptions] == ['_detector_images']


def test_node_that_a_launch_file_loads_logs_its_error_in_the_container(container, launch):
    camera = load_camera(container)
    launched = launch(
        'detector.launch.py', 'model_path:=no_such.onnx', f'container:={container.name}'
    )
    assert launched.ends() == 0, launched.output
    assert f'/detector: loaded in {container.name}.' in launched.output
    container.says('no_such.onnx')
    assert camera in container.list()


def test_launch_file_starts_camera_and_detector_in_one_container(launch, peer, tmp_path):
    file = tmp_path / 'robot.launch.py'
    file.write_text(f"""
from launch import LaunchDescription
from launch_ros.actions import ComposableNodeContainer
from launch_ros.descriptions import ComposableNode
by_pointer = [{{'use_intra_process_comms': True}}]
def generate_launch_description():
    return LaunchDescription([ComposableNodeContainer(
        name='launched', namespace='', package='rclcpp_components',
        executable='component_container_isolated',
        composable_node_descriptions=[
            ComposableNode(package='trt_ros_test_camera', plugin='trt_ros_test_camera::Camera',
                           extra_arguments=by_pointer),
            ComposableNode(package='trt_ros', plugin='trt_ros::DetectorNode',
                           name='launched_detector', extra_arguments=by_pointer,
                           parameters=[{{'model_path': {MODEL!r}, 'autostart': True}}]),
        ])])
""")
    launched = launch(file)
    launched.waits_for(lambda: peer.node.count_publishers('/launched_detector/detections'))
    peer.inbox(Detection2DArray, '/launched_detector/detections').wait_for()
    assert launched.stop() == 0, launched.output
