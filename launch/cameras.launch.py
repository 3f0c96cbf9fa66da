"""One detector per camera of a YAML file, or one for all; see config/cameras.example.yaml."""

from itertools import cycle, islice
from pathlib import Path

from launch.actions import DeclareLaunchArgument
from rclpy.exceptions import InvalidTopicNameException
from rclpy.validate_full_topic_name import validate_full_topic_name
import yaml

from trt_ros.errors import ParameterError
from trt_ros.launching.arguments import (
    argument,
    checked_parameters,
    common_arguments,
    given_parameters,
    launch_description,
    parameter_arguments,
)
from trt_ros.launching.graph import NodeDescription, launch_nodes
from trt_ros.nodes.detector import DetectorNode
from trt_ros.nodes.image_source import ImageSourceNode
from trt_ros.regular_file import MAX_TEXT_NBYTES, read_regular


def generate_launch_description():
    """Return the launch description."""
    return launch_description(
        [
            DeclareLaunchArgument(
                'cameras', description='YAML file of the cameras, as config/cameras.example.yaml.'
            ),
            argument(
                'one_node',
                'false',
                'Whether one detector, with one network in memory, serves all cameras; the result '
                'topics are the same.',
                ('true', 'false'),
            ),
            argument(
                'devices',
                '[]',
                'CUDA device indices that the cameras without a parameter device take in turn, '
                'such as [0, 1]; with one_node, each device has one detector.',
            ),
            *common_arguments(container='new'),
            *parameter_arguments(DetectorNode),
        ],
        nodes,
    )


def nodes(context):
    """Return the actions that start the detectors and the image sources."""
    file = Path(context.launch_configurations['cameras'])
    given = given_parameters(context, DetectorNode)
    for_all, cameras = read_cameras(file)
    devices = read_devices(context, given)
    if context.launch_configurations['one_node'] == 'true':
        detectors = detectors_of_all(file, for_all, cameras, given, devices)
    else:
        detectors = [
            NodeDescription(
                DetectorNode,
                'detector',
                namespace,
                remappings_of(camera),
                has_platform=True,
                parameters=checked_parameters(
                    DetectorNode, for_all | device | camera.get('parameters', {})
                )
                | given,
            )
            for (namespace, camera), device in zip(cameras.items(), cycle(devices))
        ]
    sources = [
        NodeDescription(
            ImageSourceNode,
            'image_source',
            namespace,
            remappings_of(camera),
            parameters={'source': str(camera['source'])},
        )
        for namespace, camera in cameras.items()
        if 'source' in camera
    ]
    return launch_nodes(context, detectors + sources)


def remappings_of(camera):
    """Return the remapping of the image topic of a camera."""
    return {'image': camera.get('image', 'image')}


def read_devices(context, given):
    """Return the parameter `device` of each place in the turn; one empty place: none is set."""
    text = context.launch_configurations['devices']
    try:
        devices = yaml.safe_load(text)
    except yaml.YAMLError:
        devices = None
    if (
        not isinstance(devices, list)
        or not all(type(device) is int and device >= 0 for device in devices)
        or len(set(devices)) < len(devices)
    ):
        raise ParameterError(
            f'devices is {text!r}.',
            cause='It must be a list of different CUDA device indices.',
            remedy="Write devices:='[0, 1]'.",
        )
    if devices and 'device' in given:
        raise ParameterError('device and devices are both given.', remedy='Give one of them.')
    return [{'device': device} for device in devices] or [{}]


def detectors_of_all(file, for_all, cameras, given, devices):
    """Return one detector per device, or one for all."""
    if 'image_topics' in for_all | given:
        raise ParameterError(
            'image_topics is set, but one_node is true.',
            cause='The detector then has the image topics of the cameras.',
            remedy='Remove image_topics.',
        )
    found = []
    for place, device in enumerate(devices[: len(cameras)]):
        own = dict(islice(cameras.items(), place, None, len(devices)))
        name = f'detector_{device["device"]}' if device else 'detector'
        found.append(detector_of_all(file, name, for_all | device, own, given))
    return found


