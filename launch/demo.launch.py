"""Pictures, a video or a camera through the detector, with what it finds drawn on them."""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

import trt_ros
from trt_ros.launching.arguments import (
    common_arguments,
    given_parameters,
    parameter_arguments,
)
from trt_ros.launching.graph import Part, graph
from trt_ros.nodes.detector import DetectorNode
from trt_ros.nodes.image_source import ImageSourceNode
from trt_ros.nodes.overlay import OverlayNode

MODEL = Path(trt_ros.__file__).with_name('demo') / 'shapes.onnx'


def generate_launch_description():
    return LaunchDescription([
        *common_arguments(container='new'),
        *parameter_arguments(DetectorNode, model_path=str(MODEL)),
        *parameter_arguments(ImageSourceNode, 'image_source.'),
        *parameter_arguments(OverlayNode, 'overlay.'),
        OpaqueFunction(function=nodes),
    ])


def nodes(context):
    return graph(context, [
        Part(OverlayNode, 'overlay', remappings={'detections': 'detector/detections'},
             parameters=given_parameters(context, OverlayNode, 'overlay.')),
        Part(DetectorNode, 'detector', has_platform=True,
             parameters=given_parameters(context, DetectorNode)),
        Part(ImageSourceNode, 'image_source',
             parameters=given_parameters(context, ImageSourceNode, 'image_source.')),
    ])
