"""`trt-ros triton`: model repositories, read with Triton's published description."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('tritonclient.grpc')

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from support.bundles import two_sums
from trt_ros.cli import main


@pytest.fixture
def write(tmp_path, capsys):
    def run(model, *args, code=0):
        repository = tmp_path / 'repository'
        assert main(['triton', str(model), '--output', str(repository), *args]) == code
        return repository, capsys.readouterr().err

    return run


def config_of(folder: Path) -> ModelConfig:
    return text_format.Parse((folder / 'config.pbtxt').read_text(), ModelConfig())


def test_dynamic_batch_is_batched_by_the_server(write, color_detector):
    model = color_detector(batch='batch')
    repository, text = write(model, '--max-batch-size', '4')
    config = config_of(repository / 'colors')
    assert (config.name, config.backend, config.max_batch_size) == ('colors', 'onnxruntime', 4)
    assert config.HasField('dynamic_batching')
    assert [(each.name, list(each.dims)) for each in config.input] == [('images', [3, 64, 64])]
    assert (
        config.input[0].data_type
        == ModelConfig.DESCRIPTOR.file.enum_types_by_name['DataType']
        .values_by_name['TYPE_FP32']
        .number
    )
    assert [(each.name, list(each.dims)) for each in config.output] == [('output0', [7, 84])]
    assert config.default_model_filename == 'model.onnx'
    assert (repository / 'colors/1/model.onnx').read_bytes() == model.read_bytes()
    assert 'dynamic batching up to 4' in text
    assert 'model_path: grpc://HOST:8001/colors' in text


def test_fixed_batch_is_not_batched_and_metadata_of_any_text_become_parameters(
    write, color_detector
):
    given = {'names': '{0: "a\\b"}', 'note': 'line\nbell \x07 "ü"'}
    model = color_detector(dtype=np.float16, metadata=given)
    repository, text = write(model, '--name', 'front-2', '--model-version', '3')
    config = config_of(repository / 'front-2')
    assert (config.name, config.max_batch_size) == ('front-2', 0)
    assert not config.HasField('dynamic_batching')
    assert list(config.input[0].dims) == [1, 3, 64, 64]
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    assert parameters.items() >= given.items()
    assert 'no batching' in text
    for name in ('config.pbtxt', '3/model.onnx'):  # For the user of the server.
        assert (repository / 'front-2' / name).stat().st_mode & 0o044 == 0o044


def test_external_weights_are_copied(write, color_detector, tmp_path):
    import onnx

    model = onnx.load(color_detector())
    path = tmp_path / 'external.onnx'
    onnx.save(model, path, save_as_external_data=True, location='weights.data', size_threshold=0)
    repository, _ = write(path)
    assert (repository / 'external/1/weights.data').read_bytes() == (
        tmp_path / 'weights.data'
    ).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    'args, message',
    [
        (('--name', 'a/b'), "The model name 'a/b' cannot be the name of a folder"),
        (('--max-batch-size', '2'), 'is 2, but the model takes a fixed batch size'),
    ],
)
def test_option_that_does_not_fit_is_refused(write, color_detector, args, message):
    repository, text = write(color_detector(), *args, code=1)
    assert message in text
    assert not repository.exists()


@pytest.fixture
def engine(tmp_path):
    """Write the header of an engine, and its sidecar."""

    def make(magic, sidecar=None) -> Path:
        from trt_ros.engine.sidecar import sidecar_path

        path = tmp_path / 'net.engine'
        size = (64).to_bytes(8, 'little')
        path.write_bytes(magic + bytes(12) + size + bytes([10, 13, 3, 9]) + bytes(36))
        if sidecar is not None:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            sidecar_path(path).write_text(json.dumps({'plan_sha256': digest, **sidecar}))
        return path

    return make


SIDECAR = {
    'inputs': [{'name': 'images', 'shape': [-1, 3, 64, 64], 'dtype': 'float16'}],
    'outputs': [
        {'name': 'boxes', 'shape': [-1, 4], 'dtype': 'float32'},
        {'name': 'count', 'shape': [-1], 'dtype': 'int64'},
    ],
    'profiles': [
        [{'name': 'images', 'low': [1, 3, 64, 64], 'best': [4, 3, 64, 64], 'high': [4, 3, 64, 64]}]
    ],
    'metadata': {'names': "{0: 'a'}"},
}


@pytest.mark.slow
def test_a_bundle_is_refused(write, tmp_path):
    repository, text = write(two_sums(tmp_path), code=1)
    assert 'Triton is for one network, but' in text and not repository.exists()


def test_engine_is_served_with_the_batch_it_was_built_for_and_no_larger_one(write, engine):
    path = engine(b'ftrt', SIDECAR)
    repository, _ = write(path)
    config = config_of(repository / 'net')
    assert (config.backend, config.max_batch_size) == ('tensorrt', 4)
    assert (repository / 'net/1/model.plan').read_bytes() == path.read_bytes()
    assert config.parameters['names'].string_value == "{0: 'a'}"
    # Triton has no scalars.
    assert [list(each.dims) for each in config.output] == [[4], [1]]
    assert [each.HasField('reshape') for each in config.output] == [False, True]
    _, text = write(path, '--max-batch-size', '5', code=1)
    assert 'is 5, but the model takes up to 4' in text


@pytest.mark.parametrize(
    ('magic', 'sidecar', 'problem', 'reason'),
    [
        (b'vtrt', SIDECAR, 'Triton cannot load', 'tensorrt_rtx; Triton runs those of tensorrt.'),
        (b'ftrt', None, 'Inputs and outputs of', 'engine of `trt-ros build` with its sidecar'),
        (b'ftrt', {**SIDECAR, 'plan_sha256': '0'}, 'Inputs and outputs of', 'with its sidecar'),
    ],
    ids=['tensorrt_rtx', 'no sidecar', 'other sidecar'],
)
def test_other_engines_are_refused(write, engine, magic, sidecar, problem, reason):
    _, text = write(engine(magic, sidecar), code=1)
    assert problem in text and reason in text
