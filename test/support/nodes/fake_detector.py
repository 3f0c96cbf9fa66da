"""The detector node over a network that needs no file: it finds the bright rectangle."""

from functools import partial
import itertools
import logging
from pathlib import Path
import sys
import time

import numpy as np

from support.fake_runner import FakeRunner
from trt_ros.engine.builder.parent import build
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import GpuFailedError, ModelError
from trt_ros.nodes.detector import DetectorNode
from trt_ros.progress import Progress, Reporter
from trt_ros.ros.process import run_node
from trt_ros.runtime.device import Device
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import TensorSpec
from trt_ros.trt import load_trt

CLASSES = {0: 'red', 1: 'green', 2: 'blue', 3: 'white'}
SIZE = 64
ANCHORS = 8 * 8 + 4 * 4 + 2 * 2


def find_bright(tensors):
    """Answer as a YOLOv8 would: one box around the bright pixels; two of a lower score inside."""
    return {'output0': np.concatenate([find_in(image) for image in tensors['images']])}


def find_in(channels):
    bright = channels.max(axis=0) > 0.7  # Brighter than the padding, which is 114 / 255.
    head = np.zeros((1, 4 + len(CLASSES), ANCHORS), np.float32)
    if bright.any():
        rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
        left, top, right, bottom = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
        color = channels[:, bright].mean(axis=1)
        label = 3 if color.min() > 0.7 else int(color.argmax())
        center = (left + right) / 2, (top + bottom) / 2
        head[0, :4, 0] = *center, right - left, bottom - top
        head[0, 4 + label, 0] = 0.9
        head[0, :4, 1] = *center, (right - left) / 4, (bottom - top) / 4
        head[0, 4 + label, 1] = 0.6
    return head


class FailingGpu(Device):
    """A GPU that fails in the next run, reported or not, as that of GpuPipeline."""

    def __init__(self, is_reported):
        self.is_reported, self.callback = is_reported, None

    def on_fault(self, callback):
        self.callback = callback

    def start(self, frames, thresholds):
        fault = GpuFailedError('The GPU failed.', cause='It is a test.', remedy='Restart it.')
        logging.getLogger('trt_ros.runtime').error('%s', fault)
        if self.is_reported:
            self.callback(fault)
        raise fault

    def close(self):
        print('The failing GPU is closed.', flush=True)


def prepare(what, rest, on_progress, cancelled):
    """Fail, wait or build an engine before the pipeline opens."""
    if what == 'broken':
        raise ModelError('The model is broken.', cause='It is a test.', remedy='Mend it.')
    if what == 'bug':
        raise ZeroDivisionError('a bug')
    if what == 'wait':
        on_progress(Progress('waiting for the file', None, 0.0))
        while not Path(rest).exists() and not cancelled.wait(0.01):
            pass
    if what == 'build':
        build(
            Path(rest),
            BuildOptions(),
            load_trt('tensorrt_rtx'),
            report=Reporter(on_progress, cancelled),
        ).plan.close()


def open_pipeline(options, *, on_progress=None, cancelled=None, batch=1):
    """
    Open, or do first what the model's name says.

    The scores of `logits:` are 315 for blue.
    The frames of `faulty:` meet a GPU that fails; of `faulty:untold`, one that failed so early
    that nobody was told. `wait:FILE` waits until the file is there, `hold:FILE` so with each
    frame, `build:FILE` builds an engine of that ONNX file. The network of `runs:FOLDER` takes a
    batch of any size: before run N it writes that to FOLDER/N, and waits for FOLDER/go_N, or for
    FOLDER/go. One of a fixed batch is `fixed:FOLDER`.
    """
    what, _, rest = options.model_path.partition(':')
    prepare(what, rest, on_progress, cancelled)
    runs = itertools.count()

    def find(tensors):
        if what in ('runs', 'fixed'):
            number, folder = next(runs), Path(rest)
            unfinished = folder / f'{number}.unfinished'
            unfinished.write_text(str(len(tensors['images'])))
            unfinished.rename(folder / str(number))
            while not ((folder / f'go_{number}').exists() or (folder / 'go').exists()):
                time.sleep(0.01)
        while what == 'hold' and not Path(rest).exists():
            time.sleep(0.01)
        found = find_bright(tensors)
        if what == 'logits':
            found['output0'][:, 6] *= 350  # Of blue.
        return found

    size = -1 if what == 'runs' else 1
    runner = FakeRunner(
        find,
        inputs=[TensorSpec('images', (size, 3, SIZE, SIZE), 'float32', 'input')],
        outputs=[TensorSpec('output0', (size, 4 + len(CLASSES), ANCHORS), 'float32', 'output')],
        metadata={'names': str(CLASSES)},
    )
    pipeline = Pipeline.open(
        options, on_progress=on_progress, cancelled=cancelled, batch=batch, runner=runner
    )
    if what == 'faulty':
        pipeline.device = gpu = FailingGpu(is_reported=rest != 'untold')
        pipeline.start, pipeline._close = gpu.start, gpu.close
    return pipeline


if __name__ == '__main__':
    sys.exit(run_node(partial(DetectorNode, open_pipeline=open_pipeline)))
