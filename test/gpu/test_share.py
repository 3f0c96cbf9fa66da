"""Shares of a GPU: results, threads and the end of a process that uses them."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from support.bundles import denoiser
from support.scripts import run_script
from trt_ros.cuda.share import has_shares
from trt_ros.errors import ParameterError
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame

pytestmark = pytest.mark.gpu


def pictures() -> list[Frame]:
    rng = np.random.default_rng(0)
    sizes = ((120, 160), (200, 90), (480, 640))
    return [Frame.from_pixels(rng.integers(0, 256, (*each, 3), dtype=np.uint8)) for each in sizes]


@pytest.mark.usefixtures('nothing_left')
def test_pipelines_of_shares_give_the_same_results_at_the_same_time(gpu, small_detector):
    path = str(small_detector())

    def opened(**options: Any) -> Any:
        return stack.enter_context(
            Pipeline.open(path, device=gpu.index, decoder='yolov8', **options)
        )

    def serve(pipeline: Any) -> None:
        for _ in range(100):
            for frame, scores in zip(pictures(), want):
                np.testing.assert_allclose(np.sort(pipeline(frame).scores), scores, atol=1e-5)

    with ExitStack() as stack:
        whole = opened()
        want = [np.sort(whole(frame).scores) for frame in pictures()]
        half = opened(gpu_share=0.5, frames_in_flight=2)
        rest = opened(gpu_share=0.5, stream_priority=-5, gpu_wait='block')
        assert 'SMs' in half.diagnostics()['GPU']
        with pytest.raises(ParameterError, match='is left'):
            opened(gpu_share=0.25)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(serve, (whole, half, half, rest)))
        half.close()
        serve(opened(gpu_share=0.5))
    assert not has_shares(gpu.index)


@pytest.mark.usefixtures('nothing_left')
def test_a_bundle_runs_in_a_share(gpu, tmp_path):
    path = str(denoiser(tmp_path))
    with (
        Pipeline.open(path, device=gpu.index, backend='tensorrt_rtx') as whole,
        Pipeline.open(path, device=gpu.index, backend='tensorrt_rtx', gpu_share=0.2) as share,
    ):
        rng = np.random.default_rng(0)
        for _ in range(20):
            inputs = {'seen': rng.normal(size=(1, 3, 16, 16)).astype(np.float32)}
            for name, value in whole(inputs).items():
                np.testing.assert_allclose(share(inputs)[name], value, atol=1e-5)


@pytest.mark.parametrize('end', ['pipeline.close()', ''])
def test_a_process_with_a_share_ends_well(gpu, small_detector, end):
    script = f"""
        import sys
        import numpy as np
        from trt_ros import Frame, Pipeline
        pipeline = Pipeline.open(
            sys.argv[1], device=int(sys.argv[2]), decoder='yolov8', gpu_share=0.25)
        pipeline(Frame.from_pixels(np.zeros((50, 50, 3), np.uint8)))
        {end}
        print('done')
    """
    done = run_script(script, small_detector(), gpu.index, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ['done']), done.stderr
