"""Models of other formats: named by content, with the command that exports them."""

import json
import struct
import zipfile

import pytest

from trt_ros.cli import main
from trt_ros.engine.builder.model_file import check_model_file
from trt_ros.errors import ModelError

TF2ONNX = 'pip install tf2onnx, then: python -m tf2onnx.convert'


def archive(**members):
    """Give a function that writes a ZIP as torch.save does, without compression."""

    def write(path):
        with zipfile.ZipFile(path, 'w') as file:
            for name, data in members.items():
                file.writestr(name.replace('__', '/').replace('_DOT_', '.'), data)

    return write


def content(data):
    return lambda path: path.write_bytes(data)


PICKLE = b'\x80\x02c'
PLAN = struct.pack('<I', 0x74727466) + bytes(20) + bytes((10, 3, 0, 26)) + bytes(36)
METADATA = json.dumps({'names': {0: 'weed'}}).encode()
FORMATS = {
    'a checkpoint': (
        'own.pt',
        archive(own__data_DOT_pkl=PICKLE + b'__main__\nNet'),
        'a checkpoint of PyTorch, not ONNX',
        "torch.onnx.export(model, example_inputs, 'own.onnx', dynamo=True)",
    ),
    'one of Ultralytics': (
        'yolo 11.onnx',
        archive(best__data_DOT_pkl=PICKLE + b'ultralytics.nn.tasks\nDetectionModel'),
        'a checkpoint of PyTorch, not ONNX',
        "yolo export model='{path}' format=onnx",
    ),
    'an old checkpoint': ('old.pth', content(PICKLE + b'torch'), 'before PyTorch 1.6', 'dynamo'),
    'TorchScript': (
        'script.pt',
        archive(s__data_DOT_pkl=PICKLE, s__code__net_DOT_py=b'', s__constants_DOT_pkl=b''),
        'a TorchScript module, not ONNX',
        "torch.onnx.export(torch.jit.load('{path}'), example_inputs, 'script.onnx'",
    ),
    'torch.export': (
        'program.pt2',
        archive(p__models__model_DOT_json=b'{}'),
        'a program of torch.export, not ONNX',
        "torch.export.load('{path}')",
    ),
    'Keras': (
        'net.keras',
        archive(model_DOT_weights_DOT_h5=b'', config_DOT_json=b'{}'),
        'a Keras model, not ONNX',
        f'{TF2ONNX} --keras {{path}} --output net.onnx',
    ),
    'Keras in HDF5': ('net.h5', content(b'\x89HDF\r\n\x1a\n'), 'in HDF5', '--keras'),
    'another archive': ('net.onnx.zip', archive(net_DOT_onnx=b'x'), 'a ZIP archive', 'Unpack it'),
    'a damaged archive': ('net.pt', content(b'PK\x03\x04 cut'), 'a ZIP archive', 'Unpack it'),
    'TensorFlow Lite': (
        'net.tflite',
        content(b'\x1c\0\0\0TFL3' + bytes(20)),
        'a TensorFlow Lite model, not ONNX',
        f'{TF2ONNX} --tflite {{path}} --output net.onnx',
    ),
    'a frozen graph': (
        'frozen.pb',
        content(b'\n\x17\n\x06images\x12\x0bPlaceholder\x22\x00'),
        'a frozen TensorFlow graph, not ONNX',
        f'{TF2ONNX} --graphdef {{path}} --output frozen.onnx --inputs INPUT:0 --outputs OUTPUT:0',
    ),
    'a plan': ('net.engine', content(PLAN), 'an engine of tensorrt 10.3.0.26, not', 'built from'),
    'a plan of Ultralytics': (
        'best.engine',
        content(struct.pack('<I', len(METADATA)) + METADATA + PLAN),
        'an engine with the metadata of Ultralytics in front, not ONNX',
        'yolo export model=MODEL.pt format=onnx',
    ),
    'safetensors': (
        'model.safetensors',
        content(struct.pack('<Q', 2000) + b'{"weight":{"dtype":"F32"'),
        'a file of weights without their network (safetensors), not ONNX',
        'torch.onnx.export',
    ),
    'OpenVINO': ('net.xml', content(b'<?xml version="1.0"?><net>'), 'OpenVINO', 'original model'),
}


@pytest.mark.parametrize(('name', 'write', 'what', 'remedy'), FORMATS.values(), ids=FORMATS)
def test_format_is_told_by_content_and_export_is_named(tmp_path, name, write, what, remedy):
    path = tmp_path / name
    write(path)
    with pytest.raises(ModelError) as caught:
        check_model_file(path)
    assert what in caught.value.problem
    assert remedy.format(path=path) in caught.value.remedy


@pytest.mark.parametrize('name', ['net', 'net/saved_model.pb'])
def test_saved_model_is_told_by_its_folder_and_by_its_file(tmp_path, name):
    (tmp_path / 'net').mkdir()
    (tmp_path / 'net' / 'saved_model.pb').write_bytes(b'\x08\x01\x12\x10')
    with pytest.raises(ModelError, match='net is a TensorFlow SavedModel, not ONNX') as caught:
        check_model_file(tmp_path / name)
    assert caught.value.remedy == f'{TF2ONNX} --saved-model {tmp_path}/net --output net.onnx'


@pytest.mark.parametrize('verb', ['inspect', 'build', 'bench', 'verify'])
def test_verbs_name_the_export(tmp_path, capsys, verb):
    path = tmp_path / 'best.pt'
    archive(best__data_DOT_pkl=PICKLE + b'ultralytics')(path)
    assert main([verb, str(path)]) == 1
    said = capsys.readouterr().err
    # `verify` needs a GPU, `build` TensorRT.
    if 'Nothing to compare' not in said and 'TensorRT is not installed' not in said:
        assert f'{path} is a checkpoint of PyTorch, not ONNX.' in said
        assert f'Remedy: Export it: yolo export model={path} format=onnx' in said


@pytest.mark.parametrize(
    ('name', 'write', 'said'),
    [
        ('own net.onnx', FORMATS['a checkpoint'][1], "'own net_exported.onnx'"),
        ('own net.tflite', content(b'\x1c\0\0\0TFL3'), "--output 'own net.onnx'"),
    ],
)
def test_command_quotes_the_output_and_does_not_overwrite_the_file(tmp_path, name, write, said):
    write(tmp_path / name)
    with pytest.raises(ModelError) as raised:
        check_model_file(tmp_path / name)
    assert said in raised.value.remedy
