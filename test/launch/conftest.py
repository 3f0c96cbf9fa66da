"""Launches in processes of their own."""

import cv2
from demo.domain import reserved_domain
import numpy as np
import pytest

from support.launches import Launch, remove_what_crashed


def pytest_collect_file():
    """Skip the folder where `import launch` would find that of the checkout instead."""
    pytest.importorskip('launch_ros')


@pytest.fixture
def domain_id():
    with reserved_domain() as number:
        yield number


@pytest.fixture
def start(tmp_path, domain_id):
    started = []

    def start_one(*arguments, folder=tmp_path, **environment):
        started.append(Launch(folder, *arguments, ROS_DOMAIN_ID=str(domain_id), **environment))
        return started[-1]

    yield start_one
    for one in started:
        if one.process.poll() is None:
            one.stop()
    remove_what_crashed([name for one in started for name in one.left_behind])


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / 'picture.png'
    cv2.imwrite(str(path), np.full((480, 640, 3), 90, np.uint8))
    return path
