"""Launch description of one node, on topics or on pictures, a video or a camera."""

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
from trt_ros.launching.graph import NodeDescription, launch_nodes
from trt_ros.nodes.image_source import ImageSourceNode
from trt_ros.ros.lifecycle import ManagedNode


def task_launch(
    cls: type[ManagedNode],
    topics: Mapping[str, str] | None = None,
    *,
    image: bool = True,
    platform: str = 'auto',
) -> LaunchDescription:
    """
    Return the launch description of a node, named as its executable.

    :param topics: descriptions of the input topics beside `image`, by name; each is an argument.
    :param image: whether the node takes images, which may come from a `source`.
    :param platform: default of the launch argument.
    """
    topics = dict(topics or {})
    if image:
        topics = {'image': 'Topic of the input images.', **topics}
    name = NodeDescription(cls, '').executable
    return launch_description(
        [
            *(
                DeclareLaunchArgument(topic, default_value=topic, description=description)
                for topic, description in topics.items()
            ),
            *([_source_argument()] if image else []),
            DeclareLaunchArgument(
                'name', default_value=name, description=f'Name of the {name} node.'
            ),
            DeclareLaunchArgument(
                'namespace', default_value='', description='Namespace of the nodes.'
            ),
            *common_arguments(container='none', platform=platform),
            *parameter_arguments(cls),
        ],
        partial(_nodes, cls=cls, topics=tuple(topics)),
    )


def _source_argument() -> DeclareLaunchArgument:
    return DeclareLaunchArgument(
        'source',
        default_value='',
        description=(
            'Pictures, video or V4L2 camera (/dev/video0) that an image_source node publishes as '
            'the images; empty starts none.'
        ),
    )


def _nodes(
    context: LaunchContext, cls: type[ManagedNode], topics: tuple[str, ...]
) -> list[Action]:
    arguments = context.launch_configurations
    namespace = arguments['namespace']
    nodes = [
        NodeDescription(
            cls,
            arguments['name'],
            namespace,
            {topic: arguments[topic] for topic in topics},
            given_parameters(context, cls),
            has_platform='image' in topics,
        )
    ]
    if arguments.get('source'):
        nodes.append(
            NodeDescription(
                ImageSourceNode,
                'image_source',
                namespace,
                {'image': arguments['image']},
                {'source': arguments['source']},
            )
        )
    return launch_nodes(context, nodes)
