"""The images of a C++ container, played by Python."""

from collections import deque
import threading

import numpy as np


class FakeSubscription:
    """A subscription of FakeImages: the newest images, up to its depth."""

    def __init__(self, topic, is_reliable, depth):
        self.topic, self.is_reliable = topic, is_reliable
        self.changed = threading.Condition()
        self.waiting, self.lost, self.incompatible = deque(maxlen=depth), 0, []
        self.is_woken = self.is_closed = False

    def matches(self, publisher):
        """Return whether the arguments of advertise() match this subscription."""
        topic, _, is_reliable, _ = publisher
        return not self.is_closed and topic == self.topic and is_reliable >= self.is_reliable


class FakeImages:
    """
    Implements ContainerImages.

    :ivar opened: all subscriptions so far.
    :ivar advertised: topic, gid, is_reliable and depth of all publishers so far.
    :ivar error: raised by open(), if it is set.
    """

    def __init__(self):
        self.opened, self.advertised, self.error = [], [], None

    def open(self, topic, is_reliable, depth):
        if self.error is not None:
            raise self.error
        self.opened.append(FakeSubscription(topic, is_reliable, depth))
        return self.opened[-1]

    def take(self, subscription):
        with subscription.changed:
            subscription.changed.wait_for(lambda: subscription.is_woken or subscription.is_closed)
            subscription.is_woken = False
            taken = subscription.lost, subscription.incompatible, list(subscription.waiting)
            subscription.lost, subscription.incompatible = 0, []
            subscription.waiting.clear()
            return taken

    def wake(self, subscription):
        with subscription.changed:
            subscription.is_woken = True
            subscription.changed.notify_all()

    def close(self, subscription):
        with subscription.changed:
            subscription.is_closed = True
            subscription.changed.notify_all()

    def put(self, *images):
        """Pass images to the newest subscription, all before the next take() returns."""
        self._put(self.opened[-1], *images)

    def advertise(self, *publisher):
        self.advertised.append(publisher)
        return publisher

    def publish(self, publisher, stamp, *fields):
        *others, data = fields
        image = (*stamp, *others, data.copy())
        receivers = [each for each in self.opened if each.matches(publisher)]
        for each in receivers:
            self._put(each, image)
        return len(receivers)

    def _put(self, subscription, *images):
        with subscription.changed:
            for image in images:
                subscription.lost += len(subscription.waiting) == subscription.waiting.maxlen
                subscription.waiting.append(image)
        self.wake(subscription)


def image_of(pixels, number=0, encoding='bgr8'):
    """Return pixels, (H, W, C) uint8, as an image in memory of the container."""
    height, width, channels = pixels.shape
    return number, 0, 'camera', height, width, encoding, 0, width * channels, pixels


def gray(number):
    """Return a numbered image."""
    return image_of(np.full((1, 100, 1), number % 256, np.uint8), number, 'mono8')
