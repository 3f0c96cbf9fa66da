"""One of our nodes on a topic, or on pictures, a video or a camera that it is given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from launch import Action, LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument

from trt_ros.launching.arguments import (
    common_arguments,
    given_parameters,
    launch_description,
    parameter_arguments,
)
from trt_ros.launching.graph import Part, graph
from trt_ros.nodes.image_source import ImageSourceNode
from trt_ros.nodes.inference import InferenceNode


def single(cls: type[InferenceNode], topics: Mapping[str, str] | None = None) -> LaunchDescription:
    """
    Launch a node under the name of its executable.

    :param topics: what it may take beside images, each an argument: its description by its name.
    """
    topics = {'image': 'Topic of the images.', **(topics or {})}
    name = Part(cls, '').executable
    return launch_description(
        [
            *(
                DeclareLaunchArgument(topic, default_value=topic, description=description)
                for topic, description in topics.items()
            ),
            DeclareLaunchArgument(
                'source',
                default_value='',
                description=(
                    'Pictures, a video or a V4L2 camera (/dev/video0) to publish as the '
                    'images, by an '
                    'image_source node; empty: somebody else publishes.'
                ),
            ),
            DeclareLaunchArgument(
                'name', default_value=name, description=f'Name of the {name} node.'
            ),
            DeclareLaunchArgument(
                'namespace', default_value='', description='Namespace of the nodes.'
            ),
            *common_arguments(container='none'),
            *parameter_arguments(cls),
        ],
        partial(_nodes, cls=cls, topics=tuple(topics)),
    )


def _nodes(
    context: LaunchContext, cls: type[InferenceNode], topics: tuple[str, ...]
) -> list[Action]:
    said = context.launch_configurations
    namespace = said['namespace']
    parts = [
        Part(
            cls,
            said['name'],
            namespace,
            {topic: said[topic] for topic in topics},
            given_parameters(context, cls),
            has_platform=True,
        )
    ]
    if said['source']:
        parts.append(
            Part(
                ImageSourceNode,
                'image_source',
                namespace,
                {'image': said['image']},
                {'source': said['source']},
            )
        )
    return graph(context, parts)
