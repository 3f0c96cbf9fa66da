"""A detector and a classifier of its objects, in one container: images pass by reference."""

from trt_ros.launching.arguments import (
    common_arguments,
    given_parameters,
    launch_description,
    parameter_arguments,
)
from trt_ros.launching.graph import NodeDescription, launch_nodes
from trt_ros.launching.task_launch import image_arguments, image_sources
from trt_ros.nodes.classifier import ClassifierNode
from trt_ros.nodes.detector import DetectorNode


def generate_launch_description():
    """Return the launch description."""
    return launch_description(
        [
            *image_arguments(),
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
    return launch_nodes(context, described + image_sources(context.launch_configurations))
