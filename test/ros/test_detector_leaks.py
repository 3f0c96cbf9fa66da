"""Fifty lives of one detector end where they began."""

from pathlib import Path

import pytest
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from support.ros_messages import as_image, picture

WARM_UP, CYCLES = 10, 50


def thread_count(node):
    return len(list(Path(f'/proc/{node.process.pid}/task').iterdir()))


def entities(node):
    """Return the entities that other nodes see."""
    graph, name = node.peer.node, (node.name, '/')
    return {
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
@pytest.mark.parametrize(
    'topics', [[], ['front/image_raw', 'left/image', 'rear']], ids=['one camera', 'three cameras']
)
def test_fifty_cycles_end_with_the_threads_entities_and_memory_of_the_first(fake_detector, topics):
    name = f'cycled_{len(topics)}'
    given = {'image_topics': topics} if topics else {}
    node = fake_detector(name, '-r', f'image:=/{name}', **given)
    peer, image = node.peer, as_image(picture((640, 480), (100, 100, 300, 300)), 'rgb8')
    results = {f'/{topic}': f'/{name}/{topic}/detections' for topic in topics}
    results = results or {f'/{name}': f'/{name}/detections'}
    cameras = {peer.publisher(Image, topic): result for topic, result in results.items()}

    def live(stamp):
        """Configure, activate, detect with each camera, deactivate, clean up."""
        assert node.change('configure')
        assert node.change('activate')
        image.header.stamp.sec = stamp
        for images, topic in cameras.items():
            detections = peer.inbox(Detection2DArray, topic)
            peer.wait_until(images.get_subscription_count, 'a subscription')
            images.publish(image)
            assert len(detections.wait_for().detections) == 2
            peer.close_inbox(detections)
        assert node.change('deactivate')
        assert node.change('cleanup')
        peer.wait_until(
            lambda: (
                not any(
                    images.get_subscription_count() or peer.node.count_publishers(topic)
                    for images, topic in cameras.items()
                )
            ),
            'the end of a cycle',
        )

    for stamp in range(WARM_UP):
        live(stamp)
    before, bytes_before = entities(node), resident_bytes(node)
    threads_before = thread_count(node)  # Perhaps with one that is about to end.
    for stamp in range(CYCLES):
        live(stamp)
    peer.wait_until(lambda: entities(node) == before, f'{entities(node)} to be {before}')
    peer.wait_until(lambda: thread_count(node) <= threads_before, f'{threads_before} threads')
    # An image has 0.9 MB: fifty that leak would be 46 MB, fifty pipelines or publishers more.
    grown = resident_bytes(node) - bytes_before
    assert grown < 4 * 2**20, f'{grown / 2**20:.1f} MiB more after {CYCLES} cycles'
