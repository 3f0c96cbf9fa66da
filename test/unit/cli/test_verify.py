"""`trt-ros verify`: its picture, and its verdict with ONNX Runtime in place of the engine."""

import json
import re

import cv2
import numpy as np
import pytest

from support.frames import write_video
from support.task_networks import save_task_networks
from trt_ros.cli import main
from trt_ros.runtime.agreement import Agreement
from trt_ros.runtime.backends import choose_backend

RED_BGR = [0, 0, 255]


@pytest.fixture
def verify(color_detector, tmp_path, call):
    """Run the verb on a red picture, wider than high; give its code, drawing and words."""
    if choose_backend('auto')[0].name != 'onnxruntime':
        pytest.skip('here is a GPU: test/gpu has these')
    photo = tmp_path / 'red.png'
    cv2.imwrite(str(photo), np.full((240, 480, 3), RED_BGR, np.uint8))

    def run(*args, photos=(photo,), model=None, drawn=tmp_path / 'drawn.png'):
        model = model or color_detector()
        code, _, said = call('verify', model, *photos, *args, '--picture', drawn)
        return code, cv2.imread(str(drawn)) if drawn.is_file() else None, said

    return run


def test_verify_without_pictures_is_an_error(verify):
    code, drawn, said = verify(photos=())
    assert (code, drawn) == (1, None)
    assert '--picture has no pictures to draw.\nRemedy: Add picture files' in said


def test_montage_shows_input_beside_annotated_photograph(verify):
    code, drawn, said = verify()
    assert code == 0
    assert 'decoder yolov8: ' in said and 'nothing to compare: backend onnxruntime' in said
    assert 'differs from the training' not in said
    pixels = drawn[-480:]
    assert pixels[240, 240].tolist() == RED_BGR  # The input: 64 × 64, half of it padding.
    assert pixels[20, 240].tolist() == pixels[460, 240].tolist() == [114, 114, 114]
    photo = pixels[:, 480:1440]
    assert photo[20, 20].tolist() == photo[240, 480].tolist() == RED_BGR
    edge = photo[240].reshape(-1, 3)
    assert (edge != RED_BGR).any(axis=1).sum() >= 2  # The box's left and right.
    assert drawn[:-480].max() == 255 and drawn[:-480].min() < 128  # Captions.


@pytest.mark.parametrize(
    ('option', 'values'),
    [
        (('--channel-order', 'bgr'), 'channel_order is bgr, not rgb'),
        (('--scale', '1.0'), 'scale is 1.0, not 0.00392'),
        (('--mean', '1,-1,-1'), 'mean is (1.0, -1.0, -1.0), not (0.0, 0.0, 0.0)'),
        (('--std', '0.5,0.5,0.5'), 'std is (0.5, 0.5, 0.5), not (1.0, 1.0, 1.0)'),
    ],
)
def test_the_preprocessing_in_force_is_undone_and_its_differences_are_named(
    verify, option, values
):
    """A network of one's own normalization is right, however its family is trained."""
    _, drawn, said = verify(*option)
    assert drawn[-240, 240].tolist() == RED_BGR
    assert f'differs from the training of yolov8: {values}' in said


def test_options_for_a_family_of_unknown_training_are_no_deviation(verify, tmp_path):
    model = save_task_networks(tmp_path)['semantic']
    _, _, said = verify('--decoder', 'semantic', '--mean', '0.5,0.5,0.5', model=model)
    assert 'set for this semantic: mean is (0.5, 0.5, 0.5), by default (0.485, 0.456' in said
    assert 'differs' not in said
    (tmp_path / 'preprocessor_config.json').write_text('{"image_mean": [0.1, 0.2, 0.3]}')
    model = save_task_networks(tmp_path)['semantic'].replace('semantic.', 'model.')
    (tmp_path / 'semantic.onnx').rename(model)
    _, _, said = verify('--decoder', 'semantic', '--mean', '0.5,0.5,0.5', model=model)
    assert 'differs from the training of semantic: mean is (0.5, 0.5, 0.5), not (0.1, 0.2' in said


