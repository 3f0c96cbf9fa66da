"""The container of the soak test, and the nodes in it that are made for it."""

import ctypes
from dataclasses import dataclass
import gc
from pathlib import Path
import sys
import threading
import time
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np
from rclpy.qos import QoSProfile
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image

sys.path.insert(0, str(Path(__file__).parents[2] / 'tools'))

from demo.scene import draw_scene

from trt_ros.container.__main__ import main_mt
from trt_ros.nodes.detector import DetectorNode
from trt_ros.ros import diagnostics
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.ros.diagnostics import CountingNode
from trt_ros.ros.lifecycle import NodeParameters
from trt_ros.ros.parameters import param
from trt_ros.ros.topic import Dropping
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import ENCODINGS

#: Even, odd, tiny, large, and not all in one length of message.
SIZES_WH = ((640, 480), (318, 242), (317, 241), (64, 48), (960, 540))
BAD = ('wrong step', 'short data', 'unknown encoding', 'zero size', 'bad CDR')
GOOD_IMAGES, BAD_IMAGES = 40, 20
STAMP = slice(4, 12)  # Of a serialized message that begins with a header.

#: Memory that is lent to whatever runs the network and was not taken back: page-locked on a GPU.
lent: set[int] = set()


@dataclass(frozen=True)
class CameraParameters(NodeParameters):
    """What the camera shows."""

    seed: int = param(0, 'Another one, other images.')
    rate_hz: float = param(60.0, 'Images a second.', between=(1.0, 1000.0), mutable=True)
    bad_share: float = param(0.1, 'How many are bad.', between=(0.0, 1.0), mutable=True)


class Camera(CountingNode):
    """
    Publishes images of many sizes and encodings, and some that are none, in a drawn order.

    Its diagnostics also tell what the process holds.
    """

    Parameters = CameraParameters

    def __init__(self, name: str = 'camera', **kwargs) -> None:
        super().__init__(name, **kwargs)

    def configure(self) -> None:
        self._rng = np.random.default_rng(self.parameters.seed)
        self._good = [good_image(self._rng) for _ in range(GOOD_IMAGES)]
        self._bad = [bad_image(self._rng, BAD[index % len(BAD)]) for index in range(BAD_IMAGES)]
        self.while_configured.callback(self._forget)
        self._publish = serialized_publish(
            self, self.publisher(Image, 'image', QoSProfile(depth=10))
        )

    def _diagnostics(self) -> dict[str, str]:
        if self.state_label != 'active':
            gc.collect()  # Python keeps small objects that are free, and counts them.
        return held()

    def _forget(self) -> None:
        del self._good, self._bad

    def activate(self) -> None:
        ending = threading.Event()
        thread = threading.Thread(target=self._publish_all, args=(ending,), name='camera')
        self.while_active.callback(thread.join)
        self.while_active.callback(ending.set)
        thread.start()

    def _publish_all(self, ending: threading.Event) -> None:
        due = time.monotonic()
        while not ending.wait(due - time.monotonic()):
            with Dropping(self, self._counts):
                self._counts.receive()
                is_bad = self._rng.random() < self.parameters.bad_share
                images = self._bad if is_bad else self._good
                message = images[self._rng.integers(len(images))].copy()
                # Never the same twice, and always later: also after this node was loaded anew.
                seconds, nanoseconds = divmod(time.monotonic_ns(), 10**9)
                message[STAMP] = np.array([seconds, nanoseconds], '<u4').view(np.uint8)
                self._publish(message)
                self._counts.publish()
            due = max(due + 1 / self.parameters.rate_hz, time.monotonic())


class SoakDetector(DetectorNode):
    """The detector, over a runner that wants to know where images lie, as a GPU does."""

    def __init__(self, name: str = 'detector', **kwargs) -> None:
        super().__init__(name, open_pipeline=open_pipeline, **kwargs)


