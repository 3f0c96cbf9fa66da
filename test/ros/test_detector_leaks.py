"""Fifty lives of one detector end where they began."""

from pathlib import Path

import pytest
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from support.ros_messages import as_image, picture

WARM_UP, CYCLES = 10, 50


def footprint(node):
    """Threads, and the entities that other nodes see."""
    graph, name = node.peer.node, (node.name, '/')
    return {
        'threads': len(list(Path(f'/proc/{node.process.pid}/task').iterdir())),
        'publishers': graph.get_publisher_names_and_types_by_node(*name),
        'subscriptions': graph.get_subscriber_names_and_types_by_node(*name),
        'services': graph.get_service_names_and_types_by_node(*name),
        'clients': graph.get_client_names_and_types_by_node(*name),
        'endpoints': sum(
            info.node_name == node.name
            for topic, _ in graph.get_topic_names_and_types()
            for info in (
                *graph.get_publishers_info_by_topic(topic),
                *graph.get_subscriptions_info_by_topic(topic),
            )
        ),
    }


def resident_bytes(node):
    pages = int(Path(f'/proc/{node.process.pid}/statm').read_text().split()[1])
    return pages * 4096


@pytest.mark.nightly
def test_fifty_cycles_end_with_the_threads_entities_and_memory_of_the_first(fake_detector):
    node = fake_detector('cycled', '-r', 'image:=/cycled')
    image = as_image(picture((640, 480), (100, 100, 300, 300)), 'rgb8')
    images = node.peer.publisher(Image, '/cycled')

    def live(stamp):
        """Configure, activate, detect, deactivate, clean up."""
        assert node.change('configure')
        assert node.change('activate')
        detections = node.peer.inbox(Detection2DArray, '/cycled/detections')
        node.peer.wait_until(images.get_subscription_count, 'a subscription')
        image.header.stamp.sec = stamp
        images.publish(image)
        assert len(detections.wait_for().detections) == 2
        node.peer.close_inbox(detections)
        assert node.change('deactivate')
        assert node.change('cleanup')
        node.peer.wait_until(
            lambda: (
                not images.get_subscription_count()
                and not node.peer.node.count_publishers('/cycled/detections')
            ),
            'the end of a cycle',
        )

    for stamp in range(WARM_UP):
        live(stamp)
    before, bytes_before = footprint(node), resident_bytes(node)
    for stamp in range(CYCLES):
        live(stamp)
    node.peer.wait_until(lambda: footprint(node) == before, f'{footprint(node)} to be {before}')
    # An image has 0.9 MB: fifty that leak would be 46 MB, fifty pipelines or publishers more.
    grown = resident_bytes(node) - bytes_before
    assert grown < 4 * 2**20, f'{grown / 2**20:.1f} MiB more after {CYCLES} cycles'
