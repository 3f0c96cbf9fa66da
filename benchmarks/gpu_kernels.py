"""
The preprocessing and decoding kernels alone, beside the NumPy they equal.

    python benchmarks/gpu_kernels.py [--decoders | --nms] [--json FILE]

--nms times only YOLOv8 and non-maximum suppression, each kernel too, and not NumPy. Each row is
captured twenty times into one CUDA graph and timed by events: no launch is counted.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain, pairwise
import json
from pathlib import Path
import sys
import time
from types import SimpleNamespace
from typing import Any

from anchor_outputs import anchored, further, read
import numpy as np

from trt_ros.cuda.device import Event, Graph, Stream, open_gpu
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import Account, DeviceBuffer, PinnedBuffer, copy_async, fill_async
from trt_ros.decode.cuda.choice import gpu_decoder
from trt_ros.decode.cuda.decoder import Addresses
from trt_ros.results.boxes import Detections
from trt_ros.results.masks import Instances
from trt_ros.runtime.gpu import preprocess as steps
from trt_ros.runtime.gpu.staging import write_request
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.thresholds import Thresholds

TIMES = 20
ASKED = Thresholds(score=0.25, iou=0.45, max_detections=300)


def gpu_us(stream: Stream, work: Callable[[int], None], rounds: int = 50) -> float:
    """Return the median microseconds of one `work`."""

    def many(handle: int) -> None:
        for _ in range(TIMES):
            work(handle)

    with (
        closing(Graph.capture(stream.handle, many)) as graph,
        closing(Event(timing=True)) as begin,
        closing(Event(timing=True)) as end,
    ):
        times = []
        for _ in range(rounds + 3):
            begin.record(stream.handle)
            graph.launch(stream.handle)
            end.record(stream.handle)
            end.wait()
            times.append(end.ms_since(begin) * 1e3 / TIMES)
        return float(np.median(times[3:]))


def cpu_us(work: Callable[[], object], rounds: int = 15) -> float:
    times = []
    while len(times) < rounds + 2 and sum(times) < 2e6:
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e6)
    return float(np.median(times[2:] or times))


def head(candidates: int, anchors: int = 8400, classes: int = 80) -> np.ndarray:
    """Make a head of random boxes in clusters, of which so many score above 0.25."""
    rng = np.random.default_rng(0)
    clusters = rng.uniform(20, 620, (60, 2))
    center = clusters[rng.integers(0, 60, anchors)] + rng.normal(0, 8, (anchors, 2))
    scores = rng.uniform(0, 0.2, (anchors, classes))
    high = rng.permutation(anchors)[:candidates]
    scores[high, rng.integers(0, classes, candidates)] = rng.uniform(0.3, 1, candidates)
    return np.ascontiguousarray(
        np.concatenate([center, rng.uniform(10, 120, (anchors, 2)), scores], axis=1).T, np.float32
    )


def decoded() -> Iterator[tuple[str, Any, dict[str, np.ndarray]]]:
    """Yield outputs of networks of 640 × 640 images: description, head and arrays."""
    rng = np.random.default_rng(0)
    for candidates in (0, 50, 300, 1000, 2048, 8400):
        yield (
            f'YOLOv8, 84×8400, {candidates} candidates',
            *read('yolov8', {'head': head(candidates)[None]}),
        )
    rows = head(300, 25200).T
    yield (
        'YOLOv5, 25200×85, 300 candidates',
        *read('yolov5', {'head': np.ascontiguousarray(np.insert(rows, 4, 1.0, axis=1))[None]}),
    )
    finished = np.column_stack(
        [head(300, 300)[:4].T, np.linspace(1, 0, 300), rng.integers(0, 80, 300)]
    ).astype(np.float32, order='C')
    finished[:, 2:4] += finished[:, :2]
    yield 'YOLOv10, 300×6', *read('yolov10', {'head': finished[None]})
    logits = rng.normal(-4, 2, (300, 80)).astype(np.float32)
    boxes = rng.uniform(0.02, 0.9, (300, 4)).astype(np.float32)
    outputs = {'logits': logits[None], 'boxes': boxes[None]}
    yield 'RT-DETR, 300×80', *read('rtdetr', outputs)
    yield 'DETR, 300×80', *read('detr', outputs)
    raw = head(300).T
    outputs = {
        'boxes': np.hstack([raw[:, :2] - raw[:, 2:4] / 2, raw[:, :2] + raw[:, 2:4] / 2]),
        'scores': np.ascontiguousarray(raw[:, 4:]),
    }
    outputs = {name: value[None].astype(np.float32, order='C') for name, value in outputs.items()}
    yield 'boxes and scores, 8400×80, 300 candidates', *read('boxes', outputs)
    for classes, cells in ((21, 640), (19, 160), (150, 160)):
        coarse = rng.normal(0, 4, (classes, cells // 8, cells // 8)).astype(np.float32)
        scores = coarse.repeat(8, axis=1).repeat(8, axis=2)[None]
        scores += rng.normal(0, 0.5, scores.shape).astype(np.float32)
        semantic, outputs = read('semantic', {'scores': scores})
        size = f'{classes}×{cells}×{cells}'
        yield f'best class of each pixel, {size}', semantic, outputs
        confident = semantic.with_confidence()
        yield f'best class of each pixel and its confidence, {size}', confident, outputs


def piled(candidates: int, objects: int, *, in_bands: bool = False) -> np.ndarray:
    """
    Return a YOLOv8 output of one class whose boxes lie on a few objects.

    :param in_bands: whether the scores of each object are consecutive, so that the last object
        appears only among the last candidates.
    """
    rng = np.random.default_rng(0)
    across = int(np.ceil(np.sqrt(objects)))
    places = np.stack(np.divmod(np.arange(objects), across), axis=1) * (300 / across) + 170
    owner, scores = rng.integers(0, objects, candidates), rng.uniform(0.3, 1, candidates)
    if in_bands:
        owner, scores = np.sort(owner), np.sort(scores)[::-1]
    size = 200 / across
    centers = places[owner] + rng.normal(0, 0.02 * size, (candidates, 2))
    sizes = size * rng.uniform(0.9, 1.1, (candidates, 2))
    raw = np.zeros((8400, 5))
    raw[:candidates] = np.hstack([centers, sizes, scores[:, None]])
    return raw.T.astype(np.float32, order='C')[None]


def suppressed() -> Iterator[tuple[str, Any, dict[str, np.ndarray]]]:
    """Yield outputs that NMS takes long for, as `decoded`."""
    for candidates in (2048, 8400):
        for objects, in_bands in ((1, False), (40, False), (270, False), (270, True)):
            layout = f'{objects} objects' + (' in bands' if in_bands else '')
            yield (
                f'NMS, {candidates} candidates on {layout}',
                *read('yolov8', {'head': piled(candidates, objects, in_bands=in_bands)}),
            )
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 560, (76725, 2))
    boxes = np.hstack([corner, corner + rng.uniform(10, 80, (76725, 2))]).astype(np.float32)
    shape = (76725, 91)
    for name, scores in (
        ('none pass', np.full(shape, 0.01, np.float32)),
        ('1 of 1000 pass', (rng.random(shape) < 0.001).astype(np.float32) * 0.9),
        ('all pass', rng.uniform(0.25, 1, shape).astype(np.float32)),
        ('all equal', np.ones(shape, np.float32)),
    ):
        outputs = {'boxes': boxes[None], 'scores': scores[None]}
        yield f'RetinaNet, 76725×91, {name}', *read('boxes', outputs)


def other_tasks() -> Iterator[tuple[str, Any, dict[str, np.ndarray]]]:
    """Yield outputs of the tasks beside detection, as `decoded`."""
    rng = np.random.default_rng(0)
    depths = rng.uniform(0, 80, (1, 518, 518)).astype(np.float32)
    for dtype in (np.float32, np.float16):
        values = depths.astype(dtype)
        yield f'depth, 518×518 {values.dtype} to 1920×1080', *read('depth', {'depth': values})
    raw = head(300, classes=1)
    points = rng.uniform(0, 640, (51, 8400)).astype(np.float32)
    points[2::3] /= 640
    yield (
        'poses, 56×8400, 300 candidates',
        *read('yolov8_pose', {'head': np.vstack([raw, points])[None]}),
    )
    angles = rng.uniform(0, 1.5, (1, 8400)).astype(np.float32)
    yield (
        'rotated boxes, 20×8400, 300 candidates',
        *read('yolov8_obb', {'head': np.vstack([head(300, classes=15), angles])[None]}),
    )
    for objects, low, high in ((10, 64, 256), (100, 64, 256), (100, 192, 384)):
        yield (
            f'instances, {objects} objects of {low} to {high} pixels',
            *read('yolov8_seg', instances(objects, low, high)),
        )


def instances(objects: int, low: int, high: int) -> dict[str, np.ndarray]:
    """Return outputs of YOLOv8-seg with smooth prototypes and boxes that do not suppress."""
    rng = np.random.default_rng(0)
    coarse = rng.normal(0, 1, (32, 20, 20)).repeat(8, axis=1).repeat(8, axis=2)
    raw = np.zeros((116, 8400))
    raw[:2, :objects] = rng.uniform(((100,), (180,)), ((540,), (460,)), (2, objects))
    raw[2:4, :objects] = rng.uniform(low, high, (2, objects))
    raw[4 + np.arange(objects) % 80, np.arange(objects)] = rng.uniform(0.3, 1, objects)
    raw[84:] = rng.normal(0, 1, (32, 8400))
    outputs = {'head': raw[None], 'prototypes': (coarse + rng.normal(0, 0.2, coarse.shape))[None]}
    return {name: value.astype(np.float32, order='C') for name, value in outputs.items()}


def decode_and_paint(head: Any, outputs: dict[str, np.ndarray], box: Letterbox) -> None:
    """Decode on the CPU; of instances, paint both images that the segmenter publishes."""
    found = head(outputs, box, ASKED)
    if isinstance(found, Instances):
        found.paint((found.detections.labels + 1).astype(np.uint8))
        found.paint(np.arange(1, len(found) + 1, dtype=np.uint16))


class Benchmark:
    """Times kernels on the GPU, and their NumPy references on the CPU."""

    def __init__(self, arch: str, owned: ExitStack, times_kernels: bool) -> None:
        self._times_kernels = times_kernels
        self.rows: list[dict[str, object]] = []
        self._owned, self._account = owned, Account()
        self._stream = owned.enter_context(closing(Stream()))
        self._kernels = {
            name: owned.enter_context(closing(Kernels(name, arch)))
            for name in ('preprocess', 'decode')
        }

    def _device(self, nbytes: int) -> DeviceBuffer:
        return self._owned.enter_context(closing(DeviceBuffer(nbytes, 'benchmark', self._account)))

    def _upload(self, array: np.ndarray) -> DeviceBuffer:
        buffer = self._device(array.nbytes)
        copy_async(buffer.ptr, array.ctypes.data, array.nbytes, self._stream.handle)
        return buffer

    def _add(self, what: str, ours: float, numpy: float) -> None:
        self.rows.append({'what': what, 'gpu_us': ours, 'numpy_us': numpy})
        print(f'| {what} | {ours:.1f} | {numpy:.0f} | {numpy / ours:.0f} |', flush=True)

    def preprocess(self, frame: Frame, *, antialias: bool) -> None:
        """Time the preprocessing of a frame for an input of 640 by 640."""
        preprocess = Preprocess((640, 640), antialias=antialias)
        source, target = self._upload(frame.data), self._device(640 * 640 * 12)
        (kernel_args,) = steps.preprocess_args(
            preprocess, [steps.Geometry.of(frame)], [source.ptr], target.ptr
        )

        def run(handle: int) -> None:
            steps.launch_preprocess(self._kernels['preprocess'], kernel_args, handle)

        ours = gpu_us(self._stream, run)
        name = f'{frame.width}×{frame.height} {frame.encoding} to 640×640'
        self._add(
            name + (', antialias' if antialias else ''), ours, cpu_us(lambda: preprocess(frame))
        )

    def decode(self, what: str, head: Any, outputs: dict[str, np.ndarray]) -> None:
        """Time the decoding of the outputs of a network."""
        box = Letterbox.fit((1920, 1080), (640, 640), 'letterbox')
        decoder = gpu_decoder(
            SimpleNamespace(head=head),
            [
                TensorSpec(name, value.shape, value.dtype.name, 'output')
                for name, value in outputs.items()
            ],
            {name: value.shape for name, value in outputs.items()},
            box.input_hw,
        )
        if decoder is None:  # As in an earlier version, measured by means of PYTHONPATH.
            self._add(what, float('nan'), cpu_us(lambda: decode_and_paint(head, outputs, box)))
            return
        tensors = {name: self._upload(value) for name, value in outputs.items()}
        scratch = self._device(decoder.scratch_nbytes)
        fill_async(scratch.ptr, 0, scratch.nbytes, self._stream.handle)
        result, request = (
            self._owned.enter_context(closing(PinnedBuffer(nbytes, 'benchmark', self._account)))
            for nbytes in (decoder.result_nbytes(box.image_wh), 256)
        )
        write_request(request.view, Thresholds(0.25, 0.45, 300))
        on_device = self._device(256)
        copy_async(on_device.ptr, request.ptr, 256, self._stream.handle)
        at = Addresses(
            lambda name: tensors[name].ptr, on_device.ptr, scratch.ptr, result.device_ptr
        )
        launches = decoder.launches(box, at)

        def run(handle: int, count: int = len(launches), *, clears: bool = False) -> None:
            if clears:
                fill_async(scratch.ptr, 0, 256, handle)
            for each in launches[:count]:
                self._kernels['decode'].launch(*each, handle)

        ours = gpu_us(self._stream, run)
        if self._times_kernels:  # The last one leaves the counters at zero for the next frame.
            ends = [
                gpu_us(self._stream, partial(run, count=count, clears=True))
                for count in range(len(launches) + 1)
            ]
            parts = (f'{after - before:.1f}' for before, after in pairwise(ends))
            names = (launch.function.partition('_')[0] for launch in launches)
            what += ' (' + ', '.join(map(' '.join, zip(names, parts))) + ')'
        found, _ = decoder.reader(result.view, box.image_wh)()
        if isinstance(found, Detections):
            what += f', {len(found)} kept'
        numpy = float('nan')
        if not self._times_kernels:
            numpy = cpu_us(lambda: decode_and_paint(head, outputs, box))
        self._add(what, ours, numpy)


def frames() -> Iterator[tuple[Frame, bool]]:
    """Return random frames, and whether to antialias."""
    rng = np.random.default_rng(0)
    for (width, height), encoding, antialias in (
        ((640, 480), 'bgr8', False),
        ((1280, 720), 'bgr8', False),
        ((1920, 1080), 'bgr8', False),
        ((1920, 1080), 'nv12', False),
        ((1920, 1080), 'bayer_rggb8', False),
        ((1920, 1080), 'bgr8', True),
    ):
        shape: tuple[int, ...] = (height, width, 3)
        if encoding == 'nv12':
            shape = (height * 3 // 2, width)
        elif 'bayer' in encoding:
            shape = (height, width)
        yield Frame.from_pixels(rng.integers(0, 256, shape, dtype=np.uint8), encoding), antialias


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('--json', type=Path)
    parser.add_argument('--decoders', action='store_true', help='leave out the preprocessing')
    parser.add_argument('--nms', action='store_true', help='only NMS, and each of its kernels')
    args = parser.parse_args()
    gpu = open_gpu()
    with gpu.context, ExitStack() as owned:
        benchmark = Benchmark(gpu.arch, owned, args.nms)
        print(f'{gpu.name}\n\n| | GPU µs | NumPy µs | ratio |\n| --- | --- | --- | --- |')
        for frame, antialias in () if args.decoders or args.nms else frames():
            benchmark.preprocess(frame, antialias=antialias)
        for what, head, outputs in chain(
            decoded(), anchored(), further(), suppressed(), other_tasks()
        ):
            if args.nms and not what.startswith(('YOLOv8', 'NMS', 'RetinaNet')):
                continue
            benchmark.decode(what, head, outputs)
    if args.json:
        args.json.write_text(json.dumps(benchmark.rows, indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
