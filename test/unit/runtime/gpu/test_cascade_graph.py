"""A detector and a classifier in one captured graph, on a CUDA of our own; kernels by g++."""

from demo.scene import draw_scene
import numpy as np
import pytest

from support.bundles import write_cascade
from support.host_context import onnx_context
from support.kernels_on_cpu import KernelsOnCpu
from support.numbers_on_cpu import KERNELS, NumbersOnCpu
from support.tiled import with_batch
from trt_ros.families.registry import CLASSIFIERS, DETECTORS, TEXTS
from trt_ros.runtime.cascade import CascadePipeline, members_of
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.fitting import fit
from trt_ros.runtime.options import ModelOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.thresholds import Thresholds

pytestmark = pytest.mark.slow
ASKED = Thresholds(0.3, 0.5, max_detections=300)


@pytest.fixture(scope='module')
def kernels():
    numbers, decode = NumbersOnCpu(), KernelsOnCpu()
    return lambda function, *launch: (numbers if function in KERNELS else decode).prepare(
        function, *launch
    )


@pytest.fixture
def open_gpu(make_engine, open_fitted, cuda, kernels):
    """Open a cascade on the fake GPU."""
    cuda.prepare = kernels

    def open_member(options, families, batch, **given):
        network = OnnxRuntimeRunner.open(options.model_path, threads=1)
        engine = make_engine()
        engine.inputs, engine.outputs = network.inputs, network.outputs
        engine.metadata = network.metadata
        [image] = network.inputs
        shape = image.shape[1:]
        is_fixed = image.shape[0] > 0
        sizes = ((1, *shape), (1, *shape), (batch, *shape))
        engine.profiles = () if is_fixed else ({image.name: sizes},)
        engine.create_execution_context = lambda strategy: onnx_context(engine, network)
        return open_fitted(engine, fit(engine, options, families), batch, **given)

    def open_gpu(path, batch=1, **given):
        first, (second,) = members_of(
            ModelOptions(model_path=str(path), tiles=given.pop('tiles', ''))
        )
        detector = open_member(first, DETECTORS, batch if not first.tiles else 2, **given)
        colors = open_member(second, (*CLASSIFIERS, *TEXTS), second.max_regions, **given)
        cascade = CascadePipeline(detector, colors, second.max_regions)
        cascade.warm_up()
        return cascade

    return open_gpu


def scene(seed):
    return draw_scene(np.random.default_rng(seed), (640, 480))[0]


def assert_equal(ours, wanted):
    np.testing.assert_allclose(ours.xyxy, wanted.xyxy, atol=0.01)
    for got, want in zip(ours, wanted):
        assert (got.region is None) == (want.region is None)
        if want.region is not None:
            np.testing.assert_allclose(got.region.scores, want.region.scores, atol=2e-3)
            assert got.region.names == want.region.names


@pytest.mark.parametrize(
    ('batch', 'max_regions', 'frames_in_flight'),
    [
        ('n', 2, 2),
        (1, 3, 1),
        pytest.param('n', 16, 1, marks=pytest.mark.nightly),
        pytest.param(3, 4, 2, marks=pytest.mark.nightly),
    ],
)
def test_one_launch_finds_objects_and_their_classes(
    tmp_path, open_gpu, cuda, batch, max_regions, frames_in_flight
):
    path = write_cascade(tmp_path, batch=batch, max_regions=max_regions, region_scale=1.5)
    ours = open_gpu(path, frames_in_flight=frames_in_flight)
    last = f'regions: up to {max_regions} objects per image, in the same launch'
    assert ours.log_lines[-1] == last
    with Pipeline.open(path, backend='onnxruntime', cpu_threads=1) as reference:
        ours(scene(3), score=1.0)  # Captures the graph of this size.
        for seed, score in ((3, 0.3), (1, 0.3), (3, 1.0), (3, 0.9)):
            launches = cuda.calls['cudaGraphLaunch']
            found, wanted = (each(scene(seed), score=score) for each in (ours, reference))
            assert cuda.calls['cudaGraphLaunch'] == launches + 1
            assert_equal(found, wanted)
        assert len(wanted) == 4
    assert ours.diagnostics()['CUDA graph fallbacks'] == ''


@pytest.mark.parametrize(
    'batch', ['n', *(pytest.param(each, marks=pytest.mark.nightly) for each in (1, 3))]
)
def test_text_is_decoded_in_the_same_launch_and_in_runs_of_its_own(tmp_path, open_gpu, batch):
    path = write_cascade(tmp_path, batch=batch, max_regions=4, finds='text')
    ours = open_gpu(path)
    assert ours.log_lines[-1].endswith('in the same launch')
    with Pipeline.open(path, backend='onnxruntime', cpu_threads=1) as reference:
        wanted = reference(scene(3), score=0.3)
        assert_equal(ours(scene(3), ASKED), wanted)
        boxes = wanted.rotated_boxes()[:3]
        found, expected = (
            each.regions.infer_regions(scene(3), boxes) for each in (ours, reference)
        )
    assert [each.text for each in found] == [each.text for each in expected]
    np.testing.assert_allclose(
        *([each.score for each in some] for some in (found, expected)), atol=2e-3
    )
    assert {'r', 'g', 'b'} > {each.text for each in found} > set()


def test_boxes_that_the_cpu_decodes_are_run_afterwards(tmp_path, open_gpu, decode_on_cpu):
    path = write_cascade(tmp_path, max_regions=3)
    ours = open_gpu(path)
    assert ours.log_lines[-1].endswith('in runs of their own')
    with Pipeline.open(path, backend='onnxruntime', cpu_threads=1) as reference:
        assert_equal(ours(scene(3), ASKED), reference(scene(3), ASKED))


@pytest.mark.parametrize(('batch', 'tiles'), [(1, '2x1'), (2, '')])
def test_regions_follow_the_merged_tiles_and_their_image(tmp_path, open_gpu, batch, tiles):
    detector = with_batch(tmp_path / 'shapes.onnx', 'n')
    path = write_cascade(tmp_path, detector, max_regions=4)
    ours = open_gpu(path, batch=batch, tiles=tiles)
    images = [scene(3), scene(1)]
    with Pipeline.open(path, backend='onnxruntime', cpu_threads=1, tiles=tiles) as reference:
        for found, wanted in zip(ours(images, ASKED), reference(images, ASKED)):
            assert_equal(found, wanted)
