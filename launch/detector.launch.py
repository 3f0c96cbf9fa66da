"""A detector on an image topic, or on pictures, a video or a camera that it is given."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction

from trt_ros.launching.arguments import (
    common_arguments,
    given_parameters,
    parameter_arguments,
)
from trt_ros.launching.graph import Part, graph
from trt_ros.nodes.detector import DetectorNode
from trt_ros.nodes.image_source import ImageSourceNode


def generate_launch_description():
    return LaunchDescription([
        DeclareLaunchArgument(
            'image', default_value='image', description='Topic of the images.'),
        DeclareLaunchArgument('source', default_value='', description=(
            'Pictures, a video or a V4L2 camera (/dev/video0) to publish on that topic, by an '
            'image_source node; empty: somebody else publishes.')),
        DeclareLaunchArgument(
            'name', default_value='detector', description='Name of the detector node.'),
        DeclareLaunchArgument(
            'namespace', default_value='', description='Namespace of the nodes.'),
        *common_arguments(container='none'),
        *parameter_arguments(DetectorNode),
        OpaqueFunction(function=nodes),
    ])


def nodes(context):
    said = context.launch_configurations
    where = {'namespace': said['namespace'], 'remappings': {'image': said['image']}}
    parts = [Part(DetectorNode, said['name'], **where, has_platform=True,
                  parameters=given_parameters(context, DetectorNode))]
    if said['source']:
        parts.append(Part(
            ImageSourceNode, 'image_source', **where, parameters={'source': said['source']}))
    return graph(context, parts)
