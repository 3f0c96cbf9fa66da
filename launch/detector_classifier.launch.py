"""A detector and a classifier of its objects, in one container: images pass by reference."""

from launch.actions import DeclareLaunchArgument

from trt_ros.launching.arguments import (
    common_arguments,
    given_parameters,
    launch_description,
    parameter_arguments,
)
from trt_ros.launching.graph import NodeDescription, launch_nodes
from trt_ros.nodes.classifier import ClassifierNode
from trt_ros.nodes.detector import DetectorNode
from trt_ros.nodes.image_source import ImageSourceNode


def generate_launch_description():
    """Return the launch description."""
    return launch_description(
        [
            DeclareLaunchArgument(
                'image', default_value='image', description='Topic of the input images.'
            ),
            DeclareLaunchArgument(
                'source',
                default_value='',
                description=(
                    'Pictures, video or V4L2 camera (/dev/video0) that an image_source node '
                    'publishes as the images; empty starts none.'
                ),
            ),
            *common_arguments(container='new'),
            *parameter_arguments(DetectorNode),
            *parameter_arguments(ClassifierNode, 'classifier.', regions='true'),
        ],
        nodes,
    )


def nodes(context):
    """Return the actions that start the nodes."""
    image = {'image': context.launch_configurations['image']}
    described = [
        NodeDescription(
            DetectorNode,
            'detector',
            remappings=image,
            has_platform=True,
            parameters=given_parameters(context, DetectorNode),
        ),
        NodeDescription(
            ClassifierNode,
            'classifier',
            remappings={**image, 'detections': 'detector/detections'},
            has_platform=True,
            parameters=given_parameters(context, ClassifierNode, 'classifier.'),
        ),
    ]
    source = context.launch_configurations['source']
    if source:
        described.append(
            NodeDescription(
                ImageSourceNode, 'image_source', remappings=image, parameters={'source': source}
            )
        )
    return launch_nodes(context, described)
