"""Metadata of other exporters, and files that they write beside a model."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from support.save_network import save_network
from trt_ros.engine.options import BuildOptions
from trt_ros.model.published import RANGES, read_published
from trt_ros.parameter_field import specifications
from trt_ros.results.labels import class_names
from trt_ros.runtime.gpu.profile import with_published_size
from trt_ros.runtime.options import ModelOptions
from trt_ros.runtime.pipeline import Pipeline

MEAN, STD = [0.5, 0.4, 0.3], [0.25, 0.2, 0.1]
VIT = {'size': {'height': 224, 'width': 192}, 'image_mean': MEAN, 'image_std': STD}
CLIP = {'do_center_crop': True, 'crop_size': 224, 'size': {'shortest_edge': 256}}
LABELS = {'architectures': ['ViTForImageClassification'], 'id2label': {'1': 'dog', '0': 'cat'}}
NORMALIZE = {'NormalizeImage': {'mean': MEAN, 'std': STD, 'scale': '1./255.', 'order': ''}}
PADDLEX = {
    'PreProcess': {
        'transform_ops': [
            {'DecodeImage': {'img_mode': 'BGR'}},
            NORMALIZE,
            {'RecResizeImg': {'image_shape': [3, 48, 320]}},
            {'ToCHWImage': None},
        ]
    },
    'PostProcess': {'name': 'CTCLabelDecode', 'character_dict': ['a', '0', '1']},
}
PADDLE = {
    'Preprocess': [
        {'type': 'Resize', 'target_size': [320, 416], 'keep_ratio': False},
        {'type': 'NormalizeImage', 'mean': MEAN, 'std': STD, 'norm_type': 'none'},
    ],
    'label_list': ['car', 'bus'],
}
MMDEPLOY = {
    'pipeline': {
        'tasks': [
            {'module': 'Net'},
            {
                'transforms': [
                    {'type': 'LoadImageFromFile'},
                    {'type': 'Normalize', 'mean': [123, 116, 103], 'std': [58], 'to_rgb': False},
                ]
            },
        ]
    }
}
TIMM = {
    'architecture': 'resnet18',
    'pretrained_cfg': {'mean': MEAN, 'std': STD, 'input_size': [3, 288, 288]},
    'label_names': ['cat', 'dog'],
}
UNIT = {'mean': (0.5, 0.4, 0.3), 'std': (0.25, 0.2, 0.1), 'scale': 1 / 255}
PLAIN = {'mean': (0.0,), 'std': (1.0,), 'scale': 1 / 255}

#: Name of the model and of the file beside it, content, then preprocessing, names and size.
FILES = [
    ('model', 'preprocessor_config.json', VIT, {**UNIT, 'resize': 'stretch'}, [], [224, 192]),
    ('model', 'preprocessor_config.json', CLIP, {**PLAIN, 'crop_fraction': 0.875}, [], [224, 224]),
    (
        'model',
        'preprocessor_config.json',
        {**VIT, 'size': 224, 'do_rescale': False, 'do_normalize': False, 'crop_pct': 0.9},
        {'mean': (0.0,), 'std': (1.0,), 'scale': 1.0, 'crop_fraction': 0.9},
        [],
        [224, 224],
    ),
    ('model', 'config.json', LABELS, {}, ['cat', 'dog'], []),
    ('model', 'config.json', {**LABELS, 'architectures': ['ViTForDepthEstimation']}, {}, [], []),
    ('model', 'config.json', {**LABELS, 'id2label': {'0': 'LABEL_0'}}, {}, [], []),
    ('model', 'config.json', TIMM, UNIT, ['cat', 'dog'], [288, 288]),
    (
        'inference',
        'inference.yml',
        PADDLEX,
        {**UNIT, 'channel_order': 'bgr'},
        ['blank', 'a', '0', '1', ' '],
        [48, 320],
    ),
    ('model', 'infer_cfg.yml', PADDLE, PLAIN, ['car', 'bus'], [320, 416]),
    (
        'end2end',
        'pipeline.json',
        MMDEPLOY,
        {'mean': (123, 116, 103), 'std': (58,), 'scale': 1.0, 'channel_order': 'bgr'},
        [],
        [],
    ),
]


def write(folder: Path, name: str, content: object) -> None:
    text = json.dumps(content) if name.endswith('json') else yaml.safe_dump(content)
    (folder / name).write_text(text)


@pytest.mark.parametrize(('model', 'name', 'content', 'preprocess', 'names', 'size'), FILES)
def test_files_of_exporters_are_read(tmp_path, model, name, content, preprocess, names, size):
    write(tmp_path, name, content)
    (tmp_path / 'other.onnx').touch()
    found = read_published(str(tmp_path / f'{model}.onnx'), {})
    assert found.preprocess == preprocess
    assert list(class_names((), '', found.metadata, None)) == names
    assert found.metadata.get('imgsz', '[]') == str(size)
    assert all(line.startswith(f'{name}: ') for line in found.log_lines)
    assert bool(found.log_lines) == bool(preprocess or names or size)
    # Beside several models it may be of any, but for the usual name.
    assert read_published(str(tmp_path / 'other.onnx'), {}).preprocess == preprocess
    (tmp_path / f'{model}.onnx').touch()
    assert not read_published(str(tmp_path / 'other.onnx'), {}).log_lines


@pytest.mark.parametrize('content', ['', '[', '7', '{"size": [', '{"image_std": [0]}', '[1]'])
def test_other_contents_are_ignored(tmp_path, content):
    for _, name, *_ in FILES:
        (tmp_path / name).write_text(content)
    assert not read_published(str(tmp_path / 'model.onnx'), {}).preprocess.get('mean', (0,))[0]


@pytest.mark.parametrize(
    'numbers',
    [
        {'image_mean': [0.5, np.inf, 0.3]},
        {'image_std': [0.25, np.nan, 0.1]},
        {'image_std': [0.25, 0.0, 0.1]},
        {'rescale_factor': np.nan},
        {'rescale_factor': -1.0},
        {'crop_pct': 0.0},
        {'crop_pct': np.nan},
        {**CLIP, 'size': {'shortest_edge': -256}},
    ],
    ids=str,
)
def test_preprocessing_that_cannot_be_is_ignored(tmp_path, numbers):
    write(tmp_path, 'preprocessor_config.json', {**VIT, **numbers})
    assert read_published(str(tmp_path / 'model.onnx'), {}).preprocess == {}


def test_files_of_the_folder_above_onnx_are_those_of_the_hub(tmp_path):
    write(tmp_path, 'config.json', LABELS)
    (tmp_path / 'onnx').mkdir()
    assert read_published(str(tmp_path / 'onnx' / 'model.onnx'), {}).log_lines == (
        'config.json: 2 class names',
    )


def test_impossible_gray_levels_are_ignored_and_characters_are_between_none_and_a_space():
    metadata = {'model_info resize_type': 'fit_to_window', 'model_info pad_value': '256'}
    assert read_published('model.onnx', metadata).preprocess == {}
    assert class_names((), '', {'character': 'a\nb\n'}, 4) == ('blank', 'a', 'b', ' ')
    assert class_names((), '', {'character': '0\n90\n180'}, 3) == ('0', '90', '180')  # Classes.


def test_metadata_of_openvino_is_read():
    metadata = {
        'model_info labels': 'traffic_light car',
        'model_info mean_values': '123.7 116.3 103.5',
        'model_info scale_values': '58 57 56',
        'model_info reverse_input_channels': 'True',
        'model_info resize_type': 'fit_to_window_letterbox',
        'model_info pad_value': '114',
    }
    found = read_published('model.onnx', metadata)
    assert found.preprocess == {
        'mean': (123.7, 116.3, 103.5),
        'std': (58, 57, 56),
        'scale': 1.0,
        'channel_order': 'rgb',
        'resize': 'letterbox',
        'pad_value': 114,
    }
    assert class_names((), '', found.metadata, 2) == ('traffic light', 'car')
    assert found.log_lines[0].startswith('metadata of OpenVINO: channel_order, mean')
    embedded = {**metadata, 'model_info embedded_processing': 'True'}
    assert not read_published('model.onnx', embedded).preprocess


@pytest.mark.parametrize(
    ('key', 'text'),
    [
        ('names', "{1: 'dog', 0: 'cat'}"),
        ('names', '{"1": "dog", "0": "cat"}'),
        ('names', 'cat,dog'),
        ('class_names', '["cat", "dog"]'),
        ('classes', 'cat\ndog\n'),
        ('id2label', '{"0": "cat", "1": "dog"}'),
        ('CLASSES', "('cat', 'dog')"),
    ],
)
def test_names_in_all_dialects(key, text):
    assert class_names((), '', {key: text}, None) == ('cat', 'dog')


def test_a_pipeline_takes_and_tells_what_is_published_unless_options_say_otherwise(tmp_path):
    path = save_network(
        tmp_path / 'model.onnx',
        'pooled = GlobalAveragePool(images) flat = Flatten(pooled) '
        'out = Slice(flat, start, end, axis)',
        {'images': (1, 3, 'height', 'width')},
        {'out': (1, 2)},
        constants={name: np.int64([n]) for name, n in (('start', 0), ('end', 2), ('axis', 1))},
    )
    write(tmp_path, 'preprocessor_config.json', VIT)
    write(tmp_path, 'config.json', LABELS)
    options = ModelOptions(path, backend='onnxruntime', cpu_threads=1, std=(9.0,))
    with Pipeline.open(options) as pipeline:
        assert pipeline.class_names == ('cat', 'dog')
        preprocess = pipeline.preprocess
        lines = '\n'.join(pipeline.log_lines)
    assert preprocess.input_hw == (224, 192) and preprocess.resize == 'stretch'
    assert (preprocess.mean, preprocess.std) == ((0.5, 0.4, 0.3), (9.0, 9.0, 9.0))
    assert 'preprocessor_config.json: mean, resize, scale, std, input size 192x224' in lines
    assert 'config.json: 2 class names' in lines and '2 named classes' in lines
    assert with_published_size(None, Path(path)).input_size == (224, 192)
    for build in (BuildOptions(input_size=(64, 64)), BuildOptions(profiles=((),))):
        assert with_published_size(build, Path(path)) is build
    (tmp_path / 'preprocessor_config.json').unlink()
    assert with_published_size(None, Path(path)) is None


def test_numbers_have_the_ranges_of_the_options():
    ranges = {name: specifications(ModelOptions)[name].between for name in RANGES}
    assert ranges.pop('pad_value') == (-1, 255)  # -1 is the family's.
    assert {**ranges, 'pad_value': (0, 255)} == RANGES
