"""Launch description of one node, on topics or on pictures, a video or a camera."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from launch import Action, LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument

from trt_ros.launching.arguments import (
    argument,
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
    topics = topics or {}
    name = NodeDescription(cls, '').executable
    return launch_description(
        [
            *(image_arguments() if image else ()),
            *(argument(topic, topic, description) for topic, description in topics.items()),
            argument('name', name, f'Name of the {name} node.'),
            argument('namespace', '', 'Namespace of the nodes.'),
            *common_arguments(container='none', platform=platform),
            *parameter_arguments(cls),
        ],
        partial(_nodes, cls=cls, topics=(*(['image'] if image else ()), *topics)),
    )


def image_arguments() -> list[DeclareLaunchArgument]:
    """Declare the topic of the images, and where they may come from; see image_sources()."""
    return [
        argument('image', 'image', 'Topic of the input images.'),
        argument(
            'source',
            '',
            'Pictures, video or V4L2 camera (/dev/video0) that an image_source node publishes as '
            'the images; empty starts none.',
        ),
    ]


def image_sources(arguments: Mapping[str, str], namespace: str = '') -> list[NodeDescription]:
    """Return the node that publishes the launch argument `source`; none if that is empty."""
    if not arguments.get('source'):
        return []
    image, source = {'image': arguments['image']}, {'source': arguments['source']}
    return [NodeDescription(ImageSourceNode, 'image_source', namespace, image, source)]


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
    return launch_nodes(context, nodes + image_sources(arguments, namespace))
