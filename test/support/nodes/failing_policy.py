"""The policy node on a GPU that is lost by a run with a large observation."""

from functools import partial
import logging
import sys

import numpy as np

from trt_ros.errors import GpuFailedError
from trt_ros.families.registry import TENSORS
from trt_ros.nodes.policy import PolicyNode
from trt_ros.ros.process import run_node
from trt_ros.runtime.device import Device
from trt_ros.runtime.pipeline import Pipeline

LARGE = 100.0


class LostDevice(Device):
    """Stands for the GPU of a pipeline on the CPU."""

    def on_fault(self, callback):
        self.callback = callback

    def lose(self):
        fault = GpuFailedError('The GPU failed.', cause='It is a test.', remedy='Restart it.')
        logging.getLogger('trt_ros.runtime').error('%s', fault)
        self.callback(fault)
        raise fault


def read_nowhere(pipeline):
    """Launch a kernel that reads where nothing is: the CUDA context of the process is lost."""
    from trt_ros.runtime.gpu import preprocess
    from trt_ros.vision.frame import Frame
    from trt_ros.vision.letterbox import Preprocess

    geometry = preprocess.Geometry.of(Frame.from_pixels(np.zeros((50, 50, 3), np.uint8)))
    (args,) = preprocess.preprocess_args(Preprocess((64, 96)), [geometry], [64], 64)
    with pipeline.gpu.context:
        kernels, stream = pipeline.shared.preprocess_kernels, pipeline.slots.all[0].stream
        preprocess.launch_preprocess(kernels, args, stream.handle)


def open_pipeline(options, **given):
    pipeline = Pipeline.open(options, families=TENSORS, **given)
    lose = partial(read_nowhere, pipeline)
    if pipeline.backend == 'onnxruntime':
        pipeline.device = LostDevice()
        lose = pipeline.device.lose
    run = pipeline.infer

    def infer(inputs, *args):
        if any(np.max(each) > LARGE for each in inputs.values()):
            lose()
        return run(inputs, *args)

    pipeline.infer = infer
    return pipeline


if __name__ == '__main__':
    sys.exit(run_node(partial(PolicyNode, open_pipeline=open_pipeline)))
