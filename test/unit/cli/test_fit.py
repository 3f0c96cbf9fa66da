"""`trt-ros fit`: its page, its parameter files and its words."""

import json

import cv2
import pytest
import yaml

pytestmark = pytest.mark.slow


@pytest.fixture
def fit(tmp_path, call):
    """Run the verb on pictures of shapes and a network of BGR from 0 to 255."""
    from demo.scene import held_out

    from support.shape_networks import save_shapes

    model = save_shapes(tmp_path / 'shapes.onnx', scale=1.0, order='bgr')
    paths = [tmp_path / f'{name}.png' for name in ('a', 'b')]
    for path, (pixels, *_) in zip(paths, held_out(len(paths))):
        cv2.imwrite(str(path), pixels)
    folder = tmp_path / 'out'

    def run(*args, model=model, pictures=paths):
        return (*call('fit', model, *pictures, '--output', folder, *args), folder)

    return run


def test_a_page_and_the_parameters_of_each_reading_are_written(fit, tmp_path):
    from trt_ros import Pipeline

    code, out, err, folder = fit('--resize', 'letterbox', '--mean', '0', '--std', '1')
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith('1. (tied) yolov8, 320x320, letterbox, ')
    assert 'scale 1: score ' in lines[0] and '% confirmed' in lines[0]
    assert 'are tied: by the results alone, these pictures do not tell apart channel_order' in err
    page = (folder / 'fit.html').read_text()
    assert lines[0] in page and page.count('data:image/jpeg') == len(lines)
    assert cv2.imread(str(folder / 'fit.png')).shape[0] > 240 * len(lines)
    text = (folder / '1.yaml').read_text()
    assert text.startswith(f'# {lines[0]}\n# ros2 run trt_ros detector ')
    parameters = yaml.safe_load(text)['/**']['ros__parameters']
    assert parameters['model_path'] == str(tmp_path / 'shapes.onnx')
    with Pipeline.open(**{'model': parameters.pop('model_path'), **parameters}) as pipeline:
        assert len(pipeline(tmp_path / 'a.png')) > 0


def test_an_error_leaves_no_empty_folder(fit, tmp_path):
    nested, own = tmp_path / 'new' / 'out', tmp_path / 'own'
    own.mkdir()
    for folder in (nested, own):
        code, _, err, _ = fit('--output', folder, pictures=[tmp_path / 'missing.png'])
        assert code == 1 and 'Cannot read' in err
    assert not nested.parent.exists() and own.is_dir()


def test_annotations_and_json(fit, tmp_path):
    from demo.scene import CLASSES, held_out

    truth = {
        'images': [{'id': 1, 'file_name': 'a.png'}],
        'categories': [{'id': index, 'name': name} for index, name in enumerate(CLASSES)],
        'annotations': [],
    }
    _, xyxy, labels = next(held_out(1))
    for (x1, y1, x2, y2), label in zip(xyxy.tolist(), labels.tolist()):
        box = {'image_id': 1, 'category_id': label, 'bbox': [x1, y1, x2 - x1, y2 - y1]}
        truth['annotations'].append(box)
    path = tmp_path / 'truth.json'
    path.write_text(json.dumps(truth))
    given = ('--resize', 'letterbox', '--mean', '0,0,0', '--std', '1,1,1')
    code, out, *_ = fit('--annotations', path, *given, '--json')
    best, *others = json.loads(out)
    assert code == 0
    assert (best['scale'], best['decoder']) == (1.0, 'yolov8')
    assert 0.8 < best['score'] <= 1
    assert any(each['scale'] != 1.0 and not each['tied'] for each in others)


@pytest.mark.parametrize(
    ('args', 'message'),
    [
        (('--counts', '1'), '--counts has 1 number for 2 pictures'),
        (('--counts', '1,2', '--annotations', 'x.json'), 'Both --annotations and --counts'),
        (('--annotations', 'x.json'), 'Cannot read x.json as annotations'),
    ],
)
def test_a_truth_that_does_not_fit_is_an_error(fit, args, message):
    code, _, err, _ = fit(*args)
    assert code == 1
    assert message in err


def test_a_stated_padding_is_tried_with_each_resize_that_pads(fit):
    code, out, *_ = fit('--pad-value', 114, '--mean', '0', '--std', '1', '--json')
    assert code == 0
    assert {each['resize'] for each in json.loads(out)} == {'letterbox', 'letterbox_topleft'}


def test_pictures_that_show_nothing_and_a_network_of_tensors_are_errors(fit, tmp_path):
    import numpy as np

    gray = tmp_path / 'gray.png'
    cv2.imwrite(str(gray), np.full((64, 64, 3), 90, np.uint8))
    code, _, err, _ = fit('--scale', '1.0', pictures=[gray])
    assert code == 1
    assert 'This ranking means nothing: no result depends on what these pictures show.' in err
    from support.task_networks import save_task_networks

    code, _, err, _ = fit(model=save_task_networks(tmp_path)['sum'])
    assert code == 1
    assert 'Cause: ' in err


def test_decoders_of_different_tasks_are_shown_and_not_compared(fit, tmp_path):
    from support.save_network import save_network
    from support.task_networks import IMAGE, SIZE

    brightness = 'y = ReduceMax <axes = [1]> (images)'
    shape = (1, 1, SIZE, SIZE)
    model = save_network(tmp_path / 'y.onnx', brightness, IMAGE, {'y': shape})
    code, out, err, folder = fit('--resize', 'stretch', '--channel-order', 'rgb', model=model)
    assert code == 0
    decoders = [line.split(' ')[2].rstrip(',') for line in out.splitlines()]
    assert {*decoders[:2]} == {'depth', 'semantic'}
    assert 'do not tell apart decoder ' in err
    assert 'Scores of different decoders are not compared.' in err
    nodes = {(folder / f'{number}.yaml').read_text().split('trt_ros ')[1] for number in (1, 2)}
    assert {text.split(' ')[0] for text in nodes} == {'depth', 'segmenter'}


@pytest.mark.nightly
def test_the_preprocessing_of_the_weed_detector_is_found(call, weeds, tmp_path):
    code, out, *_ = call(
        'fit', weeds / 'weeds_yolox_nano.onnx', weeds, '--output', tmp_path, '--max-images', 3
    )
    assert code == 0
    first = out.splitlines()[0]
    assert first.startswith('1. (tied) yolox, 416x416, letterbox_topleft, bgr, scale 1: ')
