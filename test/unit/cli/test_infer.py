"""`trt-ros infer`: files in, annotated files and JSON out."""

from argparse import ArgumentParser
import json
from pathlib import Path
import re

import cv2
import numpy as np
import pytest

from support.frames import write_video
from trt_ros.cli import main
from trt_ros.cli._flags import add_option_flags
from trt_ros.cli.build import add_build_arguments
from trt_ros.media import read_video

RED = {'label': 'red', 'class_index': 0, 'score': 1.0, 'xyxy': [32.0, 32.0, 96.0, 96.0]}


@pytest.fixture
def picture(tmp_path):
    """Write a square picture of one color, 128 × 128."""

    def make(name='red.png', rgb=(255, 0, 0)) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(path), np.full((128, 128, 3), rgb[::-1], np.uint8))
        return path

    return make


@pytest.fixture
def infer(color_detector, tmp_path, capsys):
    """Run the verb; give its exit code, what results.json holds, and the captured output."""
    model, output = color_detector(), tmp_path / 'out'

    def run(*args, model=model):
        code = main(['infer', '--model', str(model), '--output', str(output), *map(str, args)])
        written = output / 'results.json'
        entries = json.loads(written.read_text()) if written.exists() else None
        return code, entries, capsys.readouterr()

    return run


def test_an_empty_folder_is_an_error(infer, tmp_path):
    empty = tmp_path / 'empty'
    empty.mkdir()
    code, entries, captured = infer(empty)
    assert (code, entries) == (1, None)
    assert 'has no images and no videos' in captured.err
    assert 'Remedy: Use files of .jpg' in captured.err


def test_a_recording_is_refused_with_the_verb_for_it(infer, picture, tmp_path):
    (tmp_path / 'drive').mkdir()
    for name in ('drive/metadata.yaml', 'drive.mcap'):
        path = tmp_path / name
        path.touch()
        path = path.parent if path.name == 'metadata.yaml' else path
        code, entries, captured = infer(picture(), path)
        assert (code, entries) == (1, None)
        assert f'Remedy: Run `trt-ros label {path} --output' in captured.err


def test_json_entry_contains_file_size_and_boxes_which_a_copy_of_the_picture_shows(
    infer, picture, tmp_path
):
    path = picture()
    before = path.read_bytes()
    code, entries, captured = infer(path)
    assert code == 0
    assert entries == [{'file': str(path), 'width': 128, 'height': 128, 'detections': [RED]}]
    for line in ('backend onnxruntime: ', 'decoder yolov8: ', 'files: 1, detections: 1'):
        assert line in captured.err
    assert captured.out == ''
    assert path.read_bytes() == before
    drawn = cv2.imread(str(tmp_path / 'out' / 'red.png'))
    assert drawn.shape == (128, 128, 3)
    assert drawn[64, 32].tolist() != [0, 0, 255]  # On the left edge of the box,
    assert drawn[64, 64].tolist() == [0, 0, 255]  # and in its middle.


def test_pictures_and_videos_of_too_many_pixels_are_refused(infer, picture, tmp_path):
    path, video = picture(), tmp_path / 'clip.avi'
    write_video(video, [np.zeros((128, 128, 3), np.uint8)])
    code, entries, captured = infer(path, video, '--max-image-pixels', 128 * 128 - 1)
    assert code == 1
    assert [entry['error'] for entry in entries] == [
        f'Cannot read {path} as a picture.',
        f'Cannot read {video} as a video.',
    ]
    assert captured.err.count('128 × 128 pixels, more than max_image_pixels = 16383') == 2
    code, entries, _ = infer(path, video, '--max-image-pixels', 128 * 128)
    assert code == 0 and len(entries) == 2


