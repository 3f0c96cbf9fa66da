"""Inputs beside the image, the same for every frame, on a CUDA of our own."""

from dataclasses import replace

import numpy as np

from trt_ros.decode.choice import choose_decoder
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

SIZE = np.array([[96, 64]], np.int64)


def test_constant_input_is_uploaded_once_per_image_slot_and_never_per_frame(
    cuda, make_engine, network_of, picture
):
    engine = make_engine(batch=-1)
    decoder = choose_decoder('yolov8', engine.inputs, engine.outputs, {}, (64, 96))
    engine.inputs = (TensorSpec('orig_target_sizes', (-1, 2), 'int64', 'input'), *engine.inputs)
    engine.profiles = ({**engine.profiles[0], 'orig_target_sizes': ((1, 2), (1, 2), (4, 2))},)
    pipeline = GpuPipeline(
        network_of(engine, gpu_timeout=0),
        ResolvedModel.of_image(
            engine,
            Preprocess((64, 96)),
            replace(decoder, constant_inputs={'orig_target_sizes': SIZE}),
        ),
        batch=3,
    )
    for batch in (1, 3):
        for _ in range(2):
            pipeline.start(
                [picture()] * batch, Thresholds(score=0.5, iou=0.5, max_detections=9)
            ).wait()
        buffers = pipeline.slots.all[0].buffers_for(batch)
        context, tensor = buffers.execution.context, buffers.tensors['orig_target_sizes']
        assert context.shapes == {'images': (batch, 3, 64, 96), 'orig_target_sizes': (batch, 2)}
        assert context.addresses['orig_target_sizes'] == tensor.ptr
        there = bytes(cuda._memory[tensor.ptr])
        assert np.frombuffer(there, np.int64).reshape(-1, 2).tolist() == [[96, 64]] * 3
    pipeline.close()
    assert pipeline.memory() == {'device': {}, 'pinned': {}}
