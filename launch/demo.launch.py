"""A detector on pictures, a video or a camera, and its detections drawn on the images."""

import atexit
from pathlib import Path
import shutil
from tempfile import mkdtemp

import trt_ros
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

MODEL = Path(trt_ros.__file__).with_name('demo') / 'shapes.onnx'
SCENE_SECONDS = 6.0


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
        source['source'] = draw_scene(context.launch_configurations['container'])
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


def draw_scene(container):
    """Draw pictures of a moving scene with the shapes of the demo model; return their folder."""
    from trt_ros.demo.scene import draw_pictures

    folder = mkdtemp(prefix='trt_ros_demo_')
    if container in ('none', 'new'):  # Nodes in another container outlive the launch.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    draw_pictures(Path(folder), SCENE_SECONDS)
    return folder
