"""Several execution contexts of one engine, whose runs overlap."""

from contextlib import closing

from demo.scene import held_out
import numpy as np
import pytest

from trt_ros.demo import MODEL
from trt_ros.runtime.gpu.measure import open_frames
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize('contexts', [2, 4])
def test_runs_that_overlap_have_the_results_of_runs_in_turn(gpu, contexts):
    frames = [Frame.from_pixels(pixels) for pixels, *_ in held_out(16)]
    asked = Thresholds(score=0.3)
    with closing(open_frames(MODEL, device=gpu.index, decoder='yolov8')) as one:
        want = [one.start([frame], asked).result()[0] for frame in frames]
        single = one.memory()['device']
    with closing(
        open_frames(
            MODEL, device=gpu.index, decoder='yolov8', frames_in_flight=4, contexts=contexts
        )
    ) as pipeline:
        pipeline.warm_up()
        for _ in range(20):
            for first in range(0, len(frames), 4):
                runs = [pipeline.start([frame], asked) for frame in frames[first : first + 4]]
                for run, expected in zip(runs, want[first:]):
                    (found,) = run.result()
                    np.testing.assert_array_equal(found.xyxy, expected.xyxy)
        assert pipeline.memory()['device']['activations'] == contexts * single['activations']
