"""Regions of an image through a real network in ONNX Runtime."""

from contextlib import ExitStack

import numpy as np
import pytest

from support.fake_runner import FakeRunner, fake_detector
from support.save_network import save_network
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families.registry import TENSORS
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame

RED, GREEN, BLUE = np.eye(3, dtype=np.uint8) * 255


def save(path, nodes, outputs, *, batch='n', hw=(8, 8), **constants):
    """Write a network of one image input as ONNX."""
    return save_network(
        path,
        nodes,
        {'images': (batch, 3, *hw)},
        {name: (batch, *shape) for name, shape in outputs.items()},
        constants={name: np.asarray(value) for name, value in constants.items()},
    )


def open_network(path, **options):
    runner = OnnxRuntimeRunner.open(path, threads=1)
    return Pipeline.open(path, runner=runner, **{'regions': True, **options})


@pytest.fixture
def open_pipeline(tmp_path):
    """Open a network that returns the mean color of its input, on regions."""
    with ExitStack() as opened:

        def make(fixed='n', **options):
            path = save(
                tmp_path / 'mean.onnx',
                'pooled = GlobalAveragePool(images) out = Flatten(pooled)',
                {'out': (3,)},
                batch=fixed,
            )
            values = {'mean': (0.0, 0.0, 0.0), 'std': (1.0, 1.0, 1.0), **options}
            return opened.enter_context(open_network(path, families=TENSORS, **values))

        yield make


def stripes():
    """Red, green and blue stripes of 20 columns."""
    return np.repeat(np.stack([RED, GREEN, BLUE])[None], 20, axis=1).repeat(40, axis=0)


def colors(results):
    return np.concatenate([each['out'] for each in results]).round(3).tolist()


BOXES = np.array([[50, 20, 10, 10, 0], [10, 20, 10, 10, 0], [30, 20, 10, 4, 0.5]])


@pytest.mark.parametrize(
    ('fixed', 'batch_size'), [('n', 16), ('n', 2), ('n', 1), (1, 16), (2, 16), (4, 1)]
)
def test_each_region_has_its_result_in_order_whatever_the_batches(
    open_pipeline, fixed, batch_size
):
    pipeline = open_pipeline(fixed, batch=batch_size)
    found = pipeline.infer_regions(Frame.from_pixels(stripes(), 'rgb8'), BOXES)
    assert colors(found) == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ('count', 'runs'), [(0, []), (1, [1]), (3, [3]), (4, [4]), (9, [4, 4, 1])]
)
def test_missing_regions_are_not_waited_for(count, runs):
    seen = []

    def answer(tensors):
        seen.append(len(tensors['images']))
        return {'out': np.zeros((seen[-1], 3), np.float32)}

    runner = FakeRunner(
        answer,
        inputs=[TensorSpec('images', (-1, 3, 8, 8), 'float32', 'input')],
        outputs=[TensorSpec('out', (-1, 3), 'float32', 'output')],
    )
    options = {'families': TENSORS, 'regions': True, 'batch': 4}
    with Pipeline.open('any.onnx', runner=runner, **options) as pipeline:
        seen.clear()
        assert len(pipeline.infer_regions(stripes(), BOXES[:1].repeat(count, axis=0))) == count
    assert seen == runs


def test_scale_and_resize_decide_what_the_network_sees(open_pipeline):
    middle = np.array([[30, 20, 20, 40, 0.0]])  # The green stripe.
    frame = Frame.from_pixels(stripes(), 'rgb8')
    stretched = colors(open_pipeline().infer_regions(frame, middle))
    expanded = colors(open_pipeline(region_resize='expand').infer_regions(frame, middle))
    scaled = colors(open_pipeline(region_scale=2.0).infer_regions(frame, middle))
    assert stretched == [[0, 1, 0]]
    assert expanded == [[0.25, 0.5, 0.25]]
    assert scaled == [[0.125, 0.25, 0.125]]  # Half of the rows are padding.


def test_a_top_down_network_sees_a_quarter_more_and_points_return_to_the_image(tmp_path):
    """One keypoint at the last column and row of the input, one at the first."""
    x, y = np.zeros((1, 2, 12), np.float32), np.zeros((1, 2, 16), np.float32)
    x[0, 0, 11] = y[0, 0, 15] = x[0, 1, 0] = y[0, 1, 0] = 0.75
    nodes = (
        'mean = ReduceMean <axes = [1, 2, 3], keepdims = 0> (images) '
        'column = Unsqueeze(mean, axes) nothing = Mul(column, zero) simcc_x = Add(nothing, x) '
        'simcc_y = Add(nothing, y)'
    )
    path = save(
        tmp_path / 'simcc.onnx',
        nodes,
        {'simcc_x': (2, 12), 'simcc_y': (2, 16)},
        hw=(8, 6),
        axes=[1, 2],
        zero=np.float32(0),
        x=x,
        y=y,
    )
    with open_network(path, batch=8) as pipeline:
        assert pipeline.decoder.name == 'simcc'
        placement = 'input 6x8 (fixed by the network), regions of 1.25 times the box, expand, rgb'
        assert any(line.startswith(placement) for line in pipeline.log_lines)
        boxes = np.array([[100, 50, 12, 32, 0.0], [100, 50, 12, 32, np.pi]])
        upright, turned = pipeline.infer_regions(stripes(), boxes)
    # 8 rows show 40 pixels: 5 per row and, with the aspect ratio of the input, per column.
    step = 5
    right, bottom = 100 + (5.5 + 0.5 - 3) * step, 50 + (7.5 + 0.5 - 4) * step
    left, top = 100 + (0.5 - 3) * step, 50 + (0.5 - 4) * step
    assert upright.keypoints[0].tolist() == [
        pytest.approx([right, bottom, 0.75]),
        pytest.approx([left, top, 0.75]),
    ]
    assert turned.keypoints[0, 0].tolist() == pytest.approx([200 - right, 100 - bottom, 0.75])
    assert upright.detections.xyxy.tolist() == [pytest.approx([85, 30, 115, 70])]


def test_pipelines_and_networks_of_whole_images_refuse_regions(open_pipeline):
    with pytest.raises(ParameterError, match='runs on whole images') as error:
        open_pipeline(regions=False).infer_regions(stripes(), BOXES)
    assert 'regions=True' in error.value.remedy
    with pytest.raises(TensorMismatchError, match='decoder yolov8 does not take regions'):
        Pipeline.open('any.onnx', runner=fake_detector(), regions=True, decoder='yolov8')


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'resize': 'letterbox'}, 'resize cannot be applied to regions'),
        ({'antialias': True, 'resize': 'stretch'}, 'resize and antialias cannot be applied'),
        ({'inputs': ('images=image:image',)}, 'inputs is .*, but regions is true'),
        ({'region_scale': -1.0}, 'region_scale is -1.0'),
        ({'region_resize': 'letterbox'}, "region_resize is 'letterbox'"),
    ],
)
def test_options_that_do_not_apply_are_refused(open_pipeline, options, message):
    with pytest.raises(ParameterError, match=message):
        open_pipeline(**options)