def test_without_tensorrt_the_reading_is_told_and_the_command_for_a_picture(
    verify, color_detector, call
):
    code, _, said = call('verify', color_detector())
    assert code == 1
    assert 'decoder yolov8: ' in said and 'Nothing to compare: ONNX Runtime is the only' in said
    named = re.search(r'`trt-ros (verify \S+) photo.jpg (--picture \S+)`', said)
    assert named and verify(model=named[1].split()[1])[0] == 0


def test_a_network_of_uint8_is_shown_as_it_is(verify, color_detector):
    model = color_detector(dtype=np.uint8, scale=1 / 255)
    _, drawn, _ = verify(model=model)
    assert drawn[-240, 240].tolist() == RED_BGR


@pytest.mark.parametrize(
    ('name', 'cause'),
    [
        ('no folder/drawn.png', 'does not exist'),
        ('x.txt', "Unsupported picture format '.txt'"),
        ('folder.png', 'It is a folder.'),
    ],
)
def test_a_picture_that_cannot_be_written_is_an_error(name, cause, verify, tmp_path):
    (tmp_path / 'folder.png').mkdir()
    code, _, said = verify(drawn=tmp_path / name)
    assert code == 1
    assert f'{tmp_path / name}' in said and cause in said


@pytest.fixture
def compare(tmp_path, engine_is, call):
    """
    Compare two networks of x, each a formula; ONNX Runtime runs `ours` in place of the engine.

    :returns: the exit code and what was printed.
    """
    from support.save_network import save_text

    def network(name, formula, out):
        graph = f'(float[1, 4] x) => (float[{out}] y) {{ {formula} }}'
        return save_text(tmp_path / f'{name}.onnx', graph)

    def run(ours, reference='y = Identity(x)', *args, out='1, 4'):
        engine_is(network('engine', ours, out))
        return call('verify', network('reference', reference, out), *args)[:2]

    return run


NAN = 'zero = Sub(x, x) y = Div(zero, zero)'
INF = 'zero = Sub(x, x) y = Div(x, zero)'


@pytest.mark.parametrize(
    ('ours', 'out', 'code', 'said'),
    [
        ('y = Identity(x)', '1, 4', 0, '\nagrees\n'),
        ('y = Concat<axis = 1>(x, x)', '1, n', 1, 'y differs: shape (1, 8) here, (1, 4) in ONNX'),
        ('y = Neg(x)', '1, 4', 1, 'y differs: cosine -1.000000 is below 0.99'),
    ],
)
def test_equal_outputs_agree_and_others_do_not(compare, ours, out, code, said):
    found, printed = compare(ours, out=out)
    assert found == code and said in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ('ours', 'reference', 'here', 'there'),
    [
        (NAN, 'y = Identity(x)', 12, 0),
        (INF, 'y = Identity(x)', 12, 0),
        ('y = Identity(x)', NAN, 0, 12),
        (INF, INF, 12, 12),
    ],
)
def test_non_finite_values_never_agree(compare, ours, reference, here, there):
    code, said = compare(ours, reference)
    assert code == 1 and said.endswith('differs: y, layers\n')
    assert 'first layer that differs: ' in said
    assert f'y differs: {here} values are NaN or Inf here, {there} in ONNX Runtime' in said
    assert ('--precision bf16' in said) == (there == 0)


def test_nan_is_counted_in_json_that_every_parser_reads(compare):
    code, said = compare(NAN, 'y = Identity(x)', '--json', '--random', '2')
    found = json.loads(said, parse_constant=lambda name: pytest.fail(f'{name} is no JSON'))
    assert code == 1
    assert found['failed'] == ['y', 'layers'] and found['outputs']['y']['non_finite_here'] == 8


@pytest.mark.parametrize(
    'values', [np.zeros((0, 3)), np.zeros(3), np.array([1e200, 1e199]), np.array([True, False])]
)
def test_equal_constant_values_agree(values):
    found = Agreement.of(values, values)
    assert found.problem(0.99) == '' and found.mean_error == 0