def test_json_prints_to_stdout_and_other_results_go_to_a_folder_unless_told_where(
    color_detector, picture, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    arguments = ['infer', '--model', str(color_detector()), str(picture())]
    assert main([*arguments, '--json']) == 0
    assert json.loads(capsys.readouterr().out)[0]['detections'] == [RED]
    assert not (tmp_path / 'results').exists()
    assert main(arguments) == 0
    found = sorted(path.name for path in (tmp_path / 'results').iterdir())
    assert found == ['red.png', 'results.json']


def test_bad_file_is_reported_and_others_continue(infer, picture, tmp_path):
    paths = [tmp_path / name for name in ('notes.txt', 'missing.png', 'empty.jpg', 'clip.mp4')]
    paths[0].write_text('hello')
    paths[2].touch()
    paths[3].write_bytes(b'no video')
    code, entries, captured = infer(*paths, picture())
    assert code == 1
    assert [entry.get('error') for entry in entries] == [
        *(f'Cannot read {path} as a picture.' for path in paths[:3]),
        f'Cannot read {paths[3]} as a video.',
        None,
    ]
    assert f'Cannot read {paths[0]} as a picture.' in captured.err
    assert 'No such file' in captured.err
    assert 'files: 1, detections: 1, failed: 4' in captured.err


def test_a_video_that_was_cut_off_has_an_error_behind_its_frames(infer, picture, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (10, 48, 64, 3), np.uint8)
    path = tmp_path / 'clip.mkv'
    write_video(path, noise)
    path.write_bytes(path.read_bytes()[:-5000])
    code, entries, captured = infer(path, picture())
    *frames, error, red = entries
    assert code == 1 and 'Cause: The file is shorter than its header says.' in captured.err
    assert [each['frame'] for each in frames] == list(range(len(frames))) and frames
    assert (
        error['error'] == f'The video {path} is damaged: {len(frames)} of its pictures were read.'
    )
    assert red['detections'] == [RED]
    assert len(list(read_video(tmp_path / 'out' / 'clip.mp4'))) == len(frames)


def test_folder_is_expanded_to_its_images_by_name(infer, picture, tmp_path):
    picture('in/b.png')
    picture('in/a.jpg')
    picture('in/d.ppm')
    picture('in/gray.png').rename(tmp_path / 'in/c.PGM')
    (tmp_path / 'in' / 'readme.txt').write_text('no image, and none is expected')
    code, entries, _ = infer(tmp_path / 'in')
    assert code == 0
    names = [Path(entry['file']).name for entry in entries]
    assert names == ['a.jpg', 'b.png', 'c.PGM', 'd.ppm']
    written = [cv2.imread(str(tmp_path / 'out' / name)) for name in ('b.png', 'c.png', 'd.ppm')]
    assert [each.shape for each in written] == 3 * [(128, 128, 3)]


def test_files_of_the_same_name_do_not_overwrite_each_other(infer, picture, tmp_path):
    code, _, _ = infer(picture('one/a.png'), picture('two/a.png', (0, 255, 0)))
    assert code == 0
    first, second = (cv2.imread(str(tmp_path / 'out' / name)) for name in ('a.png', 'a_2.png'))
    assert (first[64, 64].tolist(), second[64, 64].tolist()) == ([0, 0, 255], [0, 255, 0])


def test_a_model_that_is_not_there_leaves_no_empty_folder(infer, picture, tmp_path):
    code, entries, captured = infer(picture(), model=tmp_path / 'missing.onnx')
    assert (code, entries) == (1, None) and 'missing.onnx does not exist' in captured.err
    assert not (tmp_path / 'out').exists()


def test_an_output_folder_is_refused_that_is_a_file_or_has_the_originals(infer, picture, tmp_path):
    (tmp_path / 'out').write_text('in the way')
    code, _, captured = infer(picture())
    assert code == 1 and 'cannot be written' in captured.err
    (tmp_path / 'out').unlink()
    path = picture('out/red.png')
    before = path.read_bytes()
    code, _, captured = infer(path)
    assert code == 1
    assert 'Choose another folder with --output' in captured.err
    assert path.read_bytes() == before


def test_every_option_of_a_detector_is_a_flag(color_detector, picture, call):
    # Each changes what is found, or is refused by what stands behind it.
    def run(*flags):
        code, out, err = call('infer', '--model', color_detector(), '--json', picture(), *flags)
        return code, out and json.loads(out)[0]['detections'], err

    assert run('--labels', 'a, b,c')[1] == [{**RED, 'label': 'a'}]
    assert run('--channel-order', 'bgr')[1][0]['label'] == 'blue'
    assert run('--scale', '0.002')[1][0]['score'] == pytest.approx(0.51, abs=0.001)
    assert run('--mean', '0.5,0.5,0.5')[1][0]['score'] == 0.5
    assert run('--mean=0.1,-0.5,0', '--std', '1,0.5,1')[1][0]['label'] == 'green'
    assert run('--score-threshold', '1.0', '--mean', '0.5,0,0')[1] == []
    assert 'stretch' in run('--resize', 'stretch')[2]
    assert 'padded with 7' in run('--pad-value', '7')[2]
    assert run('--decoder', 'yolox')[0] == 1
    assert run('--input-size', '32,32')[0] == 1
    assert run('--labels-path', '/nowhere')[0] == 1
    assert run('--backend', 'onnxruntime')[2].startswith('backend onnxruntime: ')
    assert run('--engine-in-memory')[0] == 0


@pytest.mark.parametrize(
    'flags',
    [
        ['--score-threshold', '1.5'],
        ['--iou-threshold', 'x'],
        ['--max-detections', '0'],
        ['--mean', 'a,b'],
        ['--resize', 'crop'],
    ],
)
def test_invalid_values_are_usage_errors(flags, picture):
    with pytest.raises(SystemExit) as caught:
        main(['infer', '--model', 'm.onnx', str(picture()), *flags])
    assert caught.value.code == 2


def test_a_video_is_annotated_frame_by_frame(infer, tmp_path):
    path = tmp_path / 'clip.avi'
    colors = (0, 0, 255), (0, 255, 0), (255, 0, 0)
    write_video(path, [np.full((128, 128, 3), bgr, np.uint8) for bgr in colors])
    code, entries, _ = infer(path)
    assert code == 0
    assert [(entry['frame'], entry['detections'][0]['label']) for entry in entries] == [
        (0, 'red'),
        (1, 'green'),
        (2, 'blue'),
    ]
    annotated = cv2.VideoCapture(str(tmp_path / 'out' / 'clip.mp4'))
    assert annotated.get(cv2.CAP_PROP_FRAME_COUNT) == 3
    assert annotated.get(cv2.CAP_PROP_FPS) == 10
    annotated.release()


def test_lists_may_be_written_as_in_remedies_and_bindings_keep_their_commas():
    parser = ArgumentParser()
    add_option_flags(parser, ['inputs'])
    text = 'x=image:color,depth?mean=0,0,0,1&std=1,1,1,1, h=state:hn,q=tensor:joints#q, z=foo:z'
    assert parser.parse_args(['--inputs', text]).inputs == (
        'x=image:color,depth?mean=0,0,0,1&std=1,1,1,1',
        'h=state:hn',
        'q=tensor:joints#q',
        'z=foo:z',  # Its kind is refused later, by name.
    )
    parser = ArgumentParser()
    add_option_flags(parser, ['inputs', 'outputs', 'mean'])
    inputs = ('left=image:left/image_raw', 'q=tensor:joints')
    for text in (str(list(inputs)), json.dumps(inputs), f'[{", ".join(inputs)}]'):
        assert parser.parse_args(['--inputs', text]).inputs == inputs
    assert parser.parse_args(['--outputs', '[\'a\', "b"]']).outputs == ('a', 'b')
    assert parser.parse_args(['--mean', '[0.5, 0.25, 0]']).mean == (0.5, 0.25, 0)


@pytest.mark.parametrize(
    ('text', 'size'),
    [
        ('480x640', (480, 640)),
        ('480,640', (480, 640)),
        ('[480, 640]', (480, 640)),
        ('640', (640, 640)),
        ('', ()),
    ],
)
def test_an_image_size_may_be_written_in_several_ways(text, size):
    for add in (lambda each: add_option_flags(each, ['input_size']), add_build_arguments):
        parser = ArgumentParser()
        add(parser)
        assert parser.parse_args(['--input-size', text]).input_size == size


@pytest.mark.parametrize('text', ['1x2x3', 'large', '6.5'])
def test_another_image_size_is_refused(text, capsys):
    parser = ArgumentParser()
    add_option_flags(parser, ['input_size'])
    with pytest.raises(SystemExit):
        parser.parse_args(['--input-size', text])
    assert f"invalid image size value: '{text}'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_decoder_that_is_proposed_for_images_works(tmp_path, picture, call):
    from support.save_network import save_network

    shape = (1, 3, 8, 8)
    path = save_network(tmp_path / 'same.onnx', 'y = Identity(x)', {'x': shape}, {'y': shape})
    common = ['infer', '--model', path, '--backend', 'onnxruntime', '--json', picture()]
    code, _, err = call(*common)
    assert code == 1 and 'in `trt-ros infer`, `decoder` image, image_255' in err
    assert call(*common, '--decoder', 'image')[0] == 0


@pytest.mark.slow
def test_what_is_proposed_for_other_inputs_works_when_typed(tmp_path, picture, call):
    """Of an LSTM with a scale, whose states have one shape, on arrays of two runs."""

    from support.save_network import save_network

    path = save_network(
        tmp_path / 'lstm.onnx',
        'scaled = Mul(x, gain) hn = Add(scaled, h) cn = Sub(c, x) y = Add(hn, cn)',
        {'x': (1, 2), 'h': (1, 2), 'c': (1, 2), 'gain': ()},
        dict.fromkeys(('y', 'hn', 'cn'), (1, 2)),
    )
    common = ['infer', '--model', path, '--backend', 'onnxruntime', '--json']
    code, _, err = call(*common, picture())
    proposed = re.search(r'Set inputs to (\[.*?\]) or', err)[1]
    assert proposed == "['x=tensor:x', 'h=state:hn', 'c=state:cn', 'gain=tensor:gain']"
    assert code == 1
    common += ['--inputs', proposed]
    code, _, err = call(*common, picture())
    assert code == 1 and '.npz file of numpy.savez()' in err
    for number in (1, 2):
        inputs = {'x': np.ones((1, 2), np.float32), 'gain': np.float32(number)}
        np.savez(tmp_path / f'{number}.npz', **inputs)
    files = [str(tmp_path / f'{number}.npz') for number in (1, 2)]
    code, out, _ = call(*common, *files)
    found = json.loads(out)
    assert code == 0
    assert [each['file'] for each in found] == files
    assert [each['tensors']['hn'] for each in found] == [[[1, 1]], [[3, 3]]]
    assert [each['tensors']['cn'] for each in found] == [[[-1, -1]], [[-2, -2]]]
    output = tmp_path / 'out'
    assert call(*common[:-3], *common[-2:], '--output', output, *files)[0] == 0
    assert np.load(output / '2_tensors.npz')['y'].tolist() == [[1, 1]]
    np.savez(tmp_path / '1.npz', other=np.zeros(1))
    code, _, err = call(*common, *files)
    assert code == 1 and 'files: 1, failed: 1' in err
    (tmp_path / '1.npz').write_bytes(b'no archive')
    np.savez(tmp_path / '2.npz', x=np.float32([[np.nan, 1]]), gain=np.float32(1))
    code, out, err = call(*common, *files)
    bad, other = json.loads(out)
    assert bad == {'file': files[0], 'error': f'The file {files[0]} cannot be read.'}
    assert other['tensors']['hn'] == [[None, 1]] and 'NaN' not in out
    assert code == 1 and 'files: 1, failed: 1' in err
