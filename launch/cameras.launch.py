"""A detector for each camera of a YAML file; config/cameras.example.yaml shows one."""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
import yaml

from trt_ros.errors import ParameterError
from trt_ros.launching.arguments import (
    checked_parameters,
    common_arguments,
    given_parameters,
    parameter_arguments,
)
from trt_ros.launching.graph import Part, graph
from trt_ros.nodes.detector import DetectorNode
from trt_ros.nodes.image_source import ImageSourceNode


def generate_launch_description():
    return LaunchDescription([
        DeclareLaunchArgument('cameras', description='YAML file of the cameras.'),
        *common_arguments(container='new'),
        *parameter_arguments(DetectorNode),
        OpaqueFunction(function=nodes),
    ])


def nodes(context):
    file = Path(context.launch_configurations['cameras'])
    detectors, sources = [], []
    for namespace, camera in read_cameras(file).items():
        where = {'namespace': namespace, 'remappings': {'image': camera.get('image', 'image')}}
        detectors.append(Part(
            DetectorNode, 'detector', **where, has_platform=True,
            parameters=checked_parameters(DetectorNode, camera.get('parameters', {}))
            | given_parameters(context, DetectorNode)))
        if 'source' in camera:
            sources.append(Part(ImageSourceNode, 'image_source', **where,
                                parameters={'source': str(camera['source'])}))
    return graph(context, detectors + sources)


def read_cameras(file):
    """Return namespace: settings of each camera; the file's own `parameters` go to them all."""
    content = yaml.safe_load(file.read_text()) or {}
    for_all = content.get('parameters', {})
    cameras = content.get('cameras') or {}
    if not cameras:
        raise ParameterError(f'{file} names no cameras.', remedy='List them under `cameras:`.')
    for namespace, camera in cameras.items():
        unknown = set(camera) - {'image', 'source', 'parameters'}
        if unknown:
            raise ParameterError(
                f'{file}: camera {namespace} has {", ".join(sorted(unknown))}.',
                remedy='A camera has image, source and parameters.')
    return {namespace: camera | {'parameters': for_all | camera.get('parameters', {})}
            for namespace, camera in cameras.items()}
