"""What a detector may be asked to be."""

import math
from pathlib import Path

import numpy as np
import pytest

from trt_ros.errors import ParameterError
from trt_ros.runtime.machine_options import LEAST_BUSY
from trt_ros.runtime.options import LabeledOptions


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        ({'backend': 'torch'}, r"backend is 'torch'.\nRemedy: Choose one of auto, "),
        ({'resize': 'crop'}, r"resize is 'crop'.\nRemedy: Choose one of auto, letterbox, "),
        ({'channel_order': 'gbr'}, "channel_order is 'gbr'"),
        ({'pad_value': 256}, r'pad_value is 256.\nRemedy: Set it to -1 to 255'),
        ({'pad_value': -2}, 'pad_value is -2'),
        ({'mean': (1.0, 2.0)}, r'mean is \[1.0, 2.0\].\nRemedy: Set it to 1, 3 or 4 numbers of'),
        ({'mean': (math.nan, 0.0, 0.0)}, 'mean is'),
        ({'std': (1.0, 1.0)}, 'std is'),
        ({'std': (1.0, 0.0, 1.0)}, r'std is .*\nRemedy: .* numbers of 1e-06 to 1000000.0'),
        ({'scale': -1.0}, 'scale is -1.0'),
        ({'scale': math.inf}, 'scale is inf'),
        ({'input_size': (640,)}, r'input_size is \[640\]'),
        ({'input_size': (0, 640)}, r'input_size is \[0, 640\]'),
        ({'inputs': {'x': 'image:a'}}, 'inputs is {.*}, but must be of type string_array'),
        ({'outputs': (3.5,)}, r'outputs is \[3.5\]'),
        ({'antialias': 'yes'}, "antialias is 'yes', but must be of type bool"),
        ({'scale': '0.5'}, "scale is '0.5', but must be of type double"),
        ({'labels': ('a',), 'labels_path': 'b'}, 'Both labels and labels_path'),
        ({'resize': 'stretch', 'pad_value': 0}, 'resize stretch has no padding'),
        ({'model_path': 'triton://a:1/m'}, r'unknown scheme.\nRemedy: Begin it with one of hf://'),
        ({'resize': 'center_crop', 'pad_value': 0}, 'resize center_crop has no padding'),
        ({'crop_fraction': 1.5}, 'crop_fraction is 1.5'),
        ({'device': -2}, r'device is -2\.\n.* auto, or -1 to 63'),
        ({'device': 64}, r'device is 64\.\n.* auto, or -1 to 63'),
        ({'device': 'all'}, r"device is 'all', .*\n.* auto, or -1 to 63"),
        ({'contexts': 2, 'frames_in_flight': 1}, 'contexts is 2, but frames_in_flight 1'),
        ({'backend': 'onnxruntime', 'precision': 'fp16'}, 'ONNX Runtime keeps the types'),
    ],
)
def test_rejects_inconsistent_options(values, message):
    with pytest.raises(ParameterError, match=message):
        LabeledOptions(**values)


@pytest.mark.parametrize(
    ('name', 'given', 'taken'),
    [('device', 'auto', LEAST_BUSY), ('labels', 'coco', ('coco',)), ('contexts', 2, 2)],
)
def test_options_are_taken(name, given, taken):
    assert getattr(LabeledOptions(**{name: given}), name) == taken


def test_numbers_of_numpy_paths_and_lists_get_the_types_of_the_options():
    options = LabeledOptions(
        input_size=np.array([480, 640]),
        mean=[1, 2, 3],
        pad_value=np.uint8(114),
        labels_path=Path('a'),
    )
    assert options == LabeledOptions(
        input_size=(480, 640), mean=(1.0, 2.0, 3.0), pad_value=114, labels_path='a'
    )
    assert type(options.input_size[0]) is int and type(options.mean[0]) is float