def detector_of_all(file, node_name, for_all, cameras, given):
    """Return one detector for several cameras, with the topics of one detector per camera."""
    remappings = {}
    for namespace, camera in cameras.items():
        if 'parameters' in camera:
            raise ParameterError(
                f'{file}: camera {namespace} has parameters, but one_node is true.',
                cause='One detector serves all cameras.',
                remedy='Move them to the parameters of all cameras.',
            )
        name = namespace.strip('/')
        remappings[name] = image_topic(name, camera)
        remappings[f'~/{name}/detections'] = f'/{name}/detector/detections'
    topics = tuple(name for name in remappings if not name.startswith('~'))
    return NodeDescription(
        DetectorNode,
        node_name,
        remappings=remappings,
        has_platform=True,
        parameters=checked_parameters(DetectorNode, for_all) | {'image_topics': topics} | given,
    )


def read_cameras(file):
    """Return the parameters of all cameras, and the settings per camera by namespace."""
    try:
        content = yaml.safe_load(read_regular(file, MAX_TEXT_NBYTES))
    except (OSError, yaml.YAMLError) as error:
        raise ParameterError(f'{file} cannot be read.', cause=str(error)) from error
    content = settings(file, content, ('parameters', 'cameras'))
    for_all = parameters_in(f'{file}: parameters', content.get('parameters'))
    cameras = settings(f'{file}: cameras', content.get('cameras'))
    if not cameras:
        raise ParameterError(f'{file} lists no cameras.', remedy='Add them under `cameras:`.')
    for namespace, camera in cameras.items():
        place = f'{file}: camera {namespace}'
        cameras[namespace] = camera = settings(place, camera, ('image', 'source', 'parameters'))
        check_camera(place, namespace, camera)
        if 'parameters' in camera:
            camera['parameters'] = parameters_in(f'{place}: parameters', camera['parameters'])
    names = [namespace.strip('/') for namespace in cameras]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f'{file} has camera {name} twice.', remedy='Rename one of them.')
    return for_all, cameras


def parameters_in(place, content):
    """Return the parameters of one or all cameras."""
    parameters = settings(place, content)
    if 'autostart' in parameters:
        raise ParameterError(
            f'{place}: autostart has no effect here.',
            cause='The launch file configures and activates the detectors.',
            remedy='Use its argument, autostart:=false.',
        )
    return parameters


def check_camera(place, namespace, camera):
    """Check the namespace, the image topic and the source of a camera."""
    for what, text, kinds in (
        ('name', namespace, str),
        ('image', camera.get('image', 'image'), str),
        ('source', camera.get('source', 'none'), (str, int)),
    ):
        if not isinstance(text, kinds) or isinstance(text, bool) or text == '':
            raise ParameterError(
                f'{place}: {what} is {text!r}, but must be text.',
                remedy='Write it as text, with quotes if it is a number or a word such as on.',
            )
    name = namespace.strip('/')
    for topic in (f'/{name}', image_topic(name, camera)):
        try:
            validate_full_topic_name(topic)
        except InvalidTopicNameException as error:
            raise ParameterError(
                f'{place} has the topic {topic!r}.',
                cause=str(error).splitlines()[0].rstrip(':') + '.',
                remedy='Use letters, digits and _; a name begins with a letter.',
            ) from error


def image_topic(name, camera):
    """Return the full name of the image topic of a camera."""
    image = camera.get('image', 'image')
    return image if image.startswith('/') else f'/{name}/{image}'


def settings(place, content, names=()):
    """Return a mapping of the file; `names` are the allowed keys, all when empty."""
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ParameterError(
            f'{place} is {content!r}.',
            cause='It must be a mapping of names to values.',
            remedy='Follow config/cameras.example.yaml.',
        )
    unknown = set(content) - set(names or content)
    if unknown:
        raise ParameterError(
            f'{place} has unknown keys: {", ".join(sorted(map(str, unknown)))}.',
            remedy=f'Allowed keys are {", ".join(names)}.',
        )
    return content