@pytest.mark.parametrize(
    'threshold',
    [
        ('--min-cosine', 'nan'),
        ('--min-matched', 'nan'),
        ('--score-threshold', 'nan'),
        ('--random', '0'),
    ],
)
def test_rejects_threshold_that_always_passes(threshold, capsys):
    with pytest.raises(SystemExit, match='2'):
        main(['verify', 'model.onnx', *threshold])
    assert f'argument {threshold[0]}: ' in capsys.readouterr().err


def test_images_that_cannot_be_read_are_left_out(tmp_path, engine_is, call):
    from support.recordings import raw_image, write_recording
    from support.save_network import save_text

    bad = tmp_path / 'bad.png'
    graph = '(float[1, 3, 16, 16] x) => (float[1, 3, 16, 16] y) { y = Identity(x) }'
    model = save_text(tmp_path / 'copy.onnx', graph)
    engine_is(model)
    red = np.full((24, 32, 3), RED_BGR, np.uint8)
    messages = [('/camera', 0, raw_image(0, red, 'none8')), ('/camera', 1, raw_image(1, red))]
    drive = write_recording(tmp_path / 'drive', messages)
    bad.write_bytes(b'not a picture')
    code, out, err = call('verify', model, bad, drive, '--json')
    (taken,) = json.loads(out)['inputs']
    assert (code, taken['name']) == (0, f'{drive}, /camera, 0.100 s')
    assert err.count(f'left out: Cannot read {bad}') == 1
    assert err.count("left out: Image encoding 'none8'") == 1
    photo = tmp_path / 'red.png'
    cv2.imwrite(str(photo), red)
    code, _, err = call('verify', model, photo, '--max-image-pixels', 767)
    assert code == 1 and '32 × 24 pixels, more than max_image_pixels = 767' in err
    code, _, err = call('verify', model, bad)
    assert code == 1 and 'The files have no images.' in err


def test_frames_of_recordings_videos_and_folders_are_counted_and_read(tmp_path):
    from support.recordings import compressed_image, raw_image, write_recording
    from trt_ros.cli._samples import count_frames, fingerprint, frames

    red = np.full((24, 32, 3), RED_BGR, np.uint8)
    drive = write_recording(
        tmp_path / 'drive',
        [('/front', 0, raw_image(0, red)), ('/back', 1, compressed_image(1, red))],
    )
    folder = tmp_path / 'photos'
    folder.mkdir()
    cv2.imwrite(str(folder / 'red.png'), red)
    write_video(folder / 'z.avi', [red] * 3)
    sources = [drive, folder]
    limit = 32 * 24
    found = dict(frames(sources, limit))
    assert list(found) == [
        f'{drive}, /front, 0.000 s',
        f'{drive}, /back, 0.100 s',
        f'{folder}/red.png',
        *(f'{folder}/z.avi, frame {index}' for index in range(3)),
    ]
    assert all((frame.width, frame.height) == (32, 24) for frame in found.values())
    assert count_frames(sources, limit) == len(found)
    bad = []
    assert list(dict(frames(sources, limit - 1, bad.append))) == [f'{drive}, /front, 0.000 s']
    assert [error.kind for error in bad] == 3 * ['too many pixels']
    before = fingerprint(sources)
    cv2.imwrite(str(folder / 'red.png'), red[:8])
    assert fingerprint(sources) != before


def test_two_photographs_make_two_rows_and_have_no_padding_where_stretched(verify, tmp_path):
    other = tmp_path / 'blue.png'
    cv2.imwrite(str(other), np.full((240, 480, 3), [255, 0, 0], np.uint8))
    _, drawn, _ = verify('--resize', 'stretch', photos=(tmp_path / 'red.png', other))
    assert drawn[-470, 240].tolist() == [255, 0, 0]
    assert drawn[drawn.shape[0] // 2 - 240, 240].tolist() == RED_BGR
