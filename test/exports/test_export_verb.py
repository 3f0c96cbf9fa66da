"""`trt-ros export` with the real libraries, without weights of others."""

import pytest

from trt_ros.cli import main
from trt_ros.runtime.pipeline import Pipeline


def decoder_of(path):
    with Pipeline.open(path, backend='onnxruntime') as pipeline:
        return pipeline.decoder.name, len(pipeline.class_names)


def test_a_checkpoint_of_ultralytics_is_exported(ultralytics, tmp_path, capfd):
    ultralytics.YOLO('yolo11n.yaml').save('mine.pt')
    assert main(['export', 'mine.pt', '--input-size', '192x256']) == 0
    assert capfd.readouterr().out == 'mine.onnx\n'
    assert decoder_of(tmp_path / 'mine.onnx') == ('yolov8', 80)
    (tmp_path / 'mine.pt').write_bytes(b'\x80\x02cultralytics')
    assert main(['export', 'mine.pt']) == 1
    assert 'ultralytics cannot export mine.pt' in capfd.readouterr().err


def test_a_classifier_of_torchvision_is_exported_with_its_names(torch, tmp_path, monkeypatch):
    torchvision = pytest.importorskip('torchvision', reason='it exports: pip install it')
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    url = torchvision.models.ResNet18_Weights.DEFAULT.url
    (tmp_path / 'hub/checkpoints').mkdir(parents=True)
    weights = torchvision.models.resnet18().state_dict()
    torch.save(weights, tmp_path / 'hub/checkpoints' / url.rpartition('/')[2])
    output = tmp_path / 'net.onnx'
    assert main(['export', 'torchvision:resnet18', '--output', str(output)]) == 0
    assert decoder_of(output) == ('classifier', 1000)


def test_a_checkpoint_of_transformers_is_exported_with_its_files(transformers, tmp_path):
    config = transformers.SegformerConfig(
        num_labels=7,
        hidden_sizes=[8, 8, 8, 8],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 1, 1],
        decoder_hidden_size=8,
        image_size=64,
        id2label={index: f'class {index}' for index in range(7)},
    )
    folder = tmp_path / 'checkpoint'
    transformers.SegformerForSemanticSegmentation(config).save_pretrained(folder)
    transformers.SegformerImageProcessor(size={'height': 64, 'width': 64}).save_pretrained(folder)
    (tmp_path / 'out').mkdir()
    output = tmp_path / 'out/model.onnx'
    assert main(['export', str(folder), '--output', str(output)]) == 0
    assert (tmp_path / 'out/preprocessor_config.json').is_file()
    assert decoder_of(output) == ('semantic', 7)
