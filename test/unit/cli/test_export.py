"""Verb `export`: which library exports a source. test/exports/test_export_verb.py exports."""

import json
import sys
from types import SimpleNamespace
import zipfile

import pytest

from trt_ros.cli.export import library_of
from trt_ros.errors import ModelError


@pytest.fixture
def config(tmp_path):
    """Write the configuration of a checkpoint, and return its folder."""

    def write(**values):
        (tmp_path / 'config.json').write_text(json.dumps(values))
        return str(tmp_path)

    return write


@pytest.fixture
def checkpoint(tmp_path):
    """Write what begins like a checkpoint of PyTorch."""

    def write(name, content):
        with zipfile.ZipFile(tmp_path / name, 'w') as archive:
            archive.writestr('net/data.pkl', content)
        return str(tmp_path / name)

    return write


def test_a_source_names_its_library(config, checkpoint):
    assert library_of('torchvision:resnet18') == ('torchvision', 'resnet18')
    assert library_of('transformers:facebook/detr-resnet-50')[1] == 'facebook/detr-resnet-50'
    assert library_of('yolo11n.pt') == ('ultralytics', 'yolo11n.pt')
    assert library_of(checkpoint('mine.pt', b'cultralytics.nn.tasks'))[0] == 'ultralytics'
    assert library_of(config(architectures=['SegformerModel']))[0] == 'transformers'
    assert library_of(config(type='act'))[0] == 'lerobot'


def test_other_files_are_refused_with_the_command_that_exports_them(checkpoint, tmp_path):
    with pytest.raises(ModelError, match=r'checkpoint of PyTorch(.|\n)*torch.onnx.export'):
        library_of(checkpoint('mine.pt', b'ctorch'))
    with pytest.raises(ModelError, match='does not exist'):
        library_of('mine.pth')
    (tmp_path / 'net.onnx').write_bytes(b'\x08\x08')
    with pytest.raises(ModelError, match='no network of a library'):
        library_of(str(tmp_path / 'net.onnx'))


def test_the_flags_reach_the_exporter_of_the_library(call, config, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command[2:])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr('subprocess.run', run)
    monkeypatch.setattr('trt_ros.cli.export.find_spec', str)
    policy = config(type='act')
    assert call('export', policy, '--output', 'arm', '--', '--fps', 30)[0] == 0
    assert commands == [['trt_ros.exporting.lerobot', policy, '--fps', '30', '--output', 'arm']]
    assert call('export', 'rfdetr:RFDETRNano', '--input-size', 384)[:2] == (0, 'RFDETRNano.onnx\n')
    assert commands[1][1:] == ['rfdetr', 'RFDETRNano', 'RFDETRNano.onnx', '384', '384']
    for argv, problem in (
        ((policy, '--input-size', 8), '--input-size has no effect without another library than L'),
        (('yolo11n.pt', '--', '--fps', 30), '-- OPTIONS has no effect without LeRobot.'),
        (('rfdetr:RFDETRNano', '--input-size', '384x640'), '--input-size is 384x640, but the net'),
    ):
        code, _, err = call('export', *argv)
        assert code == 1 and err.startswith(f'trt-ros export: {problem}')
    assert len(commands) == 2


def test_the_command_is_printed_where_the_library_is_missing(call, monkeypatch):
    monkeypatch.setitem(sys.modules, 'ultralytics', None)
    code, _, err = call('export', 'my yolo.pt')
    assert code == 1
    assert "yolo export model='my yolo.pt' format=onnx" in err
