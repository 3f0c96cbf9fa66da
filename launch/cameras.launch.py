"""One detector per camera of a YAML file, or one for all; see config/cameras.example.yaml."""

from pathlib import Path

from launch.actions import DeclareLaunchArgument
import yaml

from trt_ros.errors import ParameterError
from trt_ros.launching.arguments import (
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
            DeclareLaunchArgument(
                'one_node',
                default_value='false',
                choices=('true', 'false'),
                description=(
                    'Whether one detector, with one network in memory, serves all cameras; '
                    'the result topics are the same.'
                ),
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
    if context.launch_configurations['one_node'] == 'true':
        detectors = [detector_of_all(file, for_all, cameras, given)]
    else:
        detectors = [
            NodeDescription(
                DetectorNode,
                'detector',
                namespace,
                remappings_of(camera),
                has_platform=True,
                parameters=checked_parameters(DetectorNode, for_all | camera.get('parameters', {}))
                | given,
            )
            for namespace, camera in cameras.items()
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


def detector_of_all(file, for_all, cameras, given):
    """Return one detector for all cameras, with the topics of one detector per camera."""
    remappings = {}
    for namespace, camera in cameras.items():
        if 'parameters' in camera:
            raise ParameterError(
                f'{file}: camera {namespace} has parameters, but one_node is true.',
                cause='One detector serves all cameras.',
                remedy='Move them to the parameters of all cameras.',
            )
        image = camera.get('image', 'image')
        name = namespace.strip('/')
        remappings[name] = image if image.startswith('/') else f'/{name}/{image}'
        remappings[f'~/{name}/detections'] = f'/{name}/detector/detections'
    topics = tuple(name for name in remappings if not name.startswith('~'))
    return NodeDescription(
        DetectorNode,
        'detector',
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
    for_all = settings(f'{file}: parameters', content.get('parameters'))
    cameras = settings(f'{file}: cameras', content.get('cameras'))
    if not cameras:
        raise ParameterError(f'{file} lists no cameras.', remedy='Add them under `cameras:`.')
    for namespace, camera in cameras.items():
        place = f'{file}: camera {namespace}'
        cameras[namespace] = camera = settings(place, camera, ('image', 'source', 'parameters'))
        if 'parameters' in camera:
            camera['parameters'] = settings(f'{place}: parameters', camera['parameters'])
    return for_all, cameras


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
