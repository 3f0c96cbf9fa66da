"""A detector for each camera of a YAML file, or for all; config/cameras.example.yaml is one."""

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
from trt_ros.launching.graph import Part, graph
from trt_ros.nodes.detector import DetectorNode
from trt_ros.nodes.image_source import ImageSourceNode
from trt_ros.regular_file import MAX_TEXT_NBYTES, read_regular


def generate_launch_description():
    return launch_description(
        [
            DeclareLaunchArgument('cameras', description='YAML file of the cameras.'),
            DeclareLaunchArgument(
                'one_node',
                default_value='false',
                choices=('true', 'false'),
                description=(
                    'One detector for all cameras, with one network in memory, whose '
                    'results are on the '
                    'same topics.'
                ),
            ),
            *common_arguments(container='new'),
            *parameter_arguments(DetectorNode),
        ],
        nodes,
    )


def nodes(context):
    file = Path(context.launch_configurations['cameras'])
    given = given_parameters(context, DetectorNode)
    for_all, cameras = read_cameras(file)
    if context.launch_configurations['one_node'] == 'true':
        detectors = [detector_of_all(file, for_all, cameras, given)]
    else:
        detectors = [
            Part(
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
        Part(
            ImageSourceNode,
            'image_source',
            namespace,
            remappings_of(camera),
            parameters={'source': str(camera['source'])},
        )
        for namespace, camera in cameras.items()
        if 'source' in camera
    ]
    return graph(context, detectors + sources)


def remappings_of(camera):
    return {'image': camera.get('image', 'image')}


def detector_of_all(file, for_all, cameras, given):
    """Return the one detector; what it subscribes to and publishes is as of one a camera."""
    remappings = {}
    for namespace, camera in cameras.items():
        if 'parameters' in camera:
            raise ParameterError(
                f'{file}: camera {namespace} has parameters of its own, but with one_node there '
                'is one detector.',
                remedy='Move them up, to those of all cameras.',
            )
        image = camera.get('image', 'image')
        name = namespace.strip('/')
        remappings[name] = image if image.startswith('/') else f'/{name}/{image}'
        remappings[f'~/{name}/detections'] = f'/{name}/detector/detections'
    topics = tuple(name for name in remappings if not name.startswith('~'))
    return Part(
        DetectorNode,
        'detector',
        remappings=remappings,
        has_platform=True,
        parameters=checked_parameters(DetectorNode, for_all) | {'image_topics': topics} | given,
    )


def read_cameras(file):
    """Return the parameters for all cameras, and the settings of each by its namespace."""
    try:
        content = yaml.safe_load(read_regular(file, MAX_TEXT_NBYTES))
    except (OSError, yaml.YAMLError) as error:
        raise ParameterError(f'{file} cannot be read.', cause=str(error)) from error
    content = settings(file, content, ('parameters', 'cameras'))
    for_all = settings(f'{file}: parameters', content.get('parameters'))
    cameras = settings(f'{file}: cameras', content.get('cameras'))
    if not cameras:
        raise ParameterError(f'{file} names no cameras.', remedy='List them under `cameras:`.')
    for namespace, camera in cameras.items():
        what = f'{file}: camera {namespace}'
        cameras[namespace] = camera = settings(what, camera, ('image', 'source', 'parameters'))
        if 'parameters' in camera:
            camera['parameters'] = settings(f'{what}: parameters', camera['parameters'])
    return for_all, cameras


def settings(what, content, names=()):
    """Return what stands at a place of the file, by name; which names it may have, if not all."""
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ParameterError(
            f'{what} is {content!r}.',
            cause='It should be names and values.',
            remedy='Write it as config/cameras.example.yaml is.',
        )
    unknown = set(content) - set(names or content)
    if unknown:
        raise ParameterError(
            f'{what} has {", ".join(sorted(map(str, unknown)))}.',
            remedy=f'There may be {", ".join(names)}.',
        )
    return content
