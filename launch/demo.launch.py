"""A detector on pictures, a video or a camera, and its detections drawn on the images."""

from trt_ros.demo import MODEL, VIDEO
from trt_ros.launching.arguments import (
    common_arguments,
    given_parameters,
    launch_description,
    parameter_arguments,
)
from trt_ros.launching.graph import NodeDescription, launch_nodes
from trt_ros.nodes.detector import DetectorNode
from trt_ros.nodes.image_source import ImageSourceNode
from trt_ros.nodes.overlay import OverlayNode


def generate_launch_description():
    """Return the launch description."""
    return launch_description(
        [
            *common_arguments(container='new'),
            *parameter_arguments(DetectorNode, model_path=str(MODEL)),
            *parameter_arguments(ImageSourceNode, 'image_source.'),
            *parameter_arguments(OverlayNode, 'overlay.'),
        ],
        nodes,
    )


def nodes(context):
    """Return the actions that start the three nodes."""
    source = given_parameters(context, ImageSourceNode, 'image_source.')
    if 'source' not in source and not context.launch_configurations['params_file']:
        source['source'] = str(VIDEO)
    return launch_nodes(
        context,
        [
            NodeDescription(
                OverlayNode,
                'overlay',
                remappings={'detections': 'detector/detections'},
                parameters=given_parameters(context, OverlayNode, 'overlay.'),
            ),
            NodeDescription(
                DetectorNode,
                'detector',
                has_platform=True,
                parameters=given_parameters(context, DetectorNode),
            ),
            NodeDescription(ImageSourceNode, 'image_source', parameters=source),
        ],
    )
