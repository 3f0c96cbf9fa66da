"""What the layouts for RViz and Foxglove show is there when the demo's nodes run."""

import json
from pathlib import Path
import re

import cv2
from diagnostic_msgs.msg import DiagnosticArray
import pytest
import yaml

from support.ros_messages import picture, values_of

CONFIG = Path(__file__).parents[2] / 'config'
PATH = re.compile(
    r'(?P<topic>/\w+)\.status\[:\]\{name=="(?P<name>[^"]+)"\}'
    r'\.values\[:\]\{key=="(?P<key>[^"]+)"\}\.value'
)


@pytest.fixture(scope='module')
def demo(fake_detector, start_node, tmp_path_factory):
    """The nodes of demo.launch.py, under its names."""
    folder = tmp_path_factory.mktemp('pictures')
    cv2.imwrite(str(folder / '1.png'), picture())
    start_node('overlay', 'trt_ros.nodes.overlay', '-r', 'detections:=detector/detections')
    detector = fake_detector('detector', autostart=True)
    start_node('image_source', 'trt_ros.nodes.image_source', source=str(folder))
    return detector.peer


def test_rviz_shows_images_that_are_published(demo):
    content = yaml.safe_load((CONFIG / 'trt_ros.rviz').read_text())
    displays = content['Visualization Manager']['Displays']
    assert {each['Class'] for each in displays} == {'rviz_default_plugins/Image'}
    topics = {each['Topic']['Value'] for each in displays}
    assert topics == {'/image', '/overlay/image'}

    def are_published():
        types = dict(demo.node.get_topic_names_and_types())
        return all(types.get(topic) == ['sensor_msgs/msg/Image'] for topic in topics)

    demo.wait_until(are_published, topics)


def test_foxglove_shows_images_and_diagnostics_that_are_published(demo):
    layout = json.loads((CONFIG / 'foxglove.json').read_text())
    panels = layout['configById']
    assert set(leaves(layout['layout'])) == set(panels)
    shown = {panel['imageMode']['imageTopic'] for panel in panels.values() if 'imageMode' in panel}
    shown |= {panel['topicToRender'] for panel in panels.values() if 'topicToRender' in panel}
    assert shown == {'/overlay/image', '/diagnostics'}
    # Plots that follow the time stand still in a recording.
    assert not any('followingViewWidth' in panel for panel in panels.values())
    demo.wait_until(
        lambda: shown <= {topic for topic, _ in demo.node.get_topic_names_and_types()}, shown
    )

    plotted = {
        PATH.fullmatch(path['value']).groups()
        for panel in panels.values()
        for path in panel.get('paths', ())
    }
    assert len(plotted) > 5
    inbox = demo.inbox(DiagnosticArray, '/diagnostics')
    for topic, name, key in sorted(plotted):
        assert topic == '/diagnostics'
        inbox.wait_for(
            lambda array, name=name, key=key: (
                array.status[0].name == name
                and re.fullmatch(r'\d+(\.\d+)?', values_of(array).get(key, ''))
            ),
            f'{name}: {key}',
        )


def leaves(layout):
    if isinstance(layout, str):
        return [layout]
    return leaves(layout['first']) + leaves(layout['second'])
