"""Images of several topics that are stacked into one network input, with ONNX Runtime."""

import numpy as np
from onnx import TensorProto, helper
import pytest

from support.save_network import save_network
from trt_ros.errors import BadFrameError, TensorMismatchError
from trt_ros.families.registry import DETECTORS, TENSORS
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

INPUTS = 'x=images:front,left,right?resize=letterbox&mean=0.4,0.5,0.6&std=0.2'


@pytest.fixture
def write(tmp_path):
    """Write a network that returns its input `x`."""

    def write(*shape, dtype=TensorProto.FLOAT, nodes='y = Identity(x)', output=None) -> str:
        tensors = {'x': [dtype, shape]}, {'y': [dtype, output or shape]}
        return save_network(tmp_path / 'network.onnx', nodes, *tensors)

    return write


def open_pipeline(path, inputs=INPUTS, families=TENSORS, **options):
    runner = OnnxRuntimeRunner.open(path, threads=1)
    return Pipeline.open(path, families=families, inputs=inputs, runner=runner, **options)


def picture(seed, width=32, height=20, encoding='bgr8'):
    rng = np.random.default_rng(seed)
    if encoding == '16UC1':
        return Frame.from_pixels(rng.integers(0, 9000, (height, width)).astype('u2'), encoding)
    channels = {'bgr8': 3, 'bgra8': 4}[encoding]
    pixels = rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
    return Frame.from_pixels(pixels, encoding)


PICTURES = [picture(0), picture(1, 48, 48), picture(2, 7, 90)]
SETTINGS = {'mean': (0.4, 0.5, 0.6), 'std': (0.2,) * 3}


@pytest.mark.parametrize(
    ('shape', 'run'),
    [
        ((1, 3, 3, 8, 12), (1, 3)),
        ((3, 3, 8, 12), (3,)),
        (('batch', 3, 3, 8, 12), (1, 3)),
        ((1, 'cameras', 3, 8, 12), (1, 3)),
        (('batch', 'cameras', 3, 8, 12), (1, 3)),
        (('cameras', 3, 8, 12), (3,)),
        ((1, 9, 8, 12), (1,)),
        (('batch', 9, 8, 12), (1,)),
    ],
)
def test_a_stack_equals_its_images_each_preprocessed(write, shape, run):
    with open_pipeline(write(*shape)) as pipeline:
        found = pipeline({'x': PICTURES})['y']
        assert 'x: 3 images, input 12x8' in ' '.join(pipeline.log_lines)
    preprocess = Preprocess((8, 12), **SETTINGS)
    want = np.concatenate([preprocess(each)[0] for each in PICTURES])
    assert found.tobytes() == want.tobytes()
    assert found.shape == (*run, 9 if 9 in shape else 3, 8, 12)


@pytest.mark.parametrize(
    ('shape', 'dtype', 'encoding', 'options'),
    [
        ((1, 3, 8, 12, 3), 'float32', 'bgr8', {'layout': 'nhwc'}),
        ((1, 3, 1, 8, 12), 'float32', '16UC1', {'channels': 1}),
        ((3, 4, 8, 12), 'float16', 'bgra8', {'channels': 4}),
        ((3, 3, 8, 12), 'uint8', 'bgr8', {'scale': 1.0}),
    ],
)
def test_images_of_a_stack_have_any_layout_channels_and_dtype(
    write, shape, dtype, encoding, options
):
    path = write(*shape, dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    frames = [picture(seed, 20 + seed, 30, encoding) for seed in range(3)]
    preprocess = Preprocess((8, 12), dtype=dtype, **options)
    with open_pipeline(path, 'x=images:a,b,c?resize=letterbox') as pipeline:
        found = pipeline({'x': frames})['y']
    want = np.concatenate([preprocess(each)[0] for each in frames]).reshape(shape)
    assert found.dtype == want.dtype and found.tobytes() == want.tobytes()


def test_a_stack_of_one_image_takes_batches(write):
    frames = PICTURES[:2]
    with open_pipeline(write('batch', 1, 3, 8, 12), 'x=images:front', batch=2) as pipeline:
        assert pipeline.max_batch == 2
        together = pipeline.infer_all(frames)
        for frame, found in zip(frames, together):
            alone = pipeline(frame)['y']
            assert alone.shape == (1, 1, 3, 8, 12)
            assert found['y'].tobytes() == alone.tobytes()


def test_a_run_of_fewer_images_is_refused_and_a_binding_suggested_that_works(write):
    with open_pipeline(write(1, 3, 3, 8, 12)) as pipeline:
        with pytest.raises(TensorMismatchError, match="'x' takes 3 images, but got 2"):
            pipeline({'x': PICTURES[:2]})
        with pytest.raises(TensorMismatchError, match="'x' takes 3 images, but got 1"):
            pipeline({'x': PICTURES[0]})
        with pytest.raises(BadFrameError, match='depth image'):
            pipeline({'x': [*PICTURES[:2], picture(0, encoding='16UC1')]})
    path = write(1, 3, 3, 8, 12)
    for inputs in ((), 'x=image:front'):
        with pytest.raises(TensorMismatchError, match='is not a batch of images') as caught:
            open_pipeline(path, inputs)
        suggested = 'x=images:x0/image_raw,x1/image_raw,x2/image_raw'
        assert f"['{suggested}']" in caught.value.remedy
    open_pipeline(path, suggested).close()


@pytest.mark.parametrize(
    ('shape', 'inputs', 'problem'),
    [
        ((1, 6, 3, 8, 12), INPUTS, 'stacks 6 images, but is bound to 3'),
        ((6, 3, 8, 12), INPUTS, 'stacks 6 images, but is bound to 3'),
        ((1, 3, 8, 12), INPUTS, 'stacks 1 images, but is bound to 3'),
        ((2, 3, 3, 8, 12), INPUTS, 'is not a stack of images'),
        ((3, 8, 12), INPUTS, 'is not a stack of images'),
        ((1, 1, 3, 3, 8, 12), INPUTS, 'is not a stack of images'),
        ((1, 3, 2, 8, 12), INPUTS, 'has no dimension of 1, 3 or 4 channels'),
        ((1, 3, 3, 8, 12), 'x=image:front', 'is not a batch of images'),
    ],
)
def test_an_input_that_is_no_such_stack_is_refused(write, shape, inputs, problem):
    with pytest.raises(TensorMismatchError, match=problem) as caught:
        open_pipeline(write(*shape), inputs)
    assert caught.value.remedy


@pytest.fixture
def boxes(write) -> str:
    """Write a network that finds one object of the whole input, whatever the images show."""
    nodes = (
        'max = ReduceMax <keepdims = 0> (x) zero = Constant <value_float = 0.0> () '
        'nothing = Mul(max, zero) shape = Constant <value_ints = [1, 1, 6]> () '
        'row = Constant <value_floats = [0.0, 0.0, 96.0, 64.0, 0.9, 2.0]> () '
        'boxes = Reshape(row, shape) y = Add(boxes, nothing)'
    )
    return write(1, 2, 3, 64, 96, nodes=nodes, output=(1, 1, 6))


def test_boxes_of_a_stack_are_in_pixels_of_its_first_image(boxes):
    inputs = 'x=images:front,rear?resize=stretch'
    with open_pipeline(boxes, inputs, DETECTORS, decoder='yolov10') as pipeline:
        found = pipeline({'x': [picture(0, 192, 256), picture(1, 10, 10)]})
    assert found.xyxy.tolist() == [[0, 0, 192, 256]]
