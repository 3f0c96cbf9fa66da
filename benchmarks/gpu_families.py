"""
What a frame costs if outputs are decoded on the GPU, and if NumPy decodes them.

    python benchmarks/gpu_families.py

The networks return constant outputs of about 300 candidates: hardly any time is theirs. Frames are
1280x720, alternately of both pipelines; times are microseconds, p50 (p99).
"""

from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
import sys
import tempfile
import time
from unittest.mock import patch

from anchor_outputs import anchored, further
from gpu_models import Net
import numpy as np

from trt_ros.decode.choice import Decoder
from trt_ros.model.feeds.image import ImageFeed
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.gpu import shared_resources
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

ASKED = Thresholds(score=0.25, iou=0.45, max_detections=300)
SIDE = 640
ROUNDS = 200


def main() -> int:
    frame = Frame.from_pixels(np.zeros((720, 1280, 3), np.uint8))
    print('| | decoded on the GPU | by NumPy | ratio of p50 |\n| --- | --- | --- | --- |')
    for name, head, outputs in chain(anchored(), further()):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            net = Net()
            mean = net.add('ReduceMean', 'images', keepdims=0)  # Of a black image: 0.
            net.save(
                folder / 'network.onnx',
                {
                    key: (net.add('Add', net.constant(value), mean), value.shape)
                    for key, value in outputs.items()
                },
                SIDE,
            )
            pipelines = []
            for decode in (shared_resources.gpu_decoder, lambda *_: None):
                network = open_tensor_runner(folder / 'network.onnx', engine_cache_dir=folder)
                feed = ImageFeed(Preprocess((SIDE, SIDE), pad_value=0))
                decoder = Decoder(name, 'the benchmark', 'detect', {}, head)
                feeds = {spec.name: feed for spec in network.inputs}
                model = ResolvedModel(feeds, network.outputs, decoder)
                with patch.object(shared_resources, 'gpu_decoder', decode):
                    opened = GpuPipeline(network, model)
                    pipelines.append(stack.enter_context(closing(opened)))
                    opened.infer(frame, ASKED)
            times: tuple[list[float], list[float]] = [], []
            for number in range(-20, ROUNDS):
                for each, kept in zip(pipelines, times):
                    began = time.perf_counter()
                    each.infer(frame, ASKED)
                    if number >= 0:
                        kept.append((time.perf_counter() - began) * 1e6)
            cells = ('{:.0f} ({:.0f})'.format(*np.percentile(each, [50, 99])) for each in times)
            ratio = np.median(times[1]) / np.median(times[0])
            print(f'| {name} | {" | ".join(cells)} | {ratio:.1f} |', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
