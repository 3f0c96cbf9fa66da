"""Networks of all tasks, and nodes that run them."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

from support.ros_nodes import NodeProcess
from support.ros_peer import Inbox, Peer


@pytest.fixture(scope='session')
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the paths of small networks that a backend really runs, by task."""
    from support.task_networks import save_task_networks

    return save_task_networks(tmp_path_factory.mktemp('models'))


@pytest.fixture
def start(
    start_active: Callable[..., NodeProcess], peer: Peer, backend: str
) -> Callable[..., tuple[NodeProcess, Callable[..., Any]]]:
    """Start a node, return it and what publishes an image and waits for its result."""
    from sensor_msgs.msg import Image

    from support.ros_messages import as_image

    def started(
        kind: str, name: str, model: str, *ros_args: str, **parameters: Any
    ) -> tuple[NodeProcess, Callable[..., Any]]:
        remap = ('-r', f'image:=/{name}_camera/image')
        node = start_active(name, kind, model, *remap, *ros_args, backend=backend, **parameters)
        images = peer.connected(Image, f'/{name}_camera/image')
        stamps = count(1)

        def ask(pixels: np.ndarray, *inboxes: Inbox) -> Any:
            """Return what comes on each inbox of this image."""
            stamp = next(stamps)
            images.publish(as_image(pixels, 'rgb8', stamp=stamp))
            found = [
                box.wait_for(
                    lambda message: message.header.stamp.sec == stamp, f'a result of image {stamp}'
                )
                for box in inboxes
            ]
            for message in found:
                assert message.header.frame_id == 'front_camera'
                assert message.header.stamp.nanosec == 7
            return found[0] if len(found) == 1 else found

        return node, ask

    return started