def open_pipeline(*arguments, **keywords) -> Pipeline:
    pipeline = Pipeline.open(*arguments, **keywords)
    pipeline.device.register = lambda memory: lent.add(memory.ctypes.data)
    pipeline.device.unregister = lambda memory: lent.remove(memory.ctypes.data)
    return pipeline


def good_image(rng: np.random.Generator) -> np.ndarray:
    """Draw an image as a serialized message: a scene where that is simple, else noise."""
    encoding = str(rng.choice(sorted(ENCODINGS)))
    width, height = SIZES_WH[rng.integers(len(SIZES_WH))]
    if encoding.startswith(('yuv', 'yuyv', 'uyvy', 'nv')):
        width, height = width // 2 * 2, height // 2 * 2
    if encoding in ('bgr8', '8UC3', 'rgb8', 'mono8', '8UC1'):
        pixels = draw_scene(rng, (width, height))[0]
        if encoding in ('mono8', '8UC1'):
            pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)
        rows = pixels.reshape(height, -1)
    else:
        row_count = height * 3 // 2 if encoding.startswith('nv') else height
        rows = rng.integers(256, size=(row_count, width * ENCODINGS[encoding]), dtype=np.uint8)
    padding = np.zeros((len(rows), rng.choice([0, 0, 5, 64])), np.uint8)
    return serialized(np.hstack([rows, padding]), (width, height), encoding)


def bad_image(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Draw a serialized message that is no image that can be used, and will count as `kind`."""
    width, height = SIZES_WH[rng.integers(len(SIZES_WH))]
    rows = np.zeros((height, 3 * width), np.uint8)
    if kind == 'wrong step':
        return serialized(rows, (width + 8, height), 'rgb8')
    if kind == 'short data':
        return serialized(rows, (width, height + 1), 'bgr8')
    if kind == 'unknown encoding':
        return serialized(rows, (width, height), 'rgb7')
    if kind == 'zero size':
        return serialized(rows[:0], (width, 0), 'rgb8')
    return serialized(rows, (width, height), 'rgb8')[: -int(rng.integers(1, rows.size))].copy()


def serialized(rows: np.ndarray, size_wh: tuple[int, int], encoding: str) -> np.ndarray:
    image = Image(width=size_wh[0], height=size_wh[1], step=rows.shape[1], encoding=encoding)
    image.header.frame_id = 'camera'
    image.data = rows.tobytes()
    return np.frombuffer(serialize_message(image), np.uint8).copy()


def short_timing_windows() -> Any:
    """Return a context in which timings fill in a second: slow growth looks like a leak."""
    return patch.object(diagnostics, 'MAX_TIMES', 50)  # Raises where that is renamed.


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        ('others', ctypes.c_size_t * 4),
        ('hblkhd', ctypes.c_size_t),
        ('more', ctypes.c_size_t * 2),
        ('uordblks', ctypes.c_size_t),
        ('rest', ctypes.c_size_t * 2),
    ]


mallinfo2 = getattr(ctypes.CDLL(None), 'mallinfo2', None)  # glibc 2.33.
if mallinfo2 is not None:
    mallinfo2.restype = _Mallinfo2


def held() -> dict[str, str]:
    """Return what this process has and has not given back."""
    own = Path('/proc/self')
    values = {
        'held: resident KiB': int((own / 'statm').read_text().split()[1]) * 4,
        'held: Python blocks': sys.getallocatedblocks(),
        'held: threads': len(list((own / 'task').iterdir())),
        'held: open files': len(list((own / 'fd').iterdir())),
        'held: memory areas': (own / 'maps').read_text().count('\n'),
        'held: lent buffers': len(lent),
    }
    if mallinfo2 is not None:
        found = mallinfo2()
        values['held: C heap KiB'] = (found.uordblks + found.hblkhd) // 1024
    return {name: str(value) for name, value in values.items()}


if __name__ == '__main__':
    with short_timing_windows():
        sys.exit(main_mt())
