"""An error after which this process's GPU context is gone; in a process of its own."""

import textwrap

import pytest

from support.scripts import run_script

pytestmark = pytest.mark.gpu


def test_a_sticky_error_fails_the_pipeline_with_its_reason_and_close_still_works(
    gpu, small_detector
):
    script = textwrap.dedent("""
        import sys
        import numpy as np
        from trt_ros.cuda.calls import live
        from trt_ros.cuda.memory import fill_async
        from trt_ros.cuda.kernels import Kernels
        from trt_ros.engine.options import BuildOptions
        from trt_ros.errors import GpuFailedError
        from trt_ros.runtime.fitting import ResolvedModel
        from trt_ros.runtime.gpu.open import open_tensor_runner
        from trt_ros.runtime.gpu.pipeline import GpuPipeline
        from trt_ros.runtime.gpu import preprocess as steps
        from trt_ros.decode.choice import choose_decoder
        from trt_ros.vision.frame import Frame
        from trt_ros.vision.letterbox import Preprocess
        from trt_ros.vision.thresholds import Thresholds

        device = int(sys.argv[2])
        engine = open_tensor_runner(
            sys.argv[1], BuildOptions(precision='fp32'), device=device,
            frames_in_flight=1)
        decoder = choose_decoder('yolov8', engine.inputs, engine.outputs, {}, (64, 96))
        faults = []
        fitted = ResolvedModel.of_image(engine, Preprocess((64, 96)), decoder)
        pipeline = GpuPipeline(engine, fitted)
        pipeline.device.on_fault(faults.append)
        frame = Frame.from_pixels(np.zeros((50, 50, 3), np.uint8))
        thresholds = Thresholds(0.5, 0.5, 5)
        pipeline.infer(frame, thresholds)
        # A kernel that reads where nothing is.
        (args,) = steps.preprocess_args(
            Preprocess((64, 96)), [steps.Geometry.of(frame)], [64], 64)
        with pipeline.gpu.context:
            steps.launch_preprocess(
                pipeline.shared.preprocess_kernels, args, pipeline.slots.all[0].stream.handle)
        for _ in range(2):
            try:
                pipeline.infer(frame, thresholds)
            except GpuFailedError as error:
                print('FAILED', str(error).replace(chr(10), ' '))
        print('FAULTS', len(faults))
        pipeline.close()
        print('LEFT', live())
    """)
    done = run_script(script, small_detector(), gpu.index, check=False)
    said = done.stdout.splitlines()
    assert len([line for line in said if line.startswith('FAILED')]) == 2, done.stderr
    assert 'cudaErrorIllegalAddress' in said[0] and 'restart the process' in said[0]
    assert 'FAULTS 1' in said
    assert 'LEFT {}' in said, (done.returncode, done.stderr)
