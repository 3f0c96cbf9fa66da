"""Verbs of the command line on bundles."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from support.bundles import denoiser, two_sums, write_cascade
from support.save_network import save_network
from support.tiled import with_batch
from trt_ros.cli import main
from trt_ros.media import write_picture
from trt_ros.model.leapp import read_bundle

pytestmark = pytest.mark.slow


def test_inspect_names_and_draws_networks_and_connections(tmp_path, capsys):
    picture = tmp_path / 'bundle.svg'
    assert main(['inspect', str(two_sums(tmp_path)), '--picture', str(picture)]) == 0
    printed = capsys.readouterr().out
    for line in (
        'bundle of 2 networks',
        'ai2 (1) float32 <- A/ao2 of the previous run',
        'ao1 (1) float32 -> B/bi1',
        'bo1 (1) float32 -> outside',
        'bo3 (1) float32 -> A/ai3 in the next run',
        'outputs: bo1',
    ):
        assert line in printed
    root = ElementTree.parse(picture).getroot()
    count = {name: len(root.findall(f'{{*}}{name}')) for name in ('rect', 'path')}
    assert count == {'rect': 2, 'path': 4}
    assert {'A', 'B', 'outside'} <= {each.text for each in root.findall('{*}text')}
    png = tmp_path / 'bundle.png'
    assert main(['inspect', str(tmp_path / 'bundle.yaml'), '--picture', str(png)]) == 1
    said = capsys.readouterr().err
    assert f'The picture {png} would be an SVG file.\nRemedy: Name it .svg.' in said
    assert not png.exists()


def test_inspect_refuses_a_bundle_of_other_files(tmp_path, capsys):
    path = two_sums(tmp_path)
    path.write_text(path.read_text().replace('float32', 'float64'))
    assert main(['inspect', str(path)]) == 1
    said = capsys.readouterr().err
    assert (
        'The network A of the bundle is another one than' in said and 'float64. The file' in said
    )


def test_verbs_of_one_network_refuse_a_bundle(tmp_path, capsys):
    path, picture = str(write_cascade(tmp_path)), str(tmp_path / 'a.png')
    write_picture(Path(picture), np.zeros((8, 8, 3), np.uint8))
    output = str(tmp_path / 'out.onnx')
    assert main(['quantize', path, picture, '--to', 'int8', '--output', output]) == 1
    assert 'quantize is for one network, but' in capsys.readouterr().err
    assert main(['fit', path, picture, '--output', str(tmp_path / 'fit')]) == 1
    assert 'cascade.yaml has regions' in capsys.readouterr().err


def test_inspect_as_json_has_loops_and_bindings(tmp_path, capsys):
    path = denoiser(tmp_path)
    assert main(['inspect', '--json', str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found['loops'] == [{'models': ['step'], 'steps': 5}]
    assert found['networks']['step']['inputs']['t']['from'] == 'a value per step'
    assert found['bindings'] == list(read_bundle(path).bindings)


def test_a_proposed_bundle_connects_what_has_one_name(tmp_path, capsys):
    denoiser(tmp_path)
    assert main(['inspect', str(tmp_path)]) == 0
    (tmp_path / 'bundle.yaml').write_text(capsys.readouterr().out)
    bundle = read_bundle(tmp_path / 'bundle.yaml')
    assert list(bundle.networks) == ['encoder', 'step']
    assert bundle.flow == {'step/context': 'encoder/context'}
    assert bundle.feedback == {'step/x': 'step/x_next'}
    assert list(bundle.input_ports) == ['encoder/seen', 'step/x', 'step/t', 'step/dt']


def test_dynamic_sizes_are_told_and_a_folder_without_networks_is_refused(tmp_path, capsys):
    assert main(['inspect', str(tmp_path)]) == 1
    assert 'has no ONNX files' in capsys.readouterr().err
    save_network(tmp_path / 'a.onnx', 'y = Neg(x)', {'x': ('n', 3)}, {'y': ('n', 3)})
    assert main(['inspect', str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith('# Replace each -1, which is a dynamic size, ')


def test_build_builds_each_network(tmp_path, capsys):
    pytest.importorskip('tensorrt_rtx')
    path = str(two_sums(tmp_path))
    assert main(['build', path, '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each['onnx']['path'][-6:] for each in found.values()] == ['A.onnx', 'B.onnx']
    assert main(['build', path]) == 0
    assert capsys.readouterr().out.split() == [each['engine'] for each in found.values()]
    log = tmp_path / 'build.log'
    assert main(['build', path, '--force', '--log', str(log)]) == 0
    assert all(f'{name}.onnx' in log.read_text() for name in 'AB')
    capsys.readouterr()
    for flags in (['--profile', 'ai1=1:1:1'], ['--batch', '2'], ['--cut-nms']):
        assert main(['build', path, *flags]) == 1
        assert 'is given for a bundle.\nCause: The bundle declares' in capsys.readouterr().err


def test_bench_runs_tiles_and_a_bundle_but_not_its_layers(tmp_path, capsys):
    path = str(two_sums(tmp_path))
    common = ['bench', path, '--backend', 'onnxruntime', '--frames', '3', '--warm-up', '1']
    assert main(common) == 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in ('bundle', '  network A ', '  network B '))
    assert main([*common, '--layers']) == 1
    assert '--layers is for one network' in capsys.readouterr().err
    path = str(with_batch(tmp_path / 'shapes.onnx', 'n'))
    common = ['--frames', '2', '--warm-up', '1', '--image-size', '640x480']
    assert main(['bench', path, '--backend', 'onnxruntime', '--tiles', '2x1', *common]) == 0
    assert '2x1 tiles with overlap 0.2' in capsys.readouterr().out


def test_a_bundle_of_dynamic_networks_is_built_for_its_shapes(tmp_path, capsys):
    pytest.importorskip('tensorrt_rtx')
    path = two_sums(tmp_path)
    import onnx

    for name in 'AB':
        model = onnx.load(tmp_path / f'{name}.onnx')
        for each in (*model.graph.input, *model.graph.output):
            each.type.tensor_type.shape.dim[0].dim_param = 'n'
        onnx.save(model, tmp_path / f'{name}.onnx')
    document = yaml.safe_load(path.read_text())
    for model in document['models'].values():
        for port in (*model['inputs'], *model['outputs']):
            port['shape'] = [3]
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    assert main(['build', str(path), '--json']) == 0
    [profile] = json.loads(capsys.readouterr().out)['A']['profiles']
    assert {each['name']: each['high'] for each in profile} == {'ai1': [3], 'ai2': [3], 'ai3': [3]}


def test_verbs_know_a_detector_with_a_classifier(tmp_path, capsys):
    path = str(write_cascade(tmp_path, max_regions=4))
    picture = tmp_path / 'cascade.svg'
    assert main(['inspect', path, '--picture', str(picture)]) == 0
    printed = capsys.readouterr().out
    for line in (
        'images (1, 3, 320, 320) float32 <- image\n',
        'images (?, 3, 32, 24) float32 <- regions of detector',
        'classes (?, 3) float32 -> outside',
        'regions max_regions: 4',
    ):
        assert line in printed
    assert 'regions of detector' in picture.read_text()
    common = ['--frames', '2', '--warm-up', '1', '--image-size', '64x64']
    assert main(['bench', path, '--backend', 'onnxruntime', *common]) == 0
    printed = capsys.readouterr().out
    assert printed.count('image in hand to result') == 2
    assert 'in batches of 4' in printed


def test_a_detector_with_a_classifier_is_built_as_it_runs(tmp_path, capsys):
    pytest.importorskip('tensorrt_rtx')
    path = str(write_cascade(tmp_path, max_regions=4))
    assert main(['build', path, '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each['onnx']['path'][-10:] for each in found.values()] == ['ector.onnx', 'color.onnx']
    [[given]] = found['color']['profiles']
    assert (given['low'][0], given['high'][0]) == (1, 4)
